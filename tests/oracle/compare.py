"""The oracle's verdicts in the columns of the engine's tables, and both as multisets that can be compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from tests.oracle.model import Distribution, Judged
from tests.oracle.oracle import Batch
from tests.oracle.points import TEMPORAL, normalise_attributes
from tests.oracle.pushes import PushVerdict
from tests.oracle.totals import finite
from tests.oracle.wire import EPOCH

Row = dict[str, Any]
KEY = ("source", "cluster_id", "topic", "partition", "offset")
EVENTS = ("temporality_flip", "lost_interval", "lost_interval_closed", "too_late")
DISTRIBUTION = (
    "count", "sum", "min", "max", "explicit_bounds", "bucket_counts", "scale", "zero_count", "zero_threshold",
    "positive_offset", "positive_counts", "negative_offset", "negative_counts", "quantiles",
)  # fmt: skip
OUTCOME = (  # other columns of push_outcomes have tests of their own
    *KEY, "client_instance_id", "terminating", "outcome", "points", "quarantined_points", "statuses", "labels",
    "temporality", "first_start", "first_time", "last_time", "lost_start", "lost_end", "decompressed_bytes",
)  # fmt: skip
LARGEST, SMALLEST = 2**63 - 1, -(2**63)


def point_row(judged: Judged) -> Row:
    point = judged.point
    recorded = judged.point.flags & 1 == 0
    is_int = isinstance(point.number, int)
    value = finite(float(point.number)) if point.number is not None and recorded else None
    return {
        **dict(zip(KEY, judged.push.key, strict=True)),
        "landed_at": judged.push.landed_at_us,
        "client_instance_id": judged.push.client_instance_id,
        "client_id": judged.push.client_id,
        "metric": point.metric,
        "attributes": judged.attributes,
        "scope": point.scope,
        "kind": point.kind,
        "temporality": {1: "delta", 2: "cumulative"}.get(point.temporality) if point.kind in TEMPORAL else None,
        "is_monotonic": (point.kind != "sum" or point.is_monotonic) if point.kind in TEMPORAL else None,
        "start_time": point.start_ns // 1000 or None,
        "time": point.time_ns // 1000 or None,
        "value": value,
        "value_int": point.number if is_int and recorded else None,
        "delta_status": judged.status,
        "flags": sorted(judged.flags) or None,
        **increment_columns(judged),
        **distribution_columns(point.kind, point.distribution if recorded else None),
    }


def increment_columns(judged: Judged) -> Row:
    increment = judged.increment
    number = increment.number
    exact = isinstance(number, int) and SMALLEST <= number <= LARGEST
    return {
        "delta_start": None if increment.start_ns is None else increment.start_ns // 1000,
        "delta": None if number is None else float(number),
        "delta_int": number if exact else None,
        "count_delta": increment.count,
        "sum_delta": increment.sum,
        "bucket_counts_delta": increment.buckets,
        "positive_counts_delta": increment.positive,
        "negative_counts_delta": increment.negative,
        "zero_count_delta": increment.zero_count,
    }


def distribution_columns(kind: str, d: Distribution | None) -> Row:
    row: Row = dict.fromkeys(DISTRIBUTION)
    if d is None:
        return row
    row.update(count=d.count, sum=finite(d.sum))
    if kind == "summary":
        row["sum"] = finite(d.sum or 0.0)
        return row | {"quantiles": {quantile: finite(value) for quantile, value in d.quantiles}}
    row.update(min=finite(d.min), max=finite(d.max))
    if kind == "histogram":
        return row | {"explicit_bounds": d.bounds, "bucket_counts": d.buckets}
    return row | {
        "scale": d.scale,
        "zero_count": d.zero_count,
        "zero_threshold": d.zero_threshold,
        "positive_offset": d.positive_offset,
        "positive_counts": d.positive,
        "negative_offset": d.negative_offset,
        "negative_counts": d.negative,
    }


def push_row(verdict: PushVerdict) -> Row:
    push = verdict.push
    accepted = verdict.accepted
    return {
        **dict(zip(KEY, push.key, strict=True)),
        "client_instance_id": push.client_instance_id,
        "terminating": push.terminating,
        "outcome": verdict.outcome,
        "points": len(accepted),
        "quarantined_points": len(verdict.points) - len(accepted) + verdict.left_out,
        "statuses": dict(Counter(judged.status for judged in accepted)),
        "labels": normalise_attributes(push.resource)[0],
        "temporality": verdict.temporality,
        "first_start": micros(verdict.first_start),
        "first_time": micros(verdict.first_time),
        "last_time": micros(verdict.last_time),
        "lost_start": micros(verdict.lost[0]) if verdict.lost else None,
        "lost_end": micros(verdict.lost[1]) if verdict.lost else None,
        "decompressed_bytes": len(push.payload),
    }


def micros(nanos: int | None) -> int | None:
    return None if nanos is None else nanos // 1000


def expected(batches: Iterable[Batch]) -> dict[str, Counter[Any]]:
    """The oracle's tables."""
    batches = list(batches)
    points = [judged for batch in batches for judged in batch.points]
    verdicts = [verdict for batch in batches for verdict in batch.pushes]
    return {
        "metric_points": bag(point_row(judged) for judged in points if judged.reason is None),
        "quarantine": Counter((*j.push.key, j.reason, metric(j.reason, j.point.metric)) for j in points if j.reason),
        "push_outcomes": bag(push_row(verdict) for verdict in verdicts),
        "client_events": Counter((*v.push.key, name) for v in verdicts for name, _ in v.events),
    }


