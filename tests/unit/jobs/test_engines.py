"""What the Spark engine can't do is refused, and whoever commits beside it waits for its turn."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs.engines import RunningEngine
from kafka_telemetry_lake.jobs.ingest_settings import IngestSettings
from kafka_telemetry_lake.jobs.locks import only_job
from kafka_telemetry_lake.jobs.settings import UsageError
from kafka_telemetry_lake.pipelines.lake.engine import claim_engine
from kafka_telemetry_lake.pipelines.tables.operator import TABLES
from kafka_telemetry_lake.pipelines.upkeep.upkeep import Upkeep
from tests.support.patience import PATIENCE_S


def test_a_lake_in_s3_is_for_databricks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings as parsed: what parses them asks the store, which isn't there."""
    monkeypatch.delenv("DATABRICKS_RUNTIME_VERSION", raising=False)
    settings = IngestSettings.model_construct(source="files:x", lake="s3a://a/b", engine="spark")
    with pytest.raises(UsageError, match="in S3 open-source Spark's commits can replace those of others"):
        settings.check_together()
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    settings.check_together()


def test_maintain_does_not_run_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for table in TABLES:
        table.create(str(tmp_path))
    claim_engine(str(tmp_path), "spark", DeltaTable(tmp_path / "pushes"))
    with only_job(str(tmp_path), "ingest", "busy"):
        assert cli.main(["maintain", "--lake", str(tmp_path)]) == 2
    assert f"a job of the Spark engine is running on {tmp_path}: stop it before maintain" in capsys.readouterr().err
    assert cli.main(["maintain", "--lake", str(tmp_path)]) == 0


def test_others_wait_until_a_table_is_written(tmp_path: Path) -> None:
    """The lifecycle's step, and the upkeep of each table."""
    turn, done = threading.Lock(), threading.Event()
    for table in TABLES:
        table.create(str(tmp_path))
    engine = RunningEngine(1, lambda _: pytest.fail("not started"), lambda: 0, turn)
    upkeep = Upkeep(str(tmp_path), engine.judged, turn=turn)
    ended = threading.Event()

    def look() -> None:
        upkeep.look(ended)
        done.set()

    for work in (engine.in_turn(done.set), look):
        done.clear()
        thread = threading.Thread(target=work)
        with turn:
            thread.start()
            assert not done.wait(0.3)
        thread.join(PATIENCE_S)
        assert done.is_set()
