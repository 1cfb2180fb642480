"""What becomes of each push, and what it tells about its client: rows of push_outcomes, quarantine, client_events."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from udfs import rows
from udfs.client_attributes import client_attributes_ids
from udfs.conversion import Status
from udfs.points import Reason
from udfs.push_signals import push_signals
from udfs.redelivery import BOTH, Verdict
from udfs.shard_rows import (
    STATUSES,
    TEMPORALITIES,
    Batch,
    coded,
    masked,
    micros,
    of_pushes,
    table,
)

OUTCOMES = pa.array(["points", "heartbeat", "duplicate", "too_late", "quarantined", "dropped"])
POINTS, HEARTBEAT, DUPLICATE, TOO_LATE, QUARANTINED, DROPPED = range(6)


def push_outcomes(batch: Batch) -> pa.Table:
    """Rows of push_outcomes, one per push."""
    pushes, payloads, times, verdicts = batch.pushes, batch.payloads, batch.times, batch.verdicts
    decoded = payloads.decoded.payloads
    outcome = np.where(decoded["points"].to_numpy() > 0, POINTS, HEARTBEAT)
    outcome[verdicts.verdict == Verdict.DUPLICATE] = DUPLICATE
    outcome[verdicts.verdict == Verdict.TOO_LATE] = TOO_LATE
    outcome[pc.is_valid(pushes["dropped"]).to_numpy()] = DROPPED
    outcome[payloads.reason.is_valid().to_numpy(zero_copy_only=False)] = QUARANTINED
    resource = decoded["resource"].to_numpy()
    decompressed = payloads.size + payloads.read > 0
    columns = batch.keys | {
        "client_attributes_id": pa.array(client_attributes_ids(pushes)),
        "terminating": pushes["terminating"].combine_chunks(),
        "outcome": coded(outcome, OUTCOMES),
        "points": pa.array(times.points.astype(np.int32)),
        "quarantined_points": pa.array((times.quarantined + batch.capped).astype(np.int32)),
        "statuses": _statuses(batch),
        "labels": batch.attributes.maps.take(pa.array(resource, mask=resource < 0)),
        "temporality": coded(times.temporalities - 1, TEMPORALITIES, times.temporalities > 0),
        "first_start": micros(times.first_start),
        "first_time": micros(times.first_time),
        "last_time": micros(times.last_time),
        "lost_start": micros(verdicts.lost_start),
        "lost_end": micros(verdicts.lost_end),
        "decompressed_bytes": masked(payloads.size, decompressed),
        "digest": masked(payloads.digest, decompressed),
        **push_signals(batch),
    }
    return _without_reread(table(columns, rows.PUSH_OUTCOMES, pushes.num_rows), batch)


def _statuses(batch: Batch) -> pa.MapArray:
    size = len(STATUSES)
    kept = batch.converted.status != Status.NONE
    cells = batch.points.push[kept] * size + batch.converted.status[kept]
    counts = np.bincount(cells, minlength=batch.pushes.num_rows * size)
    filled = np.flatnonzero(counts)
    offsets = np.searchsorted(filled, np.arange(batch.pushes.num_rows + 1) * size)
    keys = STATUSES.take(pa.array(filled % size))
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, pa.array(counts[filled].astype(np.int32)))


def quarantined_pushes(batch: Batch) -> pa.Table:
    """Rows of quarantine for whole pushes, and one for each push with more points, or more series, than the limit."""
    rejected = np.flatnonzero(batch.payloads.reason.is_valid().to_numpy(zero_copy_only=False))
    fresh = batch.verdicts.verdict != Verdict.REREAD
    capped = np.flatnonzero(batch.capped & fresh)
    beyond = np.bincount(batch.points.push[batch.points.reason == Reason.TOO_MANY_SERIES], minlength=len(fresh))
    full = np.flatnonzero((beyond > 0) & fresh)
    index = pa.array(rejected)
    partly = len(capped) + len(full)
    columns = of_pushes(batch.keys, np.concatenate([rejected, capped, full])) | {
        "scope": pa.array(["push"] * len(rejected) + ["point"] * partly, pa.string()),
        "reason": pa.concat_arrays(
            [
                batch.payloads.reason.take(index),
                pa.array([Reason.TOO_MANY_POINTS.name] * len(capped), pa.string()),
                pa.array([Reason.TOO_MANY_SERIES.name] * len(full), pa.string()),
            ]
        ),
        "detail": pa.concat_arrays(
            [
                batch.payloads.detail.take(index),
                pa.array(["the points beyond the limit of a push aren't converted"] * len(capped), pa.string()),
                pa.array([f"{n} points of series beyond the limit of a client" for n in beyond[full]], pa.string()),
            ]
        ),
        "payload": pa.concat_arrays(
            [batch.pushes["payload"].take(index).combine_chunks(), pa.nulls(partly, pa.binary())]
        ),
    }
    return table(columns, rows.QUARANTINE, len(rejected) + partly)


def client_events(batch: Batch) -> pa.Table:
    """Rows of client_events, in push order; `at` is when the push landed, which no client clock can move."""
    found = list(_events(batch))
    push = np.array([index for index, _, _ in found], np.int64)
    columns = of_pushes(batch.keys, push) | {
        "at": batch.keys["landed_at"].take(pa.array(push)),
        "event": pa.array([event for _, event, _ in found], pa.string()),
        "detail": pa.array([list(detail.items()) for _, _, detail in found], rows.TEXT_MAP),
    }
    return table(columns, rows.CLIENT_EVENTS, len(found))


def _events(batch: Batch) -> Iterator[tuple[int, str, dict[str, str]]]:
    verdicts, times = batch.verdicts, batch.times
    late = verdicts.verdict == Verdict.TOO_LATE
    lost, found = verdicts.lost_end != 0, verdicts.found_end != 0
    for i in np.flatnonzero(verdicts.flipped | lost | found | late).tolist():
        if verdicts.flipped[i]:
            now = int(times.temporalities[i])
            names = {"from": TEMPORALITIES[BOTH - now - 1].as_py(), "to": TEMPORALITIES[now - 1].as_py()}
            yield i, "temporality_flip", names
        if lost[i]:
            yield i, "lost_interval", _interval(verdicts.lost_start[i], verdicts.lost_end[i])
        if found[i]:
            yield i, "lost_interval_closed", _interval(verdicts.found_start[i], verdicts.found_end[i])
        if late[i]:
            yield (
                i,
                "too_late",
                _interval(times.first_time[i], times.last_time[i]) | {"points": str(times.points[i])},
            )


def _interval(start: int, end: int) -> dict[str, str]:
    return {"start": _text(start), "end": _text(end), "ms": str((int(end) - int(start)) // 1_000_000)}


def _text(nanos: int) -> str:
    seconds, rest = divmod(int(nanos), 1_000_000_000)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{rest // 1000:06d}Z"


def _without_reread(outcomes: pa.Table, batch: Batch) -> pa.Table:
    reread = batch.verdicts.verdict == Verdict.REREAD
    return outcomes.filter(pa.array(~reread)) if reread.any() else outcomes
