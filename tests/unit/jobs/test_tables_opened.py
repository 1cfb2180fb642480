"""How often `ingest` opens a table: that takes a second each time where a log or its checkpoint is long."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.jobs import cli, ingest
from kafka_telemetry_lake.pipelines.lake.log_files import LogFiles
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, OPERATOR_TABLES, PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.pipelines.tables.quotas import QUOTAS
from kafka_telemetry_lake.pipelines.upkeep import small_files
from tests.support.job_without_spark import replace_spark
from tests.support.landing_records import write
from tests.support.ledger import Fleet

pytestmark = pytest.mark.lake


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the job once, without Spark, and counts how often it opens each table."""
    for name in ("spark_session", "kill_java", "start_landing"):
        monkeypatch.setattr(ingest, name, getattr(ingest, name))
    replace_spark()
    opens, init = Counter[str](), DeltaTable.__init__

    def counted(table: DeltaTable, table_uri: str, *args: Any, **named: Any) -> None:
        opens[Path(table_uri).name] += 1
        init(table, table_uri, *args, **named)

    monkeypatch.setattr(DeltaTable, "__init__", counted)

    def once() -> Counter[str]:
        opens.clear()
        assert cli.main(["ingest", "--source", f"files:{tmp_path / 'in'}", "--lake", str(tmp_path), "--once"]) == 0
        return Counter(opens)

    return once


def test_a_start_opens_a_table_once_and_the_upkeep_once_more(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(clients=2)
    QUOTAS.create(str(tmp_path))
    for number in range(2):
        write(tmp_path / "in", f"{number}.parquet", fleet.round())
        run()
    monkeypatch.setattr(small_files, "CHECKPOINT_COMMITS", 2)
    opens = run()
    assert LogFiles(PUSH_OUTCOMES.uri(str(tmp_path))).is_past(2)
    # That of the lease and the last look whether the lake has pushes are more.
    assert opens.pop(PUSHES.name) == 4
    assert {opens.pop(table.name) for table in OPERATOR_TABLES} == {2}
    assert max(opens.values()) <= 3, opens
    write(tmp_path / "in", "2.parquet", fleet.round())
    assert run()[METRIC_POINTS.name] == 2  # its log's as well as before: a batch opens none
