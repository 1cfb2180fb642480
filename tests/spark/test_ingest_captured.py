"""The captured pushes of real clients give exactly what their index says, however the folder grows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.conftest import Ingest
from tests.support.lake_tables import point_sums, rollup_sums, table
from tests.support.landing_records import CAPTURED, captured, captured_index, write

ROLLUPS = {"metric_rollups_1m": 60, "metric_rollups_1h": 3600}
POINT_ORDER = ["partition", "offset", "client_instance_id", "series_id", "time", "delta_status"]


@pytest.fixture(scope="module")
def one_run(ingest: Ingest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("one") / "lake"
    ingest(CAPTURED, lake)
    return lake


def test_every_push_is_stored_with_its_payload_and_headers(one_run: Path) -> None:
    stored = {(row["partition"], row["offset"]): row for row in table(one_run, "pushes").to_pylist()}
    landed = captured().to_pylist()
    assert len(stored) == len(landed) == 1415
    for truth, record in zip(captured_index(), landed, strict=True):
        row = stored[record["partition"], record["offset"]]
        assert row["payload"] == record["value"]
        assert row["payload_bytes"] == len(record["value"])
        assert row["landed_at"] == record["timestamp"]
        assert row["client_instance_id"] == truth["client_instance_id"]
        assert row["client_id"] == truth["client_id"]
        assert row["client_software_name"] == truth["software_name"]
        assert row["client_software_version"] == truth["software_version"]
        assert row["terminating"] == truth["terminating"]
        assert row["compression_type"] == truth["compression_type"]
        assert row["subscription_id"] == truth["subscription_id"]
        assert row["push_interval_ms"] == 1000
        assert row["reject_reason"] is None


def test_each_record_of_a_file_is_counted_once_and_none_waits(one_run: Path) -> None:
    batches = table(one_run, "pipeline_metrics").to_pylist()
    assert sum(row["records"] for row in batches if row["stream"] == "pushes") == 1415
    assert {row["waiting"] for row in batches} == {0}


def test_points_kinds_nans_and_terminating_flags_are_those_of_the_index(one_run: Path) -> None:
    points = table(one_run, "metric_points")
    assert points.num_rows == 157_260
    kind = pc.binary_join_element_wise(
        points["kind"], pc.fill_null(points["temporality"], ""), "_"
    )  # gauge_, sum_delta, sum_cumulative
    found: dict[tuple[int, int], dict[str, int]] = {}
    grouped = pa.table({"partition": points["partition"], "offset": points["offset"], "kind": kind})
    for row in grouped.group_by(["partition", "offset", "kind"]).aggregate([([], "count_all")]).to_pylist():
        found.setdefault((row["partition"], row["offset"]), {})[row["kind"].rstrip("_")] = row["count_all"]
    nans = points.filter(pc.equal(points["delta_status"], "non_finite"))
    assert nans.num_rows == 17_600
    assert nans["value"].null_count == 17_600
    nans_by_push = nans.group_by(["partition", "offset"]).aggregate([("offset", "count")]).to_pylist()
    per_push = {(row["partition"], row["offset"]): row["offset_count"] for row in nans_by_push}
    outcomes = {(row["partition"], row["offset"]): row for row in table(one_run, "push_outcomes").to_pylist()}
    for truth, record in zip(captured_index(), captured().select(["partition", "offset"]).to_pylist(), strict=True):
        key = record["partition"], record["offset"]
        assert found.get(key, {}) == truth["kinds"]
        assert per_push.get(key, 0) == truth["nan_points"]
        assert outcomes[key]["points"] == truth["points"]
        assert outcomes[key]["terminating"] == truth["terminating"]
        assert outcomes[key]["decompressed_bytes"] == truth["decompressed_bytes"]
        assert outcomes[key]["outcome"] == ("points" if truth["points"] else "heartbeat")
    assert table(one_run, "quarantine").num_rows == 0


@pytest.mark.slow
@pytest.mark.soak
def test_five_runs_over_a_growing_folder_give_the_rows_of_one_run(
    one_run: Path, ingest: Ingest, tmp_path: Path
) -> None:
    landed = captured()
    step = -(-landed.num_rows // 5)
    for number in range(5):
        write(tmp_path / "grows", f"part-{number}.parquet", landed.slice(number * step, step))
        ingest(tmp_path / "grows", tmp_path / "lake")
        assert table(tmp_path / "lake", "pushes").num_rows == min((number + 1) * step, 1415)
    for name in ("pushes", "metric_points", "push_outcomes", "client_events", "quarantine"):
        assert _rows(tmp_path / "lake", name) == _rows(one_run, name), name
    for name in ROLLUPS:
        assert rollup_sums(tmp_path / "lake", name) == rollup_sums(one_run, name), name


@pytest.mark.parametrize("name", ["metric_rollups_1m", "metric_rollups_1h"])
def test_rollups_sum_to_the_points(one_run: Path, name: str) -> None:
    assert rollup_sums(one_run, name) == point_sums(one_run, ROLLUPS[name])
    rollup, points = table(one_run, name), table(one_run, "metric_points")
    assert pc.sum(rollup["increase"]).as_py() == pytest.approx(pc.sum(points["delta"]).as_py(), rel=1e-9)
    assert pc.sum(rollup["value_sum"]).as_py() == pytest.approx(pc.sum(points["value"]).as_py(), rel=1e-9)
    assert pc.sum(rollup["value_count"]).as_py() == len(points) - points["value"].null_count


@pytest.mark.slow
@pytest.mark.soak
def test_a_new_checkpoint_changes_nothing(one_run: Path, ingest: Ingest, tmp_path: Path) -> None:
    write(tmp_path / "in", "a.parquet", captured().slice(0, 300))
    ingest(tmp_path / "in", tmp_path / "lake")
    before = {name: _rows(tmp_path / "lake", name) for name in ("pushes", "metric_points", "push_outcomes")}
    sums = {name: rollup_sums(tmp_path / "lake", name) for name in ROLLUPS}
    ingest(tmp_path / "in", tmp_path / "lake", "--checkpoints", str(tmp_path / "other"))
    assert {name: _rows(tmp_path / "lake", name) for name in before} == before
    assert {name: rollup_sums(tmp_path / "lake", name) for name in ROLLUPS} == sums
    write(tmp_path / "in", "b.parquet", captured().slice(300, 300))
    ingest(tmp_path / "in", tmp_path / "lake", "--checkpoints", str(tmp_path / "other"))
    keys = {(row["partition"], row["offset"]) for row in captured().slice(0, 600).to_pylist()}
    for name in before:
        expected = [row for row in _rows(one_run, name) if (row["partition"], row["offset"]) in keys]
        assert _rows(tmp_path / "lake", name) == expected, name


@pytest.mark.slow
def test_the_same_offsets_in_another_file_are_stored_once(ingest: Ingest, tmp_path: Path) -> None:
    write(tmp_path / "in", "a.parquet", captured().slice(0, 50))
    write(tmp_path / "in", "b.parquet", captured().slice(25, 50))
    ingest(tmp_path / "in", tmp_path / "lake")
    write(tmp_path / "in", "c.parquet", captured().slice(0, 100))
    ingest(tmp_path / "in", tmp_path / "lake")
    assert table(tmp_path / "lake", "pushes").num_rows == 100
    assert table(tmp_path / "lake", "push_outcomes").num_rows == 100


def _rows(lake: Path, name: str) -> list[dict[str, Any]]:
    """All rows in an order of their own, NaN-free by contract, so that lists compare."""
    return sorted(table(lake, name).to_pylist(), key=lambda row: [str(row.get(column)) for column in POINT_ORDER])
