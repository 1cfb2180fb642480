"""The job itself on a lake whose shards change in mid-stream: the rows are those of a lake with the same all along."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.pipelines.state.manifest import StateFolder
from tests.conftest import Ingest
from tests.spark.test_replay_job import rows_of
from tests.support.landing_records import write
from tests.support.ledger import Fleet
from tests.support.ledger_check import check


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
