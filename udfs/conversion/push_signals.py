"""Connection metrics of each push: the few numbers from which rebootstraps and dead data paths are detected.

They are computed here because the points are in memory; reading them back from `metric_points` would cost a tenth of
the job.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.conversion.point_rows import INCREMENT_STATUSES, Batch, masked
from kafka_telemetry_lake.udfs.conversion.statuses import Status
from kafka_telemetry_lake.udfs.kernels.arrays import Bools
from kafka_telemetry_lake.udfs.kernels.columns import one_chunk

PREFIX = "org.apache.kafka."


class Signal(IntEnum):
    """The metrics that are read, under the name of any client kind (producer, consumer, admin, ...)."""

    REQUESTS = 1
    RESPONSES = 2
    CREATED = 3
    CLOSED = 4
    METADATA_AGE = 5
    LATENCY = 6


SUFFIXES = {
    Signal.REQUESTS: ".node.request.total",
    Signal.RESPONSES: ".node.response.total",
    Signal.CREATED: ".connection.creation.total",
    Signal.CLOSED: ".connection.close.total",
    Signal.METADATA_AGE: ".metadata.age",
    Signal.LATENCY: ".node.request.latency.max",
}


def push_signals(batch: Batch) -> dict[str, pa.Array]:
    """Columns of `rows.CONNECTION_SIGNALS`, one row per push; NULL where the push has no such metric."""
    points, converted, size = batch.points, batch.converted, batch.pushes.num_rows
    names = one_chunk(batch.payloads.decoded.points["metric"]).dictionary
    of_name = np.zeros(len(names), np.int8)
    of_kafka = pc.starts_with(names, PREFIX)
    for kind, suffix in SUFFIXES.items():
        of_name[pc.and_(of_kafka, pc.ends_with(names, suffix)).to_numpy(zero_copy_only=False)] = kind
    rows = np.flatnonzero(of_name[points.metric])
    signal = of_name[points.metric[rows]]
    push, status = points.push[rows], converted.status[rows]
    roles = pc.map_lookup(batch.attributes.maps, "node_role", "first")
    is_bootstrap = pc.fill_null(pc.equal(roles, "bootstrap"), False).to_numpy(zero_copy_only=False)
    bootstrap = is_bootstrap[points.attributes[rows]]
    counted, has_row = status <= INCREMENT_STATUSES, status < Status.NONE
    delta, value = converted.delta[rows], points.value[rows]

    def has(chosen: Bools) -> Bools:
        return np.bincount(push[chosen], minlength=size) > 0

    def increments(chosen: Bools) -> pa.Array:
        chosen = chosen & counted
        total = np.bincount(push[chosen], delta[chosen], size)
        return masked(np.rint(total).astype(np.int64), has(chosen))

    latency = (signal == Signal.LATENCY) & has_row

    def nodes(chosen: Bools) -> pa.Array:
        counts = np.bincount(push[latency & chosen], minlength=size)
        return masked(counts.astype(np.int32), has(latency))

    aged = (signal == Signal.METADATA_AGE) & (status == Status.VALUE) & np.isfinite(value)
    requests = np.equal(signal, Signal.REQUESTS)
    responses = np.equal(signal, Signal.RESPONSES)
    created = np.equal(signal, Signal.CREATED)
    closed = np.equal(signal, Signal.CLOSED)
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
