"""Usage windows: percent, delay and status of each bucket and window, exact for hand-made samples and as properties."""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_telemetry_lake.udfs.quotas.usage import SAMPLES_IN, USAGE, delay_seconds, quota_usage

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NAN, INF = float("nan"), float("inf")
APP = {"cluster_id": "c", "broker_id": 1, "quota_type": "produce", "user": "", "client_id": "app"}


def sample(
    second: float,
    rate: float | None,
    limit: float | None = 100.0,
    throttle: float | None = None,
    *,
    landed_after: float = 1.0,
    **bucket: Any,
) -> dict[str, Any]:
    at = NOON + timedelta(seconds=second)
    told = {"observed_rate": rate, "quota_limit": limit, "throttle_time_ms": throttle}
    return APP | {"time": at, "landed_at": at + timedelta(seconds=landed_after)} | told | bucket


def usage(samples: list[dict[str, Any]], window_seconds: int = 10) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = quota_usage(pa.Table.from_pylist(samples, SAMPLES_IN), window_seconds).to_pylist()
    return rows


def only(samples: list[dict[str, Any]], window_seconds: int = 10) -> dict[str, Any]:
    rows = usage(samples, window_seconds)
    assert len(rows) == 1
    return rows[0]


def test_q3_delay_of_kip_13s_example() -> None:
    """KIP-13: 60 produced in a window whose bound is 50, at 5 a second: 2 s."""
    assert delay_seconds(np.array([60.0]), np.array([50.0]), np.array([5.0])).tolist() == [2.0]
    assert only([sample(5, 6.0, 5.0)])["delay_s"] == pytest.approx(2.0, rel=1e-12)


@given(st.floats(0, 1e9), st.floats(1e-3, 1e9), st.floats(0.1, 1e3))
def test_q3_delay_is_kafkas_formula(observed: float, limit: float, window: float) -> None:
    """QuotaUtils.boundedThrottleTime: (O - T) / T x W above the bound."""
    delay = delay_seconds(np.array([observed * window]), np.array([limit * window]), np.array([limit]))[0]
    expected = max(0.0, (observed - limit) / limit * window)
    assert delay == pytest.approx(expected, rel=1e-6, abs=1e-6 * window)


def test_q2_below_the_bound_the_percentage_is_rate_over_bound() -> None:
    window = {"window_start": NOON, "window_end": NOON + timedelta(seconds=10), "window_seconds": 10, "samples": 1}
    used = {"observed_rate": 25.0, "quota_limit": 100.0, "used_percent": 25.0, "usage_ratio": 0.25}
    free = {"throttle_ms": None, "delay_s": 0.0, "throttled": False, "source": "broker", "status": "ok"}
    assert only([sample(5, 25.0)]) == APP | window | used | free


def test_q1_a_minute_is_the_mean_of_its_samples() -> None:
    row = only([sample(second, rate) for second, rate in ((5, 10.0), (15, 20.0), (25, 60.0))], 60)
    assert (row["observed_rate"], row["used_percent"], row["samples"]) == (30.0, pytest.approx(30.0), 3)
    assert row["window_end"] - row["window_start"] == timedelta(minutes=1)


@pytest.mark.parametrize(
    ("samples", "percent", "throttled"),
    [
        ([sample(1, 10.0), sample(2, 10.0, throttle=0.5), sample(3, 10.0)], 100.0, True),
        ([sample(1, 10.0), sample(2, 100.0), sample(3, 10.0)], 100.0, False),
        ([sample(1, 99.0, throttle=0.0)], 99.0, False),
        ([sample(1, math.nextafter(100.0, 0))], math.nextafter(100.0, 0), False),
    ],
)
def test_q2_any_throttled_sample_or_one_at_the_bound_is_100_percent(
    samples: list[dict[str, Any]], percent: float, throttled: bool
) -> None:
    row = only(samples)
    assert (row["used_percent"], row["throttled"]) == (percent, throttled)


def test_q3_above_the_bound_the_ratio_is_uncapped() -> None:
    row = only([sample(1, 250.0, throttle=400.0), sample(2, 350.0, throttle=800.0)])
    assert (row["used_percent"], row["usage_ratio"], row["throttle_ms"]) == (100.0, 3.0, 600.0)
    assert row["delay_s"] == 20.0  # (3000 - 1000) / 100


@pytest.mark.parametrize(
    ("samples", "status", "limit", "percent"),
    [
        ([sample(1, 50.0, None)], "unlimited", None, None),
        ([sample(1, 50.0, INF)], "unlimited", None, None),
        ([sample(1, 50.0, float(2**63 - 1))], "unlimited", None, None),
        ([sample(1, 50.0, 0.0)], "zero_limit", 0.0, 100.0),
        ([sample(1, 0.0, 0.0)], "zero_limit", 0.0, 100.0),
        ([sample(1, 50.0, 100.0), sample(2, 50.0, None)], "limit_removed", 100.0, 50.0),
        ([sample(1, 50.0, 100.0, 7.0), sample(2, 500.0, None, 7.0)], "limit_removed", 100.0, 100.0),
        ([sample(1, 500.0, None, 7.0)], "limit_removed", None, 100.0),
        ([sample(1, 50.0, None), sample(2, 50.0, 200.0)], "limit_changed", 200.0, 25.0),
        ([sample(1, 50.0, 100.0), sample(2, 50.0, 200.0)], "limit_changed", 200.0, 37.5),
        ([sample(2, 50.0, 100.0), sample(1, 50.0, 200.0)], "limit_changed", 100.0, 37.5),
        ([sample(1, None, 100.0, 7.0)], "no_rate", 100.0, 100.0),
        ([sample(1, NAN, 100.0, NAN)], "no_rate", 100.0, None),
        ([sample(1, INF, 100.0)], "no_rate", 100.0, None),
        ([sample(1, -50.0)], "negative_rate", 100.0, 0.0),
        ([sample(1, 50.0, landed_after=61.0)], "clock_skew", 100.0, 50.0),
        ([sample(1, 50.0, landed_after=-61.0)], "clock_skew", 100.0, 50.0),
        ([sample(1, 50.0, landed_after=59.0)], "ok", 100.0, 50.0),
        ([sample(1, 1e300, 1e-300)], "ok", 1e-300, 100.0),
    ],
)
def test_q4_q5_the_status_says_what_happened(
    samples: list[dict[str, Any]], status: str, limit: float | None, percent: float | None
) -> None:
    row = only(samples)
    assert (row["status"], row["quota_limit"], row["used_percent"]) == (status, limit, percent)


