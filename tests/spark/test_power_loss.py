"""After a loss of power, which may tear the last entries of Spark's checkpoint, the job goes on where it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ingest
from tests.support.lake_tables import table
from tests.support.landing_records import captured, record, write


def rows(lake: Path) -> list[tuple[Any, ...]]:
    found = [table(lake, name).select(["offset"])["offset"].to_pylist() for name in ("pushes", "push_outcomes")]
    return [tuple(sorted(offsets)) for offsets in found]


@pytest.mark.slow
def test_a_torn_end_of_a_batch_runs_it_again_and_changes_no_row(ingest: Ingest, tmp_path: Path) -> None:
    payload, lake = bytes(captured()["value"][0].as_py()), tmp_path / "lake"

    def land(number: int) -> None:
        write(tmp_path / "in", f"{number}.parquet", [record(2 * number + each, payload) for each in range(2)])
        ingest(tmp_path / "in", lake)
        assert rows(lake) == [tuple(range(2 * number + 2))] * 2

    land(0)
    for number, torn in ((1, "1"), (2, ".2.crc")):
        land(number)
        points = table(lake, "metric_points").num_rows
        (lake / "_checkpoints" / "landing" / "commits" / torn).write_bytes(b"")
        ingest(tmp_path / "in", lake)
        assert rows(lake) == [tuple(range(2 * number + 2))] * 2
        assert table(lake, "metric_points").num_rows == points
    land(3)
