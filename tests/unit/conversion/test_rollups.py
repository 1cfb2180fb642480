"""Rollups: what they sum, and that cuts, windows and order change nothing but the number of rows."""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import datetime
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_telemetry_lake.udfs.conversion import rollups
from kafka_telemetry_lake.udfs.conversion.rollups import HOUR_US, MINUTE_US, RollUp
from kafka_telemetry_lake.udfs.rows import METRIC_POINTS, METRIC_ROLLUPS
from tests.oracle.scenarios import scenario
from tests.unit.conversion.test_property_engine import budget, cuts, run

Row = dict[str, Any]
MINUTE = 60_000_000
KEYS = ("cluster_id", "client_id", "metric", "kind", "temporality")


def point(**columns: Any) -> Row:
    """A cumulative counter's point of the second minute."""
    return {
        "cluster_id": "c", "client_id": "a", "metric": "m.total", "kind": "sum", "temporality": "cumulative",
        "landed_at": 3 * MINUTE, "time": MINUTE + 1, "delta_status": "value",
    } | columns  # fmt: skip


def table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, METRIC_POINTS)


def rolled(*rows: Row, window_us: int = MINUTE_US) -> list[Row]:
    roll_up = RollUp(window_us)
    roll_up.add(table(list(rows)))
    result: list[Row] = roll_up.table().cast(METRIC_ROLLUPS).to_pylist()
    return result


def micros(time: datetime) -> int:
    return round(time.timestamp() * 1e6)


def test_increments_and_the_time_that_they_cover_add_up() -> None:
    (row,) = rolled(
        point(delta=2.0, delta_int=2, delta_start=MINUTE - 9_999_999, delta_status="converted", value=7.0),
        point(delta=3.0, delta_int=3, delta_start=MINUTE - 29_999_999, delta_status="reset", value=3.0),
    )
    assert (row["points"], row["increase"], row["increase_int"], row["covered_s"]) == (2, 5.0, 5, 40.0)
    assert (row["value_count"], row["value_sum"], row["value_min"], row["value_max"]) == (2, 10.0, 3.0, 7.0)
    assert (micros(row["window_start"]), micros(row["landed_at"])) == (MINUTE, 3 * MINUTE)
    (row,) = rolled(point(delta=2.0, delta_int=2, delta_status="converted"), point(delta=0.5, delta_status="converted"))
    assert (row["increase"], row["increase_int"]) == (2.5, None), "not all have an exact number"


@pytest.mark.parametrize(
    ("column", "statuses"),
    [
        ("resets", ["reset", "inferred_reset"]),
        ("baselines", ["baseline", "flip_baseline"]),
        ("refused", ["late", "duplicate", "conflict", "too_late"]),
    ],
)
def test_what_is_uncertain_is_counted(column: str, statuses: list[str]) -> None:
    (row,) = rolled(point(delta_status="converted"), *(point(delta_status=status) for status in statuses))
    counted = {name: row[name] for name in ("resets", "baselines", "refused")}
    assert counted == dict.fromkeys(counted, 0) | {column: len(statuses)}


def test_what_is_not_finite_or_not_recorded_is_a_point_without_value() -> None:
    (row,) = rolled(point(delta_status="non_finite"), point(delta_status="no_recorded_value"))
    assert (row["points"], row["value_count"], row["value_sum"], row["value_min"]) == (2, 0, None, None)
    assert (row["increase"], row["increase_int"], row["covered_s"]) == (None, None, 0.0)


def test_observations_of_histograms_add_up() -> None:
    (row,) = rolled(
        point(kind="histogram", count_delta=3, sum_delta=1.5, delta_status="converted"),
        point(kind="histogram", count_delta=2, delta_status="converted"),
    )
    assert (row["observations"], row["observed_sum"]) == (5, 1.5)


@pytest.mark.parametrize("column", KEYS)
def test_every_key_makes_rows_of_its_own(column: str) -> None:
    assert len(rolled(point(value=1.0), point(value=1.0, **{column: "other"}), point(value=1.0, **{column: None}))) == 3


