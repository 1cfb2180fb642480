"""The operator's heart: the pushes of one shard in, rows for the tables and the shard's next state out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from udfs import otlp_reference, rows
from udfs.compression import decompress
from udfs.decoded import Decoded, Kind
from udfs.identity import AttributeSets, client_keys, mix, normalise, text_hashes
from udfs.state import ShardState


@dataclass(frozen=True)
class Limits:
    """Bounds of a push and of the state."""

    max_decompressed_bytes: int = 16 << 20
    max_points_per_push: int = 100_000
    redelivery_window_s: int = 3600
    redelivery_pushes: int = 16
    evict_after_s: int = 86_400
    evict_terminated_after_s: int = 3600
    tombstone_s: int = 30 * 86_400


@dataclass(frozen=True)
class ShardRows:
    """Rows for the tables, with the schemas of `udfs.rows`; text that repeats is dictionary-encoded."""

    metric_points: pa.Table
    quarantine: pa.Table
    push_outcomes: pa.Table
    client_events: pa.Table


PUSH_ORDER = ("source", "cluster_id", "topic", "partition", "offset")


def process(pushes: pa.Table, state: ShardState, limits: Limits = Limits()) -> tuple[ShardRows, ShardState]:  # noqa: B008
    pushes = pushes.combine_chunks().sort_by([(name, "ascending") for name in PUSH_ORDER]).combine_chunks()
    n = pushes.num_rows
    reject = pushes["reject_reason"].to_pylist()
    dropped = pushes["dropped"].to_pylist()
    payload = pushes["payload"]
    reasons: list[str | None] = list(reject)
    details: list[str | None] = pushes["reject_detail"].to_pylist()
    read = np.array([reject[i] is None and dropped[i] is None for i in range(n)], bool)
    for i in range(n):
        if read[i] and not payload[i].is_valid:
            reasons[i], details[i], read[i] = "INVALID_RECORD", "null value", False
    index = np.flatnonzero(read)
    raw = decompress(
        payload.take(pa.array(index)).combine_chunks(),
        pushes["compression_type"].take(pa.array(index)).combine_chunks(),
        limits.max_decompressed_bytes,
    )
    blobs = raw.data.to_pylist()
    decoded = otlp_reference.decode(raw.data, limits.max_points_per_push)
    errors = decoded.payloads["error"].to_pylist()
    for j, i in enumerate(index):
        if raw.reason[j].is_valid:
            reasons[i], details[i] = raw.reason[j].as_py(), raw.detail[j].as_py()
        elif errors[j] is not None:
            reasons[i], details[i] = "INVALID_RECORD", errors[j]
    return _rows(pushes, index, blobs, decoded, reasons, details, dropped), state


def _rows(pushes, index, blobs, decoded: Decoded, reasons, details, dropped) -> ShardRows:  # type: ignore[no-untyped-def]
    points = decoded.points.combine_chunks()
    push = index[points["payload"].to_numpy()]
    sets: AttributeSets = normalise(decoded.attribute_sets)
    keys = _dictionary(pushes)
    clients = client_keys(keys["cluster_id"], keys["client_instance_id"]).view(np.uint64)
    metric = points["metric"].combine_chunks()
    attributes = points["attributes"].to_numpy()
    metric_hashes = text_hashes(metric.dictionary)
    series = mix(
        mix(clients[push], metric_hashes[metric.indices.to_numpy(zero_copy_only=False)]), sets.hashes[attributes]
    ).view(np.int64)
    kind = points["kind"].to_numpy()
    temporality = points["temporality"].to_numpy()
    status = np.where(temporality == 1, 0, np.where(temporality == 2, 1, 2))
    size = len(push)
    columns: dict[str, pa.Array] = {name: array.take(pa.array(push)) for name, array in keys.items()}
    kinds = pa.array([item.name.lower() for item in Kind])
    columns |= {
        "series_id": pa.array(series),
        "metric": metric,
        "attributes": sets.maps.take(points["attributes"].combine_chunks()),
        "scope": points["scope"].combine_chunks(),
        "kind": pa.DictionaryArray.from_arrays(pa.array(kind.astype(np.int32)), kinds),
        "temporality": pa.DictionaryArray.from_arrays(
            pa.array(temporality.astype(np.int32) - 1, mask=temporality == 0), pa.array(["delta", "cumulative"])
        ),
        "is_monotonic": points["is_monotonic"].combine_chunks(),
        "start_time": _micros(points["start_ns"]),
        "time": _micros(points["time_ns"]),
        "value": points["value"].combine_chunks(),
        "value_int": points["value_int"].combine_chunks(),
        "delta": pa.array(points["value"].to_numpy(), mask=temporality != 1),
        "delta_status": pa.DictionaryArray.from_arrays(
            pa.array(status.astype(np.int32)), pa.array(["delta", "baseline", "value"])
        ),
    }
    metric_points = _conform(columns, rows.METRIC_POINTS, size)
    bad = [i for i, reason in enumerate(reasons) if reason is not None]
    chosen = pushes.take(pa.array(bad, pa.int64()))
    quarantine = _conform(
        {name: chosen[name].combine_chunks() for name in rows.QUARANTINE.names if name in chosen.column_names}
        | {
            "scope": pa.array(["push"] * len(bad), pa.string()),
            "reason": pa.array([reasons[i] for i in bad], pa.string()),
            "detail": pa.array([details[i] for i in bad], pa.string()),
        },
        rows.QUARANTINE,
        len(bad),
    )
    counts = np.bincount(push, minlength=pushes.num_rows)
    digests: list[int | None] = [None] * pushes.num_rows
    sizes: list[int | None] = [None] * pushes.num_rows
    for j, i in enumerate(index):
        if blobs[j] is not None:
            digests[i] = xxhash.xxh3_64_intdigest(blobs[j]) - (1 << 63)
            sizes[i] = len(blobs[j])
    outcome = [
        "quarantined" if reasons[i] is not None else "dropped" if dropped[i] is not None else "points" if counts[i] else "heartbeat"
        for i in range(pushes.num_rows)
    ]
    push_outcomes = _conform(
        dict(keys)
        | {
            "terminating": pushes["terminating"].combine_chunks(),
            "outcome": pa.array(outcome, pa.string()),
            "points": pa.array(counts.astype(np.int32)),
            "quarantined_points": pa.array(np.zeros(pushes.num_rows, np.int32)),
            "decompressed_bytes": pa.array(sizes, pa.int64()),
            "digest": pa.array(digests, pa.int64()),
        },
        rows.PUSH_OUTCOMES,
        pushes.num_rows,
    )
    return ShardRows(metric_points, quarantine, push_outcomes, _conform({}, rows.CLIENT_EVENTS, 0))


def _dictionary(pushes: pa.Table) -> dict[str, pa.Array]:
    columns = {name: pushes[name].combine_chunks() for name in [*rows.METRIC_POINTS.names[:8]]}
    return {name: array.dictionary_encode() if pa.types.is_string(array.type) else array for name, array in columns.items()}


def _micros(nanos: pa.ChunkedArray) -> pa.Array:
    values = nanos.to_numpy()
    bad = (values == 0) | (values > np.uint64(2**62))
    return pa.array((values // np.uint64(1000)).astype(np.int64), mask=bad).cast(rows.TIMESTAMP)


def _conform(columns: dict[str, pa.Array], schema: pa.Schema, size: int) -> pa.Table:
    arrays = [columns[f.name] if f.name in columns else pa.nulls(size, f.type) for f in schema]
    fields = [pa.field(f.name, a.type, metadata=f.metadata) for f, a in zip(schema, arrays, strict=True)]
    return pa.table(arrays, pa.schema(fields))
