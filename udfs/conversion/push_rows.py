"""Builds the rows for whole pushes: tables push_outcomes, quarantine and client_events."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs import rows
from kafka_telemetry_lake.udfs.conversion.point_rows import (
    STATUSES,
    TEMPORALITIES,
    Batch,
    coded,
    masked,
    micros,
    of_pushes,
    table,
)
from kafka_telemetry_lake.udfs.conversion.points import Reason
from kafka_telemetry_lake.udfs.conversion.principals import THROTTLED
from kafka_telemetry_lake.udfs.conversion.push_signals import push_signals
from kafka_telemetry_lake.udfs.conversion.redelivery import BOTH, Verdict
from kafka_telemetry_lake.udfs.conversion.statuses import Status
from kafka_telemetry_lake.udfs.otlp.decoded import DICTIONARY
from kafka_telemetry_lake.udfs.subscriptions.client_attributes import client_attributes_ids

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
        "quarantined_points": pa.array((times.quarantined + batch.untimed + batch.beyond).astype(np.int32)),
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
    has_row = batch.converted.status != Status.NONE
    cells = batch.points.push[has_row] * size + batch.converted.status[has_row]
    counts = np.bincount(cells, minlength=batch.pushes.num_rows * size)
    filled = np.flatnonzero(counts)
    offsets = np.searchsorted(filled, np.arange(batch.pushes.num_rows + 1) * size)
    keys = STATUSES.take(pa.array(filled % size))
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, pa.array(counts[filled].astype(np.int32)))


def quarantined_pushes(batch: Batch) -> pa.Table:
    """Rows of quarantine for whole pushes, and one for each push with more points, or more series, than a limit."""
    rejected = np.flatnonzero(batch.payloads.reason.is_valid().to_numpy(zero_copy_only=False))
    fresh = batch.verdicts.verdict != Verdict.REREAD
    capped = np.flatnonzero((batch.beyond > 0) & fresh)
    push = [rejected, capped]
    reasons = [Reason.TOO_MANY_POINTS.name] * len(capped)
    details = [f"{n} points beyond the limit of a push" for n in batch.beyond[capped]]
    for reason, whose in ((Reason.TOO_MANY_SERIES, "client"), (Reason.TOO_MANY_SERIES_OF_PRINCIPAL, "principal")):
        beyond = np.bincount(batch.points.push[batch.points.reason == reason], minlength=len(fresh))
        full = np.flatnonzero((beyond > 0) & fresh)
        push.append(full)
        reasons += [reason.name] * len(full)
        details += [f"{n} points of series beyond the limit of a {whose}" for n in beyond[full]]
    index = pa.array(rejected)
    reason_of = batch.payloads.reason.take(index)
    payload = batch.pushes["payload"].take(index).combine_chunks()
    # The payload of a throttled push is stored in table pushes only.
    payload = pc.if_else(pc.equal(reason_of, THROTTLED), None, payload)
    columns = of_pushes(batch.keys, np.concatenate(push)) | {
        "scope": pa.array(["push"] * len(rejected) + ["point"] * len(reasons), pa.string()).dictionary_encode(),
        "reason": pa.concat_arrays([reason_of, pa.array(reasons, pa.string())]).dictionary_encode(),
        "metric": pa.nulls(len(rejected) + len(reasons), DICTIONARY),
        "detail": pa.concat_arrays([batch.payloads.detail.take(index), pa.array(details, pa.string())]),
        "payload": pa.concat_arrays([payload, pa.nulls(len(reasons), pa.binary())]),
    }
    return table(columns, rows.QUARANTINE, len(rejected) + len(reasons))


def client_events(batch: Batch) -> pa.Table:
    """Rows of client_events, in push order; `at` is when the push landed, which no client's clock can change."""
    events = list(_events(batch))
    push = np.array([index for index, _, _ in events], np.int64)
    columns = of_pushes(batch.keys, push) | {
        "at": batch.keys["landed_at"].take(pa.array(push)),
        "event": pa.array([event for _, event, _ in events], pa.string()),
        "detail": pa.array([list(detail.items()) for _, _, detail in events], rows.TEXT_MAP),
    }
    return table(columns, rows.CLIENT_EVENTS, len(events))


def _events(batch: Batch) -> Iterator[tuple[int, str, dict[str, str]]]:
    verdicts, times = batch.verdicts, batch.times
    late = verdicts.verdict == Verdict.TOO_LATE
    lost, filled = verdicts.lost_end != 0, verdicts.filled_end != 0
    for i in np.flatnonzero(verdicts.flipped | lost | filled | late).tolist():
        if verdicts.flipped[i]:
            now = int(times.temporalities[i])
            names = {"from": TEMPORALITIES[BOTH - now - 1].as_py(), "to": TEMPORALITIES[now - 1].as_py()}
            yield i, "temporality_flip", names
        if lost[i]:
            yield i, "lost_interval", _interval(verdicts.lost_start[i], verdicts.lost_end[i])
        if filled[i]:
            yield i, "lost_interval_closed", _interval(verdicts.filled_start[i], verdicts.filled_end[i])
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