def test_levels_of_a_metric_are_kept_apart() -> None:
    """Java consumers tell what they consumed per client and per topic under one name."""
    rows = rolled(
        point(delta=5.0, attributes=[]),
        point(delta=2.0, attributes=[("topic", "a")]),
        point(delta=3.0, attributes=[("topic", "b")]),
        point(delta=5.0, attributes=[("partition", "0"), ("topic", "b")]),
        point(delta=1.0),
    )
    assert [(row["attribute_keys"], row["increase"]) for row in rows] == [
        ("", 6.0),
        ("topic", 5.0),
        ("partition,topic", 5.0),
    ]


def test_a_point_belongs_to_the_window_of_its_time() -> None:
    rows = rolled(*(point(time=time) for time in (0, MINUTE - 1, MINUTE, HOUR_US)))
    assert sorted((micros(row["window_start"]), row["points"]) for row in rows) == [
        (0, 2),
        (MINUTE, 1),
        (HOUR_US, 1),
    ]


def test_no_points_no_rows() -> None:
    assert rolled() == []


def totals(rows: list[Row]) -> dict[Any, Any]:
    """Per key and hour: what rows and points must agree on."""
    found: dict[Any, Any] = defaultdict(lambda: [0, 0, 0.0, 0])
    for row in rows:
        entry = found[*(row[name] for name in KEYS), micros(row["window_start"]) // HOUR_US]
        entry[0] += row["points"]
        entry[1] += row["refused"]
        entry[2] += row["increase"] or 0.0
        entry[3] += row["value_count"]
    return found


def test_a_point_without_value_and_time_counts_in_the_window_of_its_landing() -> None:
    (row,) = rolled(point(time=None, delta_status="no_recorded_value"))
    assert (micros(row["window_start"]), row["points"], row["value_count"]) == (3 * MINUTE, 1, 0)


@pytest.mark.parametrize("names", [3, 70_000])  # whose codes have 16 bits, or more
def test_rows_of_a_metric_are_together_in_each_part_and_stay_whole(monkeypatch: pytest.MonkeyPatch, names: int) -> None:
    monkeypatch.setattr(rollups, "SORTED_ROWS", 100)
    zeros = [-0.0 if n % 3 else 0.0 for n in range(300)]
    points = [
        point(client_id=f"c{n}", metric=f"m{n * 7 % names}", value=zero, delta=float(n), delta_status="converted")
        for n, zero in enumerate(zeros)
    ]
    before = [point(metric=f"other{n}") for n in range(names - 3)]  # names that make the codes of others large
    roll_up = RollUp(MINUTE_US)
    roll_up.add(table(before + points))
    rows = [row for row in roll_up.table().cast(METRIC_ROLLUPS).to_pylist() if row["client_id"] != "a"]
    found = {(row["client_id"], row["metric"], math.copysign(1, row["value_min"]), row["increase"]) for row in rows}
    assert found == {
        (each["client_id"], each["metric"], math.copysign(1, each["value"]), each["delta"]) for each in points
    }
    if names == 3:
        parts = [[row["metric"] for row in rows[first : first + 100]] for first in (0, 100, 200)]
        assert [sorted(part) for part in parts] == parts


@pytest.mark.slow
@budget
@example(Random(2_197_175_160))  # with a point of that kind
@given(st.integers(0, 2**32 - 1).map(Random))
def test_sums_are_those_of_the_points_however_they_are_cut(random: Random) -> None:
    batches = [run([cut])["metric_points"] for cut in cuts(scenario(random), random)]
    minutes = RollUp(MINUTE_US)
    for batch in batches:
        minutes.add(table(batch))
    truth: dict[Any, Any] = defaultdict(lambda: [0, 0, 0.0, 0])
    for row in (row for batch in batches for row in batch):
        entry = truth[*(row[name] for name in KEYS), micros(row["time"] or row["landed_at"]) // HOUR_US]
        entry[0] += 1
        entry[1] += row["delta_status"] in ("late", "duplicate", "conflict", "too_late")
        entry[2] += row["delta"] or 0.0
        entry[3] += row["value"] is not None
    for found in (totals(minutes.table().to_pylist()), totals(minutes.coarser(HOUR_US).table().to_pylist())):
        assert found.keys() == truth.keys()
        for key, (points, refused, increase, values) in truth.items():
            assert found[key][:2] == [points, refused]
            assert found[key][3] == values
            assert math.isclose(found[key][2], increase, rel_tol=1e-9, abs_tol=1e-9)
