"""Upkeep by Spark's tasks: the same rows in as few files as without Spark, and a failed task costs one group."""

from __future__ import annotations

import re
import shutil
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kafka_telemetry_lake.pipelines.lake.delta_log import files_of
from kafka_telemetry_lake.pipelines.maintain import Maintenance, MaintenanceResult, MaintenanceSettings
from kafka_telemetry_lake.pipelines.replay.replay import replay
from kafka_telemetry_lake.pipelines.upkeep import compaction, spark_tasks
from kafka_telemetry_lake.pipelines.upkeep.compaction import TABLES, InThisProcess, UpkeepEngine
from kafka_telemetry_lake.pipelines.upkeep.spark_tasks import InSpark
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS
from tests.support.lake_tables import table
from tests.support.ledger import Fleet
from tests.support.ledger_check import check
from tests.support.local_stream import LocalStream, run_tasks

NEXT_DAY = date(2026, 11, 21)
SORTED_BY = [(name, "ascending") for name in ("partition", "offset")]


def maintain(
    lake: Path, engine: UpkeepEngine, target_bytes: int = 64 << 20, hours: int = 0
) -> dict[str, MaintenanceResult]:
    settings = MaintenanceSettings({}, target_bytes, hours, 7)
    job = Maintenance(str(lake), str(lake / "_checkpoints"), settings, NEXT_DAY, engine)
    return {name: job.maintain(name) for name in job.tables()}


def files(lake: Path, name: str) -> list[str]:
    paths: list[str] = pa.table(DeltaTable(str(lake / name)).get_add_actions())["path"].to_pylist()
    return paths


def rows(lake: Path, name: str) -> list[str]:
    return sorted(str(sorted(row.items())) for row in table(lake, name).to_pylist())


@pytest.fixture
def stream(tmp_path: Path) -> tuple[LocalStream, Fleet]:
    """Eight batches of yesterday, in two shards."""
    stream, fleet = LocalStream(tmp_path), Fleet()
    for _ in range(8):
        stream.batch(fleet.round())
    return stream, fleet


def test_tasks_leave_the_files_and_rows_that_one_process_leaves(
    spark: SparkSession, stream: tuple[LocalStream, Fleet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, fleet = stream
    monkeypatch.setattr(compaction, "MOST_FILES", 5)  # more groups than cores: several waves of tasks, a commit each
    monkeypatch.setattr(spark_tasks, "WAVES_PER_COMMIT", 1)
    monkeypatch.setattr(spark_tasks, "DELETED_BY_TASK", 3)
    shutil.copytree(job.lake, tmp_path / "alone")
    alone, together = (
        maintain(lake, engine) for lake, engine in ((tmp_path / "alone", InThisProcess()), (job.lake, InSpark(spark)))
    )
    assert together == alone
    assert {name: together[name].compacted_files for name in ("pushes", "metric_points", "push_outcomes")} == {
        "pushes": 8, "metric_points": 15, "push_outcomes": 15,
    }  # fmt: skip
    assert together["metric_points"].vacuumed_files == 15  # the last one was alone in its group
    for name in TABLES:
        assert rows(job.lake, name) == rows(tmp_path / "alone", name), name
        assert len(files(job.lake, name)) == len(files(tmp_path / "alone", name)), name
        on_disk = {path.name for path in (job.lake / name).rglob("*.parquet") if "_delta_log" not in path.parts}
        assert on_disk == {path.rpartition("/")[2] for path in files(job.lake, name)}, name
    job.batch(fleet.round())
    assert check(job.lake, fleet.ledger).problems == []
    replay(str(job.lake), str(job.checkpoints), None, DEFAULT_LIMITS, 1, run_tasks)
    assert check(job.lake, fleet.ledger).problems == []


@pytest.mark.slow
def test_a_damaged_file_fails_its_group_with_a_line_and_the_rest_is_done(
    spark: SparkSession, stream: tuple[LocalStream, Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, fleet = stream
    monkeypatch.setattr(compaction, "MOST_FILES", 2)
    monkeypatch.setattr(spark_tasks, "WAVES_PER_COMMIT", 1)
    groups = compaction.groups_of("push_outcomes", files_of(DeltaTable(str(job.lake / "push_outcomes"))), 64 << 20)
    smallest = min(groups, key=lambda group: sum(file["size_bytes"] for file in group.files))  # of the last wave
    damaged = job.lake / "push_outcomes" / smallest.files[0]["path"]
    content = damaged.read_bytes()
    damaged.write_bytes(content[:100])
    done = maintain(job.lake, InSpark(spark), hours=168)
    (problem,) = done["push_outcomes"].problems
    assert re.fullmatch(r"compaction: UpkeepFailedError: ArrowInvalid: .*\b[Pp]arquet\b.*", problem), problem
    assert len(problem) < 600
    assert {name for name, each in done.items() if each.problems} == {"push_outcomes"}
    assert len(files(job.lake, "pushes")) == 4
    before = len(files(job.lake, "push_outcomes"))
    assert 8 < before < 16  # the groups of the waves before it are committed
    damaged.write_bytes(content)
    assert maintain(job.lake, InSpark(spark), hours=168)["push_outcomes"].problems == ()
    assert len(files(job.lake, "push_outcomes")) < before
    assert check(job.lake, fleet.ledger).problems == []


def test_a_day_of_files_that_are_as_large_as_wanted_starts_no_task(
    spark: SparkSession, stream: tuple[LocalStream, Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _ = stream
    monkeypatch.setattr(InSpark, "_run", lambda *_: pytest.fail("a task ran"))
    done = maintain(job.lake, InSpark(spark), target_bytes=1024, hours=168)
    assert {each.compacted_files for each in done.values()} == {0}
