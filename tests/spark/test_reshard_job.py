"""The job itself on a lake whose shards change in mid-stream: the rows are those of a lake with the same all along."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs.locks import only_job
from kafka_telemetry_lake.pipelines.state.manifest import StateFolder
from tests.conftest import Ingest
from tests.spark.test_replay_job import rows_of
from tests.support.landing_records import write
from tests.support.ledger import Fleet
from tests.support.ledger_check import check
from tests.support.live_job import live_job
from tests.support.patience import PATIENCE_S


@pytest.mark.slow
def test_two_to_eight_to_three(ingest: Ingest, tmp_path: Path) -> None:
    fleet, lake, straight = Fleet(), tmp_path / "lake", tmp_path / "straight"
    for number, shards in enumerate((2, 8, 3)):
        if number:
            assert cli.main(["reshard", "--lake", str(lake), "--shards", str(shards)]) == 0
        write(tmp_path / "in", f"{number}.parquet", fleet.round())
        ingest(tmp_path / "in", lake)
        ingest(tmp_path / "in", straight)
        assert StateFolder(str(lake / "_checkpoints" / "points-state"), None, 1).shards == shards
        assert check(lake, fleet.ledger).problems == []
        assert rows_of(lake) == rows_of(straight)


@pytest.mark.slow
def test_a_running_job_changes_its_shards_between_two_batches(spark: SparkSession, tmp_path: Path) -> None:
    fleet, lake = Fleet(), tmp_path / "lake"
    landed = iter(range(1000))

    def land_until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline
            write(tmp_path / "in", f"{next(landed)}.parquet", fleet.round())
            time.sleep(1)

    def shards() -> int:
        return StateFolder(str(lake / "_checkpoints" / "points-state"), None, 1).shards

    flags = ["--source", f"files:{tmp_path / 'in'}", "--lake", str(lake), "--trigger-seconds", "0.5"]
    write(tmp_path / "in", "first.parquet", fleet.round())
    with ThreadPoolExecutor(1) as pool, only_job(str(lake), "ingest", "busy"), live_job(spark, *flags):
        land_until(lambda: (lake / "_checkpoints" / "points-state").is_dir() and shards() == 2)
        for number in (5, 3):
            command = pool.submit(cli.main, ["reshard", "--lake", str(lake), "--shards", str(number)])
            land_until(command.done)
            assert (command.result(), shards()) == (0, number)
        write(tmp_path / "in", "last.parquet", fleet.round())
    assert check(lake, fleet.ledger).problems == []
