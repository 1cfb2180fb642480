"""A lake and its checkpoints, written by release 0.1, opened and carried on by this one.

``tests/data/lake-v0.1.tar.gz`` holds a lake whose job was killed in the middle of a batch of each stream, with the
files ``in/`` that it followed (in its paths ``/FOLDER`` stands for where they lay), one more file in ``later/``, and
the ledger of all of them (``tests.support.ledger``).
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.conftest import Ingest
from tests.support.lake_tables import table
from tests.support.ledger import Ledger
from tests.support.ledger_check import check

EARLIER_LAKE = Path(__file__).parent.parent / "data" / "lake-v0.1.tar.gz"


@pytest.mark.slow
def test_a_lake_of_the_release_before_is_opened_and_continued(ingest: Ingest, tmp_path: Path) -> None:
    with tarfile.open(EARLIER_LAKE) as archive:
        archive.extractall(tmp_path, filter="data")
    for file in tmp_path.rglob("*"):
        if file.is_file() and b"/FOLDER" in file.read_bytes():
            file.write_text(file.read_text().replace("/FOLDER", str(tmp_path)))
    lake, ledger = tmp_path / "lake", Ledger.load(tmp_path / "ledger.json")
    outcomes, points = table(lake, "push_outcomes"), DeltaTable(str(lake / "metric_points"))
    assert (outcomes.num_rows, points.count(), points.version()) == (129, 366, 2)
    (file,) = (tmp_path / "later").iterdir()
    shutil.copy(file, tmp_path / "in")
    ingest(tmp_path / "in", lake, "--source-name", "files:in")
    verdict = check(lake, ledger)
    assert (verdict.lost, verdict.doubled, verdict.problems) == (0, 0, [])
    # Continued, not done again: the files are still those, and the state carried the counters on.
    assert set(points.file_uris()) <= set(DeltaTable(str(lake / "metric_points")).file_uris())
    statuses = table(lake, "metric_points")["delta_status"].to_pylist()
    assert statuses.count("first") == len({each.client for each in ledger.landed if each.kind == "points"}) == 20
