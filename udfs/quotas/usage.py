"""How much of its quota each entity uses, per broker and window, and how long it is delayed (KIP-13).

Numbers are bytes/s for the quota types produce and fetch, percent of one thread's time for request.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Doubles, Int64s
from kafka_telemetry_lake.udfs.quotas.limits import UNLIMITED
from kafka_telemetry_lake.udfs.rows import TIMESTAMP, columns

BUCKET = ("cluster_id", "broker_id", "quota_type", "user", "client_id")
USAGE = pa.schema(columns("quota_usage"))
SAMPLES_IN = pa.schema(
    [
        *(USAGE.field(name) for name in BUCKET),
        pa.field("time", TIMESTAMP),
        pa.field("landed_at", TIMESTAMP),
        pa.field("observed_rate", pa.float64()),
        pa.field("quota_limit", pa.float64()),
        pa.field("throttle_time_ms", pa.float64()),
    ]
)
# If a sample's time and its landing differ by more, its windows can't be compared with those of other brokers.
SKEW_US = 60_000_000


def delay_seconds(overall: Doubles, bound: Doubles, limit_per_second: Doubles) -> Doubles:
    """KIP-13's delay (Q3): (overall produced in window - quota bound) / quota limit per second; NaN for a limit of 0.

    It is Kafka's ``QuotaUtils.boundedThrottleTime``, (O - T) / T x W, with overall = O x W and bound = T x W.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        delay = np.maximum(overall - bound, 0.0) / limit_per_second
    return np.where(limit_per_second > 0, delay, np.nan)


def quota_usage(samples: pa.Table, window_seconds: int) -> pa.Table:
    """Broker samples (`SAMPLES_IN`, any order) as rows of `USAGE`: one per bucket and window with a sample (Q1).

    Windows are aligned to the Unix epoch and follow the broker's own clock. A window's `status` names the first of
    these that applies (Q5): a clock far from the landing time, a negative rate (it counts as 0), a limit that was
    removed, or changed, a limit of 0, no rate, no limit.
    """
    samples = samples.select(SAMPLES_IN.names).sort_by("time")
    time = micros(samples["time"])
    length = window_seconds * 1_000_000
    rate, throttle = floats(samples["observed_rate"]), floats(samples["throttle_time_ms"])
    limit = floats(samples["quota_limit"])
    limit = np.where((limit >= 0) & (limit < UNLIMITED), limit, np.nan)  # Q4
    used = np.maximum(rate, 0.0)
    measured = pa.table(
        {
            **{name: samples[name] for name in BUCKET},
            "window": time // length * length,
            "rate": _nulls(used),
            "ratio": _nulls(usage_ratio(used, limit)),
            "throttle": _nulls(throttle),
            "full": (throttle > 0) | (used >= limit),
            "throttled": throttle > 0,
            "limit": _nulls(limit),
            "known_limit": np.where(np.isnan(limit), -1.0, limit),
            "negative": rate < 0,
            "skewed": np.abs(micros(samples["landed_at"]) - time) > SKEW_US,
        }
    )
    rows = measured.group_by([*BUCKET, "window"], use_threads=False).aggregate(
        [
            ("rate", "count"),
            ("rate", "mean"),
            ("ratio", "mean"),
            ("throttle", "mean"),
            ("full", "any"),
            ("throttled", "any"),
            ("limit", "last"),  # skips NULL
            ("known_limit", "count"),
            ("known_limit", "min"),
            ("known_limit", "max"),
            ("known_limit", "last"),
            ("negative", "any"),
            ("skewed", "any"),
        ]
    )
    last = floats(rows["known_limit_last"])
    low, high = floats(rows["known_limit_min"]), floats(rows["known_limit_max"])
    throttled = _bools(rows["throttled_any"])
    removed = last < 0
    status = np.select(
        [
            _bools(rows["skewed_any"]),
            _bools(rows["negative_any"]),
            removed & ((high >= 0) | throttled),
            low != high,
            last == 0,
            floats(rows["rate_count"]) == 0,
            removed,
        ],
        ["clock_skew", "negative_rate", "limit_removed", "limit_changed", "zero_limit", "no_rate", "unlimited"],
        "ok",
    )
    return usage_rows(
        rows,
        micros(rows["window"]),
        window_seconds,
        samples=micros(rows["known_limit_count"]),
        rate=floats(rows["rate_mean"]),
        ratio=floats(rows["ratio_mean"]),
        limit=floats(rows["limit_last"]),
        full=_bools(rows["full_any"]),
        throttle_ms=floats(rows["throttle_mean"]),
        throttled=throttled,
        source="broker",
        status=status,
    )


def usage_rows(
    buckets: pa.Table,
    window: Int64s,
    window_seconds: int,
    *,
    samples: Int64s,
    rate: Doubles,
    ratio: Doubles,
    limit: Doubles,
    full: Bools,
    throttle_ms: Doubles,
    throttled: Bools,
    source: str,
    status: npt.NDArray[np.str_],
) -> pa.Table:
    """Rows of `USAGE`. NaN means NULL, `window` is its start in microseconds, `full` forces 100 percent."""
    seconds = np.full(len(window), float(window_seconds))
    with np.errstate(over="ignore"):
        used_seconds = ratio * seconds
    used_percent = np.where(full, 100.0, 100.0 * np.minimum(ratio, 1.0))  # Q2
    columns = {
        **{name: buckets[name] for name in BUCKET},
        "window_start": window,
        "window_end": window + window_seconds * 1_000_000,
        "window_seconds": np.full(len(window), window_seconds),
        "samples": samples,
        "observed_rate": _nulls(rate),
        "quota_limit": _nulls(limit),
        "used_percent": _nulls(used_percent),
        "usage_ratio": _nulls(ratio),
        "throttle_ms": _nulls(throttle_ms),
        # In units of the limit, so that it is right for a limit that changed within the window too.
        "delay_s": _nulls(delay_seconds(used_seconds, seconds, np.ones(len(window)))),
        "throttled": throttled,
        "source": np.full(len(window), source),
        "status": status.astype(str),
    }
    return pa.table({name: columns[name] for name in USAGE.names}).cast(USAGE)


def usage_ratio(rate: Doubles, limit: Doubles) -> Doubles:
    """Rate / limit (Q3); NaN for a limit of 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = rate / limit
    return np.where(limit > 0, ratio, np.nan)


def floats(column: pa.ChunkedArray) -> Doubles:
    """Numbers with NULL and whatever is not finite as NaN."""
    values: Doubles = pc.cast(column, pa.float64()).to_numpy()
    return np.where(np.isfinite(values), values, np.nan)


def _nulls(values: Doubles) -> pa.Array:
    return pa.array(values, mask=~np.isfinite(values))


def _bools(column: pa.ChunkedArray) -> Bools:
    values: Bools = column.to_numpy().astype(bool)
    return values


def micros(column: pa.ChunkedArray) -> Int64s:
    values: Int64s = pc.cast(column, pa.int64()).to_numpy()
    return values
