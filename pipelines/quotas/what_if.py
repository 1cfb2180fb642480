"""What a proposed quota would have done to the load that a lake has recorded: by `udfs.quotas.what_if`."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.pipelines.quotas.recorded import (
    BEFORE_S,
    Entity,
    Proposal,
    Recorded,
    nothing_recorded,
    rates_of_entities,
    recorded_of,
)
from kafka_telemetry_lake.udfs.errors import CannotRunError
from kafka_telemetry_lake.udfs.kernels.arrays import Doubles
from kafka_telemetry_lake.udfs.quotas.what_if import replay, smallest_limits
from kafka_telemetry_lake.udfs.rows import TIMESTAMP

CELLS = 4_000_000  # rates in memory at once, 8 bytes each
MOST_STEPPED = 20  # entities with `steps`
ANSWER = pa.schema(
    [
        ("cluster_id", pa.string()),
        ("broker_id", pa.int32()),
        ("user", pa.string()),
        ("client_id", pa.string()),
        ("quota_limit", pa.float64()),
        ("mean_rate", pa.float64()),
        ("peak_rate", pa.float64()),
        ("used_percent", pa.float64()),
        ("throttled_percent", pa.float64()),
        ("throttled_s", pa.float64()),
        ("longest_wait_s", pa.float64()),
        ("first_throttled", TIMESTAMP),
        ("last_throttled", TIMESTAMP),
        ("recorded_s", pa.int64()),
        ("source", pa.string()),
        ("status", pa.string()),
    ]
)
STEPS = pa.schema(
    [
        ("cluster_id", pa.string()),
        ("broker_id", pa.int32()),
        ("user", pa.string()),
        ("client_id", pa.string()),
        ("at", TIMESTAMP),
        ("ratio_percent", pa.float64()),
    ]
)
KNOWN_SHARE = 0.9  # of the time; with less recorded a remark says so


class Prediction(NamedTuple):
    """What a proposal would have done."""

    rows: pa.Table
    """schema `ANSWER`, the most throttled first"""
    together: int
    """recorded entities left out, as brokers counted those together that the proposal would separate"""
    steps: pa.Table = STEPS.empty_table()
    """schema `STEPS`, of the first `MOST_STEPPED` rows: the greatest recorded rate of each step by the limit, in
    percent; above 100 something waits"""


def what_if(
    lake: str,
    proposal: Proposal,
    start: datetime,
    end: datetime,
    step_s: int = 0,
    is_ended: Callable[[], bool] = lambda: False,
) -> Prediction:
    """What the proposal would have done between two times.

    A row is what a broker would have counted as one (Q17). The other quotas are those in force at the end. `status`:
    ``throttled_then``: it was throttled while it was recorded, so it may have wanted more than its rates say;
    ``gaps``: seconds between samples that are far apart are left out, they aren't in `recorded_s`.

    Samples are read one entity after the other, and `CELLS` rates are in memory at once.

    Args:
        step_s: of `steps`, seconds; 0: none.
        is_ended: nobody waits for the answer any more.

    Raises:
        NothingRecordedError, CannotRunError: as of `recorded_of`.
    """
    seconds = int((end - start).total_seconds())
    recorded = recorded_of(lake, proposal, start, end)
    rows: list[dict[str, Any]] = []
    first: list[tuple[dict[str, Any], pa.Table]] = []
    size = max(1, CELLS // (BEFORE_S + seconds))
    counted = rates_of_entities(lake, proposal, recorded, start, end)
    while some := list(itertools.islice(counted, size)):
        if is_ended():
            raise CannotRunError("nobody waits for the answer any more")
        found = list(_rows(some, recorded, proposal, start))
        rows += [row for row, _ in found]
        if step_s:
            stepped = (
                (row, _steps(row, 100 * rates / row["quota_limit"], start, step_s))
                for row, rates in heapq.nsmallest(MOST_STEPPED, found, lambda each: _place(each[0]))
            )
            first = heapq.nsmallest(MOST_STEPPED, [*first, *stepped], lambda each: _place(each[0]))
    if not rows:
        raise nothing_recorded(proposal, start, end)
    rows.sort(key=_place)
    steps = [STEPS.empty_table(), *(steps for _, steps in first)]
    return Prediction(pa.Table.from_pylist(rows, ANSWER), recorded.together, pa.concat_tables(steps))


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The most throttled first."""
    broker_id = row["broker_id"]
    names = row["cluster_id"] or "", row["user"], row["client_id"]
    return -row["throttled_percent"], -row["used_percent"], *names, -1 if broker_id is None else broker_id


