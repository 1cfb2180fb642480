"""Estimates from clients' byte counters: bytes are spread over windows, buckets are shared, nothing is invented."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_telemetry_lake.udfs.quotas.limits import DEFAULT, QuotaLimits
from kafka_telemetry_lake.udfs.quotas.reports import MAX_INTERVAL_S, REPORTS, estimated_usage, throttle_evidence
from kafka_telemetry_lake.udfs.quotas.usage import USAGE

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
START = int(NOON.timestamp())
SPAN = (START - 3600, START + 4 * 3600)


def delta(start: float, end: float, size: float | None, **names: Any) -> dict[str, Any]:
    of = {"cluster_id": "c", "broker_id": 1, "user": "ann", "client_id": "app", "bytes": size}
    return of | {"delta_start": NOON + timedelta(seconds=start), "time": NOON + timedelta(seconds=end)} | names


def delay(second: float, throttle_ms: float, **names: Any) -> dict[str, Any]:
    of = {"cluster_id": "c", "user": "ann", "client_id": "app", "throttle_ms": throttle_ms}
    return of | {"time": NOON + timedelta(seconds=second)} | names


def in_order(found: pa.Table) -> list[dict[str, Any]]:
    assert found.schema == USAGE
    rows: list[dict[str, Any]] = found.sort_by([("window_start", "ascending"), ("client_id", "ascending")]).to_pylist()
    return rows


def estimate(deltas: list[dict[str, Any]], limits: QuotaLimits, span: tuple[int, int] = SPAN) -> list[dict[str, Any]]:
    return in_order(estimated_usage(pa.Table.from_pylist(deltas, REPORTS), "produce", limits, 10, *span))


def evidence(
    delays: list[dict[str, Any]], limits: QuotaLimits | None, span: tuple[int, int] = SPAN
) -> list[dict[str, Any]]:
    return in_order(throttle_evidence(pa.Table.from_pylist(delays, REPORTS), "produce", limits, 10, *span))


def test_q12_bytes_are_spread_over_the_windows_of_their_interval() -> None:
    rows = estimate([delta(5, 25, 2000.0)], {("ann", ""): 100.0})
    assert [(row["window_start"] - NOON, row["observed_rate"], row["used_percent"]) for row in rows] == [
        (timedelta(0), 50.0, 50.0),
        (timedelta(seconds=10), 100.0, 100.0),
        (timedelta(seconds=20), 50.0, 50.0),
    ]
    assert rows[1] == rows[1] | {"user": "ann", "client_id": "", "quota_limit": 100.0, "usage_ratio": 1.0}
    assert rows[1] == rows[1] | {"throttle_ms": None, "throttled": False, "delay_s": 0.0}
    assert rows[1] == rows[1] | {"source": "client", "status": "ok", "samples": 1}


def test_an_interval_that_ends_with_a_window_stays_in_it() -> None:
    assert [row["window_start"] for row in estimate([delta(0, 10, 10.0)], {("ann", ""): 100.0})] == [NOON]


def test_only_windows_that_are_asked_for_with_all_that_falls_in_them() -> None:
    rows = estimate([delta(5, 25, 2000.0), delta(-5, 15, 400.0)], {("ann", ""): 100.0}, (START + 10, START + 20))
    assert [(row["window_start"] - NOON, row["observed_rate"]) for row in rows] == [(timedelta(seconds=10), 110.0)]


def test_q12_an_interval_too_long_to_tell_of_windows_is_left_out() -> None:
    limits = {("ann", ""): 100.0}
    assert len(estimate([delta(0, MAX_INTERVAL_S, 10.0)], limits)) == MAX_INTERVAL_S / 10
    assert estimate([delta(0, MAX_INTERVAL_S + 1, 10.0)], limits) == []


def test_q12_clients_of_one_bucket_share_its_limit_and_others_do_not() -> None:
    deltas = [delta(0, 10, size, client_id=name) for name, size in (("a", 300.0), ("b", 500.0))]
    deltas += [delta(0, 10, 700.0, user="bob"), delta(0, 10, 900.0, broker_id=2)]
    rows = estimate(deltas, {("ann", ""): 100.0, ("", DEFAULT): 1000.0})
    assert {(row["broker_id"], row["user"], row["client_id"]): row["used_percent"] for row in rows} == {
        (1, "ann", ""): pytest.approx(80.0),
        (1, "", "app"): pytest.approx(7.0),
        (2, "ann", ""): pytest.approx(90.0),
    }


def test_over_the_limit_is_100_percent_with_a_delay() -> None:
    row = estimate([delta(0, 10, 1500.0)], {("ann", "app"): 100.0})[0]
    assert (row["used_percent"], row["usage_ratio"], row["delay_s"]) == (100.0, 1.5, 5.0)


@pytest.mark.parametrize("limits", [{}, {("ann", ""): 1e30}, {("bob", ""): 1.0}])
def test_q12_a_client_without_a_limit_gives_no_row(limits: QuotaLimits) -> None:
    assert estimate([delta(0, 10, 10.0)], limits) == []


def test_a_limit_of_zero() -> None:
    row = estimate([delta(0, 10, 10.0)], {("ann", ""): 0.0})[0]
    assert (row["used_percent"], row["usage_ratio"], row["delay_s"], row["status"]) == (100.0, None, None, "zero_limit")


def test_q13_a_delay_is_evidence_of_the_clients_bucket_on_no_known_broker() -> None:
    delays = [delay(3, 200.0), delay(7, 400.0, client_id="other"), delay(12, 5.0), delay(3, 1.0, user="bob")]
    rows = evidence(delays, {("ann", ""): 100.0})
    assert [(row["user"], row["client_id"], row["window_start"] - NOON, row["throttle_ms"]) for row in rows] == [
        ("ann", "", timedelta(0), 300.0),
        ("bob", "app", timedelta(0), 1.0),
        ("ann", "", timedelta(seconds=10), 5.0),
    ]
    assert rows[0] == rows[0] | {"broker_id": None, "quota_limit": 100.0, "observed_rate": None, "used_percent": 100.0}
    assert rows[0] == rows[0] | {"usage_ratio": None, "delay_s": None, "throttled": True, "samples": 2}
    assert rows[0] == rows[0] | {"source": "evidence", "status": "no_rate"}
    assert (rows[1]["quota_limit"], rows[1]["status"]) == (None, "limit_unknown")


def test_q13_a_delay_needs_no_limits() -> None:
    rows = evidence([delay(3, 200.0), delay(10, 1.0)], None, (START, START + 10))
    assert [(row["user"], row["client_id"], row["used_percent"]) for row in rows] == [("ann", "app", 100.0)]
    assert evidence([], None) == []


def test_q12_intervals_without_length_and_negative_deltas_are_left_out() -> None:
    deltas = [delta(5, 5, 10.0), delta(6, 5, 10.0), delta(0, 5, -1.0), delta(0, 5, None)]
    assert estimate(deltas, {("ann", ""): 9.0}) == []


@given(
    st.lists(
        st.builds(
            lambda start, length, size, broker: delta(start, start + length, size, broker_id=broker),
            st.integers(0, 100), st.integers(1, 100), st.floats(0, 1e9), st.integers(1, 3),
        ),
        max_size=10,
    )
)  # fmt: skip
def test_q12_no_byte_is_lost_or_made(deltas: list[dict[str, Any]]) -> None:
    rows = estimate(deltas, {("ann", "app"): 5.0})
    assert sum(row["observed_rate"] * 10 for row in rows) == pytest.approx(sum(each["bytes"] for each in deltas))
