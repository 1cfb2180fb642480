"""The operator's heart: the pushes of one shard in, rows for the tables and the shard's next state out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from udfs import numba_cache, rows
from udfs.conversion import convert
from udfs.distributions import find_flaws, read_distributions
from udfs.identity import client_keys, column_hashes, mix, normalise
from udfs.payloads import read_payloads
from udfs.points import push_times, read_points
from udfs.push_rows import client_events, push_outcomes, quarantined_pushes
from udfs.redelivery import Bounds, PushFacts, evictions, judge_pushes
from udfs.shard_rows import PUSH_COLUMNS, Batch, metric_points, quarantined_points
from udfs.state import ClientStates, ShardState

PUSH_ORDER = ("source", "cluster_id", "topic", "partition", "offset")


@dataclass(frozen=True)
class Limits:
    """Bounds of a push and of the state; see D2, D6 and C12 in docs/semantics."""

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


DEFAULT_LIMITS = Limits()


def process(pushes: pa.Table, state: ShardState, limits: Limits = DEFAULT_LIMITS) -> tuple[ShardRows, ShardState]:
    """Decode and convert a shard's pushes.

    A pure function of its arguments: the order of `pushes` doesn't matter, nor the clock.

    Args:
        pushes: schema `rows.PUSHES_IN`; all pushes of a client go to the same shard.
        state: what the batch before returned.
        limits: bounds.
    """
    result, changes = process_changes(pushes, state, limits)
    return result, state.merge(changes)


def process_changes(
    pushes: pa.Table, state: ClientStates, limits: Limits = DEFAULT_LIMITS
) -> tuple[ShardRows, ShardState]:
    """As `process`, with the state of those clients only that the batch has changed, to be merged into `state`."""
    _compile_once()
    return _process(pushes, state, limits)


@cache
def _compile_once() -> None:
    """Compile, or load from the cache, every kernel: one worker of a machine at a time."""
    with numba_cache.exclusive():
        _process(rows.PUSHES_IN.empty_table(), ShardState.empty(), DEFAULT_LIMITS)


def _process(pushes: pa.Table, state: ClientStates, limits: Limits) -> tuple[ShardRows, ShardState]:
    bounds = Bounds(
        limits.redelivery_window_s,
        limits.redelivery_pushes,
        limits.evict_after_s,
        limits.evict_terminated_after_s,
        limits.tombstone_s,
    )
    pushes = _in_order(pushes.combine_chunks())
    keys = _push_columns(pushes)
    partition, push = _push_ids(keys)
    first = np.flatnonzero(np.append(True, push[1:] != push[:-1])[: len(push)])
    if len(first) < len(push):  # D1
        pushes, partition, push = pushes.take(pa.array(first)), partition[first], push[first]
        keys = _push_columns(pushes)
    payloads = read_payloads(pushes, limits.max_decompressed_bytes, limits.max_points_per_push)
    attributes = normalise(payloads.decoded.attribute_sets)
    distributions = read_distributions(payloads.decoded.distributions)
    flaws = np.zeros(len(distributions.observations), np.int8)
    find_flaws(distributions, flaws)
    clients = client_keys(keys["cluster_id"], keys["client_instance_id"])
    landed_at = keys["landed_at"].fill_null(0).view(pa.int64()).to_numpy()
    points = read_points(payloads.decoded, landed_at, clients, attributes, flaws != 0)
    times = push_times(points, len(push))

    named = keys["client_instance_id"].is_valid().to_numpy(zero_copy_only=False)
    facts = PushFacts(
        client=clients,
        partition=partition,
        push=push,
        landed_at=landed_at,
        interval=pushes["push_interval_ms"].combine_chunks().fill_null(0).to_numpy() * np.int64(1_000_000),
        terminating=pushes["terminating"].combine_chunks().fill_null(False).to_numpy(zero_copy_only=False),
        has_points=times.points > 0,
        is_heartbeat=payloads.read & (payloads.decoded.payloads["points"].to_numpy() == 0),
        digest=payloads.digest,
        temporalities=times.temporalities,
        first_start=times.first_start,
        last_time=times.last_time,
        delta_time=times.delta_time,
    )
    touched = np.unique(clients[named])
    verdicts, own = judge_pushes(facts, state.rows_of(touched), bounds)
    converted, increments, own = convert(points, distributions, verdicts, clients, own)
    batch = Batch(
        pushes,
        keys,
        payloads,
        attributes,
        points,
        distributions,
        flaws,
        times,
        verdicts,
        converted,
        increments,
    )
    result = ShardRows(
        metric_points=metric_points(batch),
        quarantine=pa.concat_tables([quarantined_pushes(batch), quarantined_points(batch)]),
        push_outcomes=push_outcomes(batch),
        client_events=client_events(batch),
    )
    changes = own.rows_of(touched)
    gone = evictions(state.merge(changes), partition, landed_at, bounds)
    return result, ShardState.joined([changes.without(gone.heard().client), gone])


def _in_order(pushes: pa.Table) -> pa.Table:
    """The pushes by partition and offset; they are copied only when they aren't so yet."""
    order = pc.sort_indices(pushes.select(PUSH_ORDER), [(name, "ascending") for name in PUSH_ORDER])
    in_order = (np.diff(order.to_numpy().astype(np.int64)) > 0).all()
    return pushes if in_order else pushes.take(order).combine_chunks()


def _push_columns(pushes: pa.Table) -> dict[str, pa.Array]:
    columns = {name: pushes[name].combine_chunks() for name in PUSH_COLUMNS}
    return {
        name: column.dictionary_encode() if pa.types.is_string(column.type) else column
        for name, column in columns.items()
    }


def _push_ids(keys: dict[str, pa.Array]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Hashes of each push's landing partition, and of the push itself (D1)."""
    partition = np.zeros(len(keys["offset"]), np.uint64)
    for name in ("source", "cluster_id", "topic"):
        partition = mix(partition, column_hashes(keys[name]))
    partition = mix(partition, keys["partition"].fill_null(-1).to_numpy().astype(np.uint64))
    push = mix(partition, keys["offset"].fill_null(-1).to_numpy().view(np.uint64))
    return partition.view(np.int64), push.view(np.int64)