def remarks(predicted: Prediction, start: datetime, end: datetime) -> Iterator[str]:
    """What isn't known of a prediction between two times, each a sentence."""
    rows, seconds = predicted.rows.to_pylist(), (end - start).total_seconds()
    if predicted.together:
        yield f"{predicted.together:,} more were recorded together with others, which this quota would separate"
    short = [row["recorded_s"] for row in rows if row["recorded_s"] < KNOWN_SHARE * seconds]
    if short:
        yield (
            f"{len(short):,} of {len(rows):,} weren't recorded for the whole time, one for {min(short):,} of "
            f"{seconds:,.0f} s: what is missing is left out, not interpolated"
        )
    if estimated := sum(row["source"] != "broker" for row in rows):
        yield (
            f"{estimated:,} of {len(rows):,} have no samples of brokers: they are estimated from byte counters that "
            "clients pushed, so bursts within a push interval aren't seen"
        )
    if throttled := sum(row["status"] == "throttled_then" for row in rows):
        yield (
            f"{throttled:,} of {len(rows):,} were throttled while they were recorded: they may have wanted more than "
            "their rates say"
        )


def _rows(
    entities: list[tuple[Entity, Doubles]],
    recorded: Recorded,
    proposal: Proposal,
    start: datetime,
) -> Iterator[tuple[dict[str, Any], Doubles]]:
    """The row of each entity of which anything was recorded after the start, and its rates from then on."""
    rates = np.array([each for _, each in entities])
    share = proposal.throttled_percent / 100
    # A limit of bytes is a whole number.
    whole = np.ceil if proposal.quota_type != "request" else np.positive
    limits = (
        whole(smallest_limits(rates, share, BEFORE_S))
        if proposal.limit is None
        else np.full(len(entities), proposal.limit)
    )
    replayed = replay(rates, limits, BEFORE_S)
    for number, (entity, _) in enumerate(entities):
        asked = rates[number, BEFORE_S:]
        known = np.flatnonzero(~np.isnan(asked))
        if not len(known):
            continue
        first, last = int(replayed.first[number]), int(replayed.last[number])
        gaps = known[-1] - known[0] + 1 > len(known)
        row = {
            **entity._asdict(),
            "quota_limit": float(limits[number]),
            "mean_rate": float(replayed.mean[number]),
            "peak_rate": float(np.nanmax(asked)),
            "used_percent": 100 * float(replayed.used[number]),
            "throttled_percent": 100 * float(replayed.throttled_s[number]) / len(known),
            "throttled_s": float(replayed.throttled_s[number]),
            "longest_wait_s": float(replayed.longest_wait_s[number]),
            "first_throttled": None if first < 0 else start + timedelta(seconds=first),
            "last_throttled": None if last < 0 else start + timedelta(seconds=last + 1),
            "recorded_s": len(known),
            "source": ", ".join(sorted(recorded.sources[entity])),
            "status": "throttled_then" if entity in recorded.throttled else "gaps" if gaps else "ok",
        }
        yield row, asked


def _steps(row: Mapping[str, Any], ratio: Doubles, start: datetime, step_s: int) -> pa.Table:
    """The greatest of each step that has any."""
    padded = np.append(ratio, np.full(-len(ratio) % step_s, np.nan)).reshape(-1, step_s)
    known = np.flatnonzero(~np.isnan(padded).all(axis=1))
    at = [start + timedelta(seconds=step_s * step) for step in known.tolist()]
    columns = [pa.array([row[name]] * len(known), STEPS.field(name).type) for name in Entity._fields]
    return pa.table([*columns, pa.array(at, TIMESTAMP), np.nanmax(padded[known], axis=1)], schema=STEPS)
