"""Delta's own OPTIMIZE and VACUUM, by Spark, on the lake of a stopped job: what stays as it was, and what doesn't."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.errors import FencedError
from kafka_telemetry_lake.pipelines.lake.fence import JOB, Leases, this_process
from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from kafka_telemetry_lake.pipelines.replay.replay import replay
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import OPERATOR_TABLES, PUSHES
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS
from tests.support.lake_tables import clients_of
from tests.support.ledger import Fleet
from tests.support.ledger_check import check
from tests.support.local_stream import run_tasks
from tests.support.operator_alone import Job, without_spark
from tests.unit.ingest.test_reshard import rows_of
from tests.unit.upkeep.test_maintain import NEXT_DAY

pytestmark = pytest.mark.slow

SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "INT96",  # Spark's default
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # VACUUM lists folders in tasks, by default 10,000
}


@pytest.fixture
def sql(spark: SparkSession) -> Iterator[SparkSession]:
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield spark
    for name, old in before.items():
        spark.conf.unset(name) if old is None else spark.conf.set(name, old)


def test_after_optimize_the_job_and_all_that_follows_it_go_on(
    sql: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_spark(monkeypatch)
    fleet = Fleet(clients=8)
    rounds = [fleet.round() for _ in range(6)]
    straight, job = (Job(tmp_path / name, iter(rounds).__next__) for name in ("straight", "job"))
    epochs = [Leases(job.lake, JOB).acquire(this_process("ingest"), take_over=True) for _ in range(2)]
    for table in (PUSHES, *OPERATOR_TABLES):
        TableLog(table, job.lake, epochs[1])
    lifecycles = {each: Lifecycle(each.lake) for each in (straight, job)}
    for number in range(6):
        if number == 4:
            job.stream.batch_id = number
            job.stream.snapshot()
            for table in (PUSHES, *OPERATOR_TABLES, CLIENT_CHANGES):
                sql.sql(f"OPTIMIZE delta.`{table.uri(job.lake)}`")
            assert len(DeltaTable(PUSHES.uri(job.lake)).file_uris()) == 1
            assert len(DeltaTable(f"{job.lake}/metric_points").file_uris()) == 1
            job.start()  # as a job that was stopped
            lifecycles[job] = Lifecycle(job.lake)
        for each in (straight, job):
            each.batch()
            lifecycles[each].catch_up()
    assert check(Path(job.lake), fleet.ledger).problems == []
    assert rows_of(Path(job.lake)) == rows_of(Path(straight.lake))
    assert clients_of(Path(job.lake)) == clients_of(Path(straight.lake))
    with pytest.raises(FencedError):
        TableLog(PUSHES, job.lake, epochs[0])
    job.maintain(NEXT_DAY)
    begin = min(record["timestamp"] for record in rounds[4]).isoformat()
    for condition in (f"landed_at >= '{begin}'", None):  # from the snapshot, and from the beginning
        replay(job.lake, str(job.stream.checkpoints), condition, DEFAULT_LIMITS, 1, run_tasks)
        assert rows_of(Path(job.lake)) == rows_of(Path(straight.lake))


def test_vacuum_deletes_what_a_snapshot_of_the_state_needs(
    sql: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`maintain` retains it. VACUUM looks at a file's age only, once the log has forgotten that it was removed."""
    without_spark(monkeypatch)
    job = Job(tmp_path / "job", Fleet(clients=8).round)
    for _ in range(6):
        job.batch()
    job.stream.batch_id = 6
    job.stream.snapshot()
    snapshot = job.stream.state.snapshots.all()[-1]
    points = next(each for each in OPERATOR_TABLES if each.name == "metric_points")
    needed = {Path(job.lake, points.name, path) for path in snapshot.files_table(points)["path"].to_pylist()}
    job.maintain(NEXT_DAY)  # replaces them
    assert needed
    assert all(file.exists() for file in needed)
    week_ago = time.time() - 8 * 86_400
    for file in needed:
        os.utime(file, (week_ago, week_ago))
    for commit in Path(job.lake, points.name, "_delta_log").glob("*.json"):  # two days pass
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] -= 2 * 86_400_000
        commit.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    sql.sql(f"VACUUM delta.`{points.uri(job.lake)}` RETAIN 168 HOURS")
    assert not any(file.exists() for file in needed)