def actual(tables: dict[str, list[Row]]) -> dict[str, Counter[Any]]:
    """The engine's tables (as lists of rows) cut to the oracle's columns."""
    points = [
        {k: v for k, v in row.items() if k not in ("series_id", "subscriptions")} for row in tables["metric_points"]
    ]
    outcomes = [{name: row[name] for name in OUTCOME} for row in tables["push_outcomes"]]
    return {
        "metric_points": bag(points),
        "quarantine": Counter(
            (*(row[name] for name in KEY), row["reason"], metric(row["reason"], row["metric"]))
            for row in tables["quarantine"]
        ),
        "push_outcomes": bag(outcomes),
        "client_events": Counter(
            (*(row[name] for name in KEY), row["event"]) for row in tables["client_events"] if row["event"] in EVENTS
        ),
    }


def metric(reason: str | None, name: str | None) -> str | None:
    return None if reason == "TOO_MANY_POINTS" else name


def bag(rows: Iterable[Row]) -> Counter[Any]:
    return Counter(tuple(sorted((name, plain(value, name)) for name, value in row.items())) for row in rows)


MAPS = ("attributes", "labels", "statuses", "quantiles")


def plain(value: Any, name: str = "") -> str:
    """A value as text, equal exactly when the value is: times in us, maps without order, -0.0 as 0.0."""
    if isinstance(value, datetime):
        return repr((value - EPOCH) // timedelta(microseconds=1))
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value + 0.0)
    if name in MAPS:
        return repr(sorted((plain(k), plain(v)) for k, v in dict(value or {}).items()))
    if name == "flags":
        return repr(sorted(value or []))
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(plain(item) for item in value) + "]"
    return repr(value)


def differences(want: dict[str, Counter[Any]], have: dict[str, Counter[Any]]) -> str:
    """Empty when equal; else the first rows that differ, and of each pair the columns."""
    lines: list[str] = []
    for table, rows in want.items():
        missing, extra = list((rows - have[table]).elements()), list((have[table] - rows).elements())
        for row in missing[:5]:
            twin = min(extra, key=lambda other: len(set(row) ^ set(other)), default=None)
            lines.append(f"{table}: oracle {label(row)}")
            lines.append(f"    oracle only: {sorted(set(row) - set(twin or ()), key=str)}")
            lines.append(f"    engine only: {sorted(set(twin or ()) - set(row), key=str)}")
        if not missing:
            lines += [f"{table}: engine only {row}" for row in extra[:5]]
        if missing or extra:
            lines.append(f"{table}: {len(missing)} rows of the oracle and {len(extra)} of the engine differ")
    return "\n".join(lines)


def label(row: tuple[Any, ...]) -> str:
    pairs = [item for item in row if isinstance(item, tuple)]
    names = ("offset", "metric", "delta_status", "outcome", "time", "value", "attributes")
    return " ".join(f"{k}={v}" for k, v in pairs if k in names) or str(row)
