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
@pytest.mark.parametrize("name", ["1", ".1.crc"])
def test_a_torn_end_of_a_batch_runs_it_again_and_changes_no_row(ingest: Ingest, tmp_path: Path, name: str) -> None:
    payload = bytes(captured()["value"][0].as_py())
    for number in range(2):
        write(tmp_path / "in", f"{number}.parquet", [record(2 * number + each, payload) for each in range(2)])
        ingest(tmp_path / "in", tmp_path / "lake")
    assert rows(tmp_path / "lake") == [(0, 1, 2, 3)] * 2
    points = table(tmp_path / "lake", "metric_points").num_rows
    commits = tmp_path / "lake" / "_checkpoints" / "landing" / "commits"
    (commits / name).write_bytes(b"")
    ingest(tmp_path / "in", tmp_path / "lake")
    assert rows(tmp_path / "lake") == [(0, 1, 2, 3)] * 2
    assert table(tmp_path / "lake", "metric_points").num_rows == points
    write(tmp_path / "in", "2.parquet", [record(4, payload)])
    ingest(tmp_path / "in", tmp_path / "lake")
    assert rows(tmp_path / "lake") == [(0, 1, 2, 3, 4)] * 2
