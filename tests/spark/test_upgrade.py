"""Lakes and their checkpoints, written by earlier code, opened and carried on by this one.

``tests.support.earlier_lake`` makes such a lake. Each name says what differs from the next:

- ``state-3``: the state has layout 3, without checksums.
- ``state-4``: the state has layout 4, without the places of clients.
- ``five-queries``: each landing topic and the operator has a query of Spark's.
- ``spark-commits``: one query; each commit opens its table; entries of a log stay for a month.
- ``quota-query``: a query of Spark's follows the points for `quota_reports`.

``tests/data/lake-v0.1.tar.gz`` holds a lake whose job was killed in the middle of a batch of each stream, with the
files ``in/`` that it followed (in its paths ``/FOLDER`` stands for where they lay), one more file in ``later/``, and
the ledger of all of them (``tests.support.ledger``).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.quotas.report_follower import ReportFollower
from tests.conftest import Ingest
from tests.support.earlier_lake import EarlierLake
from tests.support.lake_tables import table
from tests.support.ledger import Ledger
from tests.support.ledger_check import check

LOG = "_delta_log"
QUOTA_TABLES = ("quota_reports", "quota_usage")
EARLIER_LAKE = Path(__file__).parent.parent / "data" / "lake-v0.1.tar.gz"


@pytest.mark.slow
def test_a_lake_of_the_release_before_is_opened_and_continued(ingest: Ingest, tmp_path: Path) -> None:
    shutil.unpack_archive(EARLIER_LAKE, tmp_path)
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["state-3", "state-4", "five-queries", "spark-commits", "quota-query"])
def test_a_lake_of_earlier_code_goes_on(ingest: Ingest, tmp_path: Path, name: str) -> None:
    earlier = EarlierLake(name, tmp_path)
    stored = {path.name: table(earlier.path, path.name) for path in earlier.path.iterdir() if (path / LOG).exists()}
    earlier.land()
    ingest(earlier.source, earlier.path, "--source-name", "files:in")
    verdict = check(earlier.path, earlier.ledger)
    assert (verdict.lost, verdict.doubled, verdict.problems) == (0, 0, [])
    # The state has gone on: a series is new only once, and a total that stands is differenced from the one before.
    statuses = table(earlier.path, "metric_points")["delta_status"].to_pylist()
    assert statuses.count("first") == len({each.client for each in earlier.ledger.landed if each.points == 3})
    for before in ("pushes", "push_outcomes", "metric_points"):
        keys = [key for key in ("partition", "offset", "metric") if key in stored[before].column_names]
        rows = table(earlier.path, before).select(keys).to_pylist()
        assert all(row in rows for row in stored[before].select(keys).to_pylist())
    if "quota_reports" in stored:
        _check_quotas(earlier.path, stored["quota_reports"].num_rows)
    ingest(earlier.source, earlier.path, "--source-name", "files:in")
    assert check(earlier.path, earlier.ledger).right


def _check_quotas(lake: Path, before: int) -> None:
    """Reports and windows are those that a lake without them gets."""
    assert before == 12  # two producers' three pushes of two reports each
    found = [sorted(table(lake, name).to_pylist(), key=repr) for name in QUOTA_TABLES]
    assert len(found[0]) == 16
    assert not (lake / "_checkpoints" / "quota_reports").exists()
    for name in QUOTA_TABLES:
        shutil.rmtree(lake / name)
    ReportFollower(str(lake), str(lake / "_checkpoints")).catch_up()
    assert [sorted(table(lake, name).to_pylist(), key=repr) for name in QUOTA_TABLES] == found
