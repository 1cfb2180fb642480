"""Builds the rows for whole pushes: tables push_outcomes and client_events."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs import rows
from kafka_telemetry_lake.udfs.conversion.point_rows import (
    INCREMENT_STATUSES,
    STATUSES,
    TEMPORALITIES,
    Batch,
    coded,
    masked,
    micros,
    of_pushes,
    table,
)
from kafka_telemetry_lake.udfs.conversion.redelivery import BOTH, Verdict
from kafka_telemetry_lake.udfs.conversion.statuses import Status
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, one_chunk
from kafka_telemetry_lake.udfs.subscriptions.matching import client_attributes_ids

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
            yield (i, "too_late", _interval(times.first_time[i], times.last_time[i]) | {"points": str(times.points[i])})


def _interval(start: int, end: int) -> dict[str, str]:
    return {"start": _text(start), "end": _text(end), "ms": str((int(end) - int(start)) // 1_000_000)}


def _text(nanos: int) -> str:
    seconds, rest = divmod(int(nanos), 1_000_000_000)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{rest // 1000:06d}Z"


def _without_reread(outcomes: pa.Table, batch: Batch) -> pa.Table:
    reread = batch.verdicts.verdict == Verdict.REREAD
    return outcomes.filter(pa.array(~reread)) if reread.any() else outcomes


PREFIX = "org.apache.kafka."


class ConnectionSignal(IntEnum):
    """The metrics that are read, under the name of any client kind (producer, consumer, admin, ...)."""

    REQUESTS = 1
    RESPONSES = 2
    CREATED = 3
    CLOSED = 4
    METADATA_AGE = 5
    LATENCY = 6


SUFFIXES = {
    ConnectionSignal.REQUESTS: ".node.request.total",
    ConnectionSignal.RESPONSES: ".node.response.total",
    ConnectionSignal.CREATED: ".connection.creation.total",
    ConnectionSignal.CLOSED: ".connection.close.total",
    ConnectionSignal.METADATA_AGE: ".metadata.age",
    ConnectionSignal.LATENCY: ".node.request.latency.max",
}


def push_signals(batch: Batch) -> dict[str, pa.Array]:
    """Columns of `rows.CONNECTION_SIGNALS`, one row per push; NULL where the push has no such metric.

    The few numbers from which rebootstraps and dead data paths are detected. They are computed here because the points
    are in memory; reading them back from `metric_points` would cost a tenth of the job.
    """
    points, converted, size = batch.points, batch.converted, batch.pushes.num_rows
    names = one_chunk(batch.payloads.decoded.points["metric"]).dictionary
    of_name = np.zeros(len(names), np.int8)
    of_kafka = pc.starts_with(names, PREFIX)
    for kind, suffix in SUFFIXES.items():
        of_name[pc.and_(of_kafka, pc.ends_with(names, suffix)).to_numpy(zero_copy_only=False)] = kind
    found = np.flatnonzero(of_name[points.metric])
    signal = of_name[points.metric[found]]
    push, status = points.push[found], converted.status[found]
    roles = pc.map_lookup(batch.attributes.maps, "node_role", "first")
    is_bootstrap = pc.fill_null(pc.equal(roles, "bootstrap"), False).to_numpy(zero_copy_only=False)
    bootstrap = is_bootstrap[points.attributes[found]]
    counted, has_row = status <= INCREMENT_STATUSES, status < Status.NONE
    delta, value = converted.delta[found], points.value[found]

    def has(chosen: Bools) -> Bools:
        return np.bincount(push[chosen], minlength=size) > 0

    def increments(chosen: Bools) -> pa.Array:
        chosen = chosen & counted
        total = np.bincount(push[chosen], delta[chosen], size)
        return masked(np.rint(total).astype(np.int64), has(chosen))

    latency = (signal == ConnectionSignal.LATENCY) & has_row

    def nodes(chosen: Bools) -> pa.Array:
        counts = np.bincount(push[latency & chosen], minlength=size)
        return masked(counts.astype(np.int32), has(latency))

    aged = (signal == ConnectionSignal.METADATA_AGE) & (status == Status.VALUE) & np.isfinite(value)
    requests = np.equal(signal, ConnectionSignal.REQUESTS)
    responses = np.equal(signal, ConnectionSignal.RESPONSES)
    created = np.equal(signal, ConnectionSignal.CREATED)
    closed = np.equal(signal, ConnectionSignal.CLOSED)
    return {
        "client_port": one_chunk(batch.pushes["client_port"]),
        "bootstrap_requests": increments(requests & bootstrap),
        "broker_requests": increments(requests & ~bootstrap),
        "broker_responses": increments(responses & ~bootstrap),
        "connections_created": increments(created),
        "connections_closed": increments(closed),
        "bootstrap_nodes": nodes(bootstrap),
        "broker_nodes": nodes(~bootstrap),
        "answering_nodes": nodes(~bootstrap & (value > 0)),
        "metadata_age_s": masked(np.bincount(push[aged], value[aged], size).astype(np.float64), has(aged)),
    }