def test_q1_windows_are_aligned_and_half_open() -> None:
    rows = usage([sample(second, 1.0) for second in (0, 9.999999, 10, 19)] + [sample(-0.000001, 1.0)])
    found = sorted(((row["window_start"] - NOON).total_seconds(), row["samples"]) for row in rows)
    assert found == [(-10, 1), (0, 2), (10, 2)]


def test_q1_each_bucket_has_its_own_row() -> None:
    others: list[tuple[str, Any]] = [
        ("cluster_id", None),
        ("cluster_id", "d"),
        ("broker_id", 2),
        ("quota_type", "fetch"),
    ]
    others += [("user", "ann"), ("client_id", "")]
    rows = usage([sample(1, 10.0), *(sample(1, 20.0 + n) | dict([other]) for n, other in enumerate(others))])
    assert sorted(row["observed_rate"] for row in rows) == [10.0, 20.0, 21.0, 22.0, 23.0, 24.0, 25.0]


def test_no_samples_no_rows() -> None:
    found = quota_usage(SAMPLES_IN.empty_table(), 10)
    assert (found.num_rows, found.schema) == (0, USAGE)


_NUMBER = st.none() | st.floats() | st.sampled_from([0.0, -0.0, 100.0, 5e-324, 1.7e308, float(2**63 - 1)])
_SAMPLES = st.lists(
    st.builds(
        sample,
        st.integers(0, 60),
        _NUMBER,
        st.none() | st.floats(min_value=0) | st.sampled_from([0.0, 100.0, INF]),
        st.none() | st.floats(min_value=0) | st.just(NAN),
        landed_after=st.integers(-100, 100),
        broker_id=st.integers(1, 2),
    ),
    max_size=12,
)


@settings(max_examples=300)
@given(_SAMPLES, st.sampled_from([10, 60]))
@pytest.mark.slow
def test_whatever_the_samples_the_numbers_are_in_their_range(samples: list[dict[str, Any]], window: int) -> None:
    rows = usage(samples, window)
    assert sum(row["samples"] for row in rows) == len(samples)
    for row in rows:
        for name in ("observed_rate", "quota_limit", "used_percent", "usage_ratio", "throttle_ms", "delay_s"):
            assert row[name] is None or (math.isfinite(row[name]) and row[name] >= 0), (name, row)
        assert row["used_percent"] is None or row["used_percent"] <= 100
        if row["quota_limit"] is None:
            assert row["used_percent"] == (100 if row["throttled"] else None)
            assert row["usage_ratio"] is None
            assert row["delay_s"] is None
        elif row["throttled"]:
            assert row["used_percent"] == 100
        if row["used_percent"] is not None and row["used_percent"] < 100:
            assert row["used_percent"] == pytest.approx(100 * row["usage_ratio"])


@settings(max_examples=200)
@given(
    st.lists(
        st.builds(sample, st.integers(0, 60), st.floats(0, 500), throttle=st.none() | st.floats(0, 9)), max_size=12
    )
)
def test_q2_percent_is_the_contracts_by_a_plain_reading(samples: list[dict[str, Any]]) -> None:
    windows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for each in samples:
        windows[(each["time"] - NOON) // timedelta(seconds=10)].append(each)
    found = {(row["window_start"] - NOON) // timedelta(seconds=10): row for row in usage(samples)}
    assert found.keys() == windows.keys()
    for number, in_window in windows.items():
        full = any((each["throttle_time_ms"] or 0) > 0 or each["observed_rate"] >= 100 for each in in_window)
        rate = sum(each["observed_rate"] for each in in_window) / len(in_window)
        assert found[number]["used_percent"] == (100 if full else pytest.approx(100 * rate / 100))
        assert found[number]["observed_rate"] == pytest.approx(rate)
        assert found[number]["throttled"] == any((each["throttle_time_ms"] or 0) > 0 for each in in_window)


@settings(max_examples=100)
@given(_SAMPLES, st.randoms(use_true_random=False))
def test_order_of_arrival_does_not_matter(samples: list[dict[str, Any]], random: Any) -> None:
    distinct = list({(each["time"], each["broker_id"]): each for each in samples}.values())
    shuffled = random.sample(distinct, len(distinct))
    order = [(name, "ascending") for name in ("broker_id", "window_start")]
    tables = [quota_usage(pa.Table.from_pylist(each, SAMPLES_IN), 10).sort_by(order) for each in (distinct, shuffled)]
    assert tables[0].equals(tables[1])
