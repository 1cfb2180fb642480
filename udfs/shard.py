"""The operator's heart: the pushes of one shard in, rows for the tables and the shard's next state out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from udfs import numba_cache, rows
from udfs.conversion import convert
from udfs.distributions import find_flaws, read_distributions
from udfs.identity import client_keys, column_hashes, mix, normalise
from udfs.payloads import Payloads, read_payloads
from udfs.points import Reason, long_texts, push_times, read_points
from udfs.push_rows import client_events, push_outcomes, quarantined_pushes
from udfs.redelivery import Bounds, PushFacts, evictions, judge_pushes
from udfs.series_limit import beyond_limit
from udfs.shard_rows import PUSH_COLUMNS, Batch, metric_points, quarantined_points
from udfs.state import ClientStates, ShardState

States = TypeVar("States", bound=ClientStates)
PUSH_ORDER = ("source", "cluster_id", "topic", "partition", "offset")


@dataclass(frozen=True)
class Limits:
    """Bounds of a push, of a client and of the state; see D2, D6 and C12 in docs/semantics."""

    max_decompressed_bytes: int = 16 << 20
    max_points_per_push: int = 100_000
    max_text_bytes: int = 16 << 10
    max_series_per_client: int = 100_000
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
    parts: list[ShardRows] = []
    for part, _, after in process_parts(pushes, state, limits):
        parts.append(part)
        state = after
    names = [field.name for field in fields(ShardRows)]
    return ShardRows(**{name: pa.concat_tables([getattr(part, name) for part in parts]) for name in names}), state


def process_parts(
    pushes: pa.Table, state: States, limits: Limits = DEFAULT_LIMITS
) -> Iterator[tuple[ShardRows, ShardState, States]]:
    """As `process`, in parts whose size is bounded whatever the payloads hold: at least one.

    Each part comes with the state of those clients only that it has changed, and with the whole state after it, which
    the next part goes on from.
    """
    _compile_once()
    yield from _parts(pushes, state, limits)


@cache
def _compile_once() -> None:
    """Compile, or load from the cache, every kernel: one worker of a machine at a time."""
    with numba_cache.exclusive():
        list(_parts(rows.PUSHES_IN.empty_table(), ShardState.empty(), DEFAULT_LIMITS))


def _parts(pushes: pa.Table, state: States, limits: Limits) -> Iterator[tuple[ShardRows, ShardState, States]]:
    pushes = _in_order(pushes.combine_chunks())
    _, push = _push_ids(_push_columns(pushes))
    first = np.flatnonzero(np.append(True, push[1:] != push[:-1])[: len(push)])
    if len(first) < len(push):  # D1
        pushes = pushes.take(pa.array(first)).combine_chunks()
    done = 0
    bounds = limits.max_decompressed_bytes, limits.max_points_per_push, limits.max_text_bytes
    for payloads in read_payloads(pushes, *bounds):
        part = pushes if len(payloads.read) == pushes.num_rows else pushes.slice(done, len(payloads.read))
        done += part.num_rows
        result, changes = _process(part, payloads, state, limits)
        state = state.merge(changes)
        yield result, changes, state


def _process(pushes: pa.Table, payloads: Payloads, state: ClientStates, limits: Limits) -> tuple[ShardRows, ShardState]:
    bounds = Bounds(
        limits.redelivery_window_s,
        limits.redelivery_pushes,
        limits.evict_after_s,
        limits.evict_terminated_after_s,
        limits.tombstone_s,
    )
    keys = _push_columns(pushes)
    partition, push = _push_ids(keys)
    attributes = normalise(payloads.decoded.attribute_sets)
    distributions = read_distributions(payloads.decoded.distributions)
    flaws = np.zeros(len(distributions.observations), np.int8)
    find_flaws(distributions, flaws)
    clients = client_keys(keys["cluster_id"], keys["client_instance_id"])
    landed_at = keys["landed_at"].fill_null(0).view(pa.int64()).to_numpy()
    points = read_points(payloads.decoded, landed_at, clients, attributes, flaws != 0)
    named = keys["client_instance_id"].is_valid().to_numpy(zero_copy_only=False)
    touched = np.unique(clients[named])
    held = state.rows_of(touched)
    points.reason[long_texts(payloads.decoded, points, limits.max_text_bytes)] = Reason.TEXT_TOO_LONG
    points.reason[beyond_limit(points, distributions, clients, held, limits.max_series_per_client)] = (
        Reason.TOO_MANY_SERIES
    )
    times = push_times(points, len(push))

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
    verdicts, own = judge_pushes(facts, held, bounds)
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
