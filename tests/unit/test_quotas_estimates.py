"""Estimates from clients' byte counters: bytes are spread over windows, buckets are shared, nothing is invented."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from udfs.quota_estimates import DELTAS_IN, estimated_usage
from udfs.quota_precedence import DEFAULT
from udfs.quota_usage import USAGE

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def delta(start: float, end: float, size: float | None, **names: Any) -> dict[str, Any]:
    return {
        "cluster_id": "c",
        "broker_id": 1,
        "user": "ann",
        "client_id": "app",
        "start": NOON + timedelta(seconds=start),
        "end": NOON + timedelta(seconds=end),
        "bytes": size,
    } | names


def estimate(deltas: list[dict[str, Any]], limits: dict[tuple[str, str], float]) -> list[dict[str, Any]]:
    found = estimated_usage(pa.Table.from_pylist(deltas, DELTAS_IN), "produce", limits, 10)
    assert found.schema == USAGE
    rows: list[dict[str, Any]] = found.sort_by([("window_start", "ascending"), ("client_id", "ascending")]).to_pylist()
    return rows


def test_bytes_are_spread_over_the_windows_of_their_interval() -> None:
    rows = estimate([delta(5, 25, 2000.0)], {("ann", ""): 100.0})
    assert [(row["window_start"] - NOON, row["observed_rate"], row["used_percent"]) for row in rows] == [
        (timedelta(0), 50.0, 50.0),
        (timedelta(seconds=10), 100.0, 100.0),
        (timedelta(seconds=20), 50.0, 50.0),
    ]
    assert rows[1] == rows[1] | {
        "user": "ann",
        "client_id": "",
        "quota_limit": 100.0,
        "usage_ratio": 1.0,
        "throttle_ms": None,
        "throttled": False,
        "delay_s": 0.0,
        "source": "client",
        "status": "ok",
        "samples": 1,
    }


def test_an_interval_that_ends_with_a_window_stays_in_it() -> None:
    assert [row["window_start"] for row in estimate([delta(0, 10, 10.0)], {})] == [NOON]


def test_clients_of_one_bucket_share_its_limit_and_others_do_not() -> None:
    deltas = [
        delta(0, 10, 300.0, client_id="a"),
        delta(0, 10, 500.0, client_id="b"),
        delta(0, 10, 700.0, user="bob"),
        delta(0, 10, 900.0, broker_id=2),
    ]
    rows = estimate(deltas, {("ann", ""): 100.0, ("", DEFAULT): 1000.0})
    assert {(row["broker_id"], row["user"], row["client_id"]): row["used_percent"] for row in rows} == {
        (1, "ann", ""): pytest.approx(80.0),
        (1, "", "app"): pytest.approx(7.0),
        (2, "ann", ""): pytest.approx(90.0),
    }


def test_over_the_limit_is_100_percent_with_a_delay() -> None:
    row = estimate([delta(0, 10, 1500.0)], {("ann", "app"): 100.0})[0]
    assert (row["used_percent"], row["usage_ratio"], row["delay_s"]) == (100.0, 1.5, 5.0)


@pytest.mark.parametrize(
    ("limits", "percent", "status"),
    [({}, None, "unlimited"), ({("ann", ""): 0.0}, 100.0, "zero_limit"), ({("ann", ""): 1e30}, None, "unlimited")],
)
def test_no_limit_and_a_limit_of_zero(limits: dict[tuple[str, str], float], percent: float | None, status: str) -> None:
    row = estimate([delta(0, 10, 10.0)], limits)[0]
    assert (row["used_percent"], row["usage_ratio"], row["delay_s"], row["status"]) == (percent, None, None, status)


def test_intervals_without_length_and_negative_deltas_are_left_out() -> None:
    assert estimate([delta(5, 5, 10.0), delta(6, 5, 10.0), delta(0, 5, -1.0), delta(0, 5, None)], {}) == []


@given(
    st.lists(
        st.builds(
            lambda start, length, size, broker: delta(start, start + length, size, broker_id=broker),
            st.integers(0, 100), st.integers(1, 100), st.floats(0, 1e9), st.integers(1, 3),
        ),
        max_size=10,
    )
)  # fmt: skip
def test_no_byte_is_lost_or_made(deltas: list[dict[str, Any]]) -> None:
    rows = estimate(deltas, {("ann", "app"): 5.0})
    assert sum(row["observed_rate"] * 10 for row in rows) == pytest.approx(sum(each["bytes"] for each in deltas))
