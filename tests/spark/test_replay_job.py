"""Replay and upkeep with the job itself: after a wrong decoder, and beside running streams."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs import replay as replay_job
from kafka_telemetry_lake.jobs.ingest import RunningJob, make_lake, make_source
from kafka_telemetry_lake.jobs.settings.base import parse
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from kafka_telemetry_lake.jobs.settings.replay import ReplaySettings
from kafka_telemetry_lake.pipelines.replay.replay import replay
from kafka_telemetry_lake.pipelines.state.snapshots import Snapshots
from kafka_telemetry_lake.pipelines.upkeep.maintenance import Maintenance, MaintenanceSettings
from kafka_telemetry_lake.udfs.conversion import shard
from kafka_telemetry_lake.udfs.conversion.shard import ShardRows
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS
from tests.conftest import Ingest
from tests.support.lake_tables import rollup_sums, table
from tests.support.landing_records import write
from tests.support.ledger import Fleet
from tests.support.ledger_check import check
from tests.support.local_stream import run_tasks
from tests.support.patience import PATIENCE_S, wait_until

ROWS = ("pushes", "metric_points", "quarantine", "push_outcomes", "client_events")


def rows_of(lake: Path) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: sorted(str(sorted(row.items())) for row in table(lake, name).to_pylist()) for name in ROWS
    }
    return found | {name: rollup_sums(lake, name) for name in ("metric_rollups_1m", "metric_rollups_1h")}


@pytest.mark.slow
def test_a_lake_of_a_wrong_decoder_is_put_right_and_the_job_goes_on(
    spark: SparkSession, ingest: Ingest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, lake, right = Fleet(), tmp_path / "lake", tmp_path / "right"
    write(tmp_path / "in", "0.parquet", fleet.round())
    ingest(tmp_path / "in", lake)
    write(tmp_path / "in", "1.parquet", fleet.round())
    ingest(tmp_path / "in", lake)
    ingest(tmp_path / "in", right)
    decode = shard._process
    with monkeypatch.context() as broken:  # every point twice, and nothing is remembered

        def wrong(*arguments: Any) -> Any:
            rows, state = decode(*arguments)
            points = pa.concat_tables([rows.metric_points] * 2)
            return ShardRows(points, rows.quarantine, rows.push_outcomes, rows.client_events), state.empty()

        broken.setattr(shard, "_process", wrong)
        replay(str(lake), str(lake / "_checkpoints"), None, DEFAULT_LIMITS, 1, run_tasks)
    assert check(lake, fleet.ledger).doubled == table(right, "metric_points").num_rows
    make = parse(ReplaySettings, ["--lake", str(lake), "--from", "earliest"], "test")
    replay_job.run(spark, make_lake(parse(IngestSettings, ["--source", "kafka", "--lake", str(lake)], "test")), make)
    assert rows_of(lake) == rows_of(right)
    assert check(lake, fleet.ledger).problems == []
    write(tmp_path / "in", "2.parquet", fleet.round())
    ingest(tmp_path / "in", lake)
    ingest(tmp_path / "in", right)
    assert check(lake, fleet.ledger).problems == []
    assert rows_of(lake) == rows_of(right)


@pytest.mark.slow
def test_upkeep_beside_the_running_streams(spark: SparkSession, tmp_path: Path) -> None:
    """Retention and compaction of yesterday, again and again, while today's pushes come in."""
    fleet, lake = Fleet(clients=6), tmp_path / "lake"
    argv = ["--source", f"files:{tmp_path / 'in'}", "--lake", str(lake), "--trigger-seconds", "0.2"]
    settings = parse(IngestSettings, argv, "test")
    for number in range(6):
        write(tmp_path / "in", f"{number}.parquet", fleet.round(pushes=10))  # until midnight
    source, stop, failed = make_source(settings), threading.Event(), []

    def follow() -> None:
        try:
            RunningJob(spark, make_lake(settings), source, settings, stop).run()
        except Exception as error:
            failed.append(error)

    job = threading.Thread(target=follow)
    job.start()
    try:
        wait_for(lambda: count(lake, "push_outcomes") == len(fleet.ledger.landed), failed)
        dropped = len(fleet.ledger.landed)
        chosen = MaintenanceSettings({"pushes": 1}, 64 << 20, 24, 7)
        for number in range(6, 10):
            write(tmp_path / "in", f"{number}.parquet", fleet.round())
            keep = Maintenance(str(lake), str(lake / "_checkpoints"), chosen, date(2026, 11, 21))
            done = {name: keep.maintain(name) for name in keep.tables() if name != "push_outcomes" or number == 9}
            if number == 6:
                assert done["pushes"].dropped_days == ("2026-11-20",)
            wait_for(lambda: count(lake, "push_outcomes") == len(fleet.ledger.landed), failed)
    finally:
        stop.set()
        job.join(PATIENCE_S)
    assert failed == []
    assert count(lake, "pushes") == len(fleet.ledger.landed) - dropped
    verdict = check(lake, fleet.ledger)
    assert (verdict.lost, verdict.doubled) == (dropped, 0)
    assert all(problem.startswith("pushes: ") for problem in verdict.problems)
    assert len(Snapshots(str(lake / "_checkpoints")).all()) <= 1


def count(lake: Path, name: str) -> int:
    return DeltaTable(str(lake / name)).count() if (lake / name / "_delta_log").is_dir() else 0


def wait_for(there: Callable[[], bool], failed: list[Exception]) -> None:
    wait_until(lambda: failed or there())
    assert failed == []
