"""Converts the pushes of one shard to rows for the tables and to the shard's next state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs import rows
from kafka_telemetry_lake.udfs.conversion.distributions import Distributions, find_flaws, read_distributions
from kafka_telemetry_lake.udfs.conversion.payloads import Payloads, read_payloads
from kafka_telemetry_lake.udfs.conversion.point_rows import Batch, metric_points
from kafka_telemetry_lake.udfs.conversion.points import (
    Points,
    Reason,
    long_lists,
    long_texts,
    push_times,
    read_points,
    rejected,
)
from kafka_telemetry_lake.udfs.conversion.principals import Budgets, Senders, accounts, check_senders, spend_series
from kafka_telemetry_lake.udfs.conversion.push_rows import client_events, push_outcomes
from kafka_telemetry_lake.udfs.conversion.quarantine import quarantined_points, quarantined_pushes
from kafka_telemetry_lake.udfs.conversion.redelivery import PushFacts, check_pushes
from kafka_telemetry_lake.udfs.conversion.series import convert
from kafka_telemetry_lake.udfs.conversion.state import ClientStates, ShardState
from kafka_telemetry_lake.udfs.conversion.state_limits import beyond_limit, evicted_clients, remembered
from kafka_telemetry_lake.udfs.identity import client_keys, column_hashes, mix, normalise, set_bytes
from kafka_telemetry_lake.udfs.kernels import numba_cache
from kafka_telemetry_lake.udfs.kernels.arrays import Int64s, column, one_chunk
from kafka_telemetry_lake.udfs.kernels.sharding import places_of
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS, Limits
from kafka_telemetry_lake.udfs.rows import PUSH_COLUMNS

States = TypeVar("States", bound=ClientStates)
PUSH_ORDER = ("source", "cluster_id", "topic", "partition", "offset")


@dataclass(frozen=True)
class ShardRows:
    """Rows for the tables, with the schemas of `udfs.rows`; repeated text is dictionary-encoded."""

    metric_points: pa.Table
    quarantine: pa.Table
    push_outcomes: pa.Table
    client_events: pa.Table


def process(pushes: pa.Table, state: ShardState, limits: Limits = DEFAULT_LIMITS) -> tuple[ShardRows, ShardState]:
    """Decode and convert a shard's pushes.

    A pure function of its arguments: neither the order of `pushes` nor the wall clock matters.

    Args:
        pushes: schema `rows.PUSHES_IN`; all pushes of a client go to the same shard.
        state: as the batch before returned it.
        limits: of pushes, clients and principals.

    A counter is pushed twice, as a total since its start, here in one batch each:

    >>> from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
    >>> def pushed(offset: int, total: int) -> pa.Table:
    ...     times = {"start_time_unix_nano": 10**18, "time_unix_nano": 10**18 + (offset + 1) * 10**9}
    ...     push = MetricsData()
    ...     metric = push.resource_metrics.add().scope_metrics.add().metrics.add(name="requests.total")
    ...     metric.sum.is_monotonic, metric.sum.aggregation_temporality = True, 2  # CUMULATIVE
    ...     metric.sum.data_points.add(as_int=total, **times)
    ...     row = {"source": "kafka", "topic": "client-telemetry", "partition": 0, "offset": offset}
    ...     row |= {"landed_at": 10**15 + offset * 10**6, "client_instance_id": "6cLoWvHTTAi5xZfO_8P0Eg"}
    ...     return pa.Table.from_pylist([row | {"payload": push.SerializeToString()}], rows.PUSHES_IN)
    >>> first, state = process(pushed(0, 10), ShardState.empty())
    >>> then, state = process(pushed(1, 14), state)
    >>> pa.concat_tables([first.metric_points, then.metric_points]).select(["delta_status", "delta_int"]).to_pylist()
    [{'delta_status': 'first', 'delta_int': 10}, {'delta_status': 'converted', 'delta_int': 4}]
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
    """Convert pushes as `process` does, in one or more parts whose size is limited whatever the payloads contain.

    Each part comes with the state of the clients that it changed, and with the whole state after it, from which the
    next part continues.
    """
    _compile_once()
    yield from _parts(pushes, state, limits)


@cache
def _compile_once() -> None:
    """Compile, or load from the cache, the kernels of conversion: one worker of a machine at a time."""
    with numba_cache.exclusive("conversion"):
        list(_parts(rows.PUSHES_IN.empty_table(), ShardState.empty(), DEFAULT_LIMITS))


def _parts(pushes: pa.Table, state: States, limits: Limits) -> Iterator[tuple[ShardRows, ShardState, States]]:
    pushes = _in_order(pushes.combine_chunks())
    _, push = _push_ids(_push_columns(pushes))
    first = np.flatnonzero(np.append(True, push[1:] != push[:-1])[: len(push)])
    if len(first) < len(push):  # D1
        pushes = pushes.take(pa.array(first)).combine_chunks()
    keys = _push_columns(pushes)
    clients, landed_at = _clients(keys), _landed_at(keys)
    budgets = _budgets(limits)
    pushes, senders = check_senders(pushes, clients, landed_at, state, limits.evict_after_s, budgets)
    done = 0
    for payloads in read_payloads(pushes, limits):
        part = pushes if len(payloads.read) == pushes.num_rows else pushes.slice(done, len(payloads.read))
        sent = senders.part(done, done + part.num_rows)
        done += part.num_rows
        result, changes = _process(part, payloads, sent, state, limits)
        state = state.merge(changes)
        yield result, changes, state


def _process(
    pushes: pa.Table, payloads: Payloads, senders: Senders, state: ClientStates, limits: Limits
) -> tuple[ShardRows, ShardState]:
    """The rows of some pushes, and the state of the clients that they change. Each step needs those before it."""
    keys = _push_columns(pushes)
    partition, push = _push_ids(keys)
    clients, landed_at = _clients(keys), _landed_at(keys)
    named = keys["client_instance_id"].is_valid().to_numpy(zero_copy_only=False)
    touched = np.unique(clients[named])
    stored = state.rows_of(touched)
    tolerance_s = min(limits.future_tolerance_s, limits.redelivery_window_s)

    # Points: the decoded columns, with a reason where a point is invalid by itself.
    attributes = normalise(payloads.decoded.attribute_sets)
    distributions = read_distributions(payloads.decoded.distributions)
    flaws = np.zeros(len(distributions.observations), np.int8)
    find_flaws(distributions, flaws)
    points = read_points(payloads.decoded, landed_at, clients, attributes, flaws != 0, tolerance_s)

    # Limits: reasons of points that are beyond one.
    points, budgets = _within_limits(points, distributions, payloads, senders, clients, stored, state, limits)

    # Pushes: which are new, delivered again or stale, by the client's earlier pushes.
    times = push_times(points, len(push))
    facts = PushFacts(
        client=clients,
        place=places_of(keys["client_instance_id"].dictionary_decode()),
        partition=partition,
        push=push,
        landed_at=landed_at,
        interval=one_chunk(pushes["push_interval_ms"]).fill_null(0).to_numpy() * np.int64(1_000_000),
        terminating=one_chunk(pushes["terminating"]).fill_null(False).to_numpy(zero_copy_only=False),
        has_points=times.points > 0,
        is_heartbeat=payloads.read & (payloads.decoded.payloads["points"].to_numpy() == 0),
        digest=payloads.digest,
        temporalities=times.temporalities,
        first_start=times.first_start,
        last_time=times.last_time,
        delta_time=times.delta_time,
        principal=senders.principal,
        foreign=senders.foreign,
    )
    verdicts, checked = check_pushes(facts, stored, limits)

    # Deltas: each point against the last one of its series.
    converted, increments, after = convert(points, distributions, verdicts, clients, checked, tolerance_s)

    # Rows of the tables.
    batch = Batch(
        pushes, keys, payloads, attributes, points, distributions, flaws, times, verdicts, converted, increments, limits
    )
    result = ShardRows(
        metric_points=metric_points(batch),
        quarantine=pa.concat_tables([quarantined_pushes(batch), quarantined_points(batch)]),
        push_outcomes=push_outcomes(batch),
        client_events=client_events(batch),
    )

    # State: what these clients and principals have now, without clients that have been silent for too long.
    budgets = replace(budgets, clients=accounts(senders, partition, landed_at))
    changes = ShardState.joined([after.rows_of(touched), budgets])
    evicted = evicted_clients(state.merge(changes), partition, landed_at, limits)
    return result, ShardState.joined([changes.without(evicted.client_columns().client), evicted])


def _within_limits(
    points: Points, distributions: Distributions, payloads: Payloads, senders: Senders, clients: Int64s,
    stored: ShardState, state: ClientStates, limits: Limits,
) -> tuple[Points, ShardState]:  # fmt: skip
    """The points, with a reason where one is beyond a limit, and the principals' budgets after them.

    The order counts: a reason replaces the one before it, and only points without one use up series and budgets.
    """
    of_lists = long_lists(payloads.decoded)
    points = rejected(points, of_lists != Reason.NONE, of_lists[of_lists != Reason.NONE])
    points = rejected(points, long_texts(payloads.decoded, points, limits.max_text_bytes), Reason.TEXT_TOO_LONG)
    of_client = beyond_limit(points, distributions, clients, stored, limits.max_series_per_client)
    points = rejected(points, of_client, Reason.TOO_MANY_SERIES)
    of_principal, budgets = _spend_series(points, payloads, senders, stored, state, limits)
    return rejected(points, of_principal, Reason.TOO_MANY_SERIES_OF_PRINCIPAL), budgets


def _spend_series(
    points: Points, payloads: Payloads, senders: Senders, stored: ShardState, state: ClientStates, limits: Limits
) -> tuple[Int64s, ShardState]:
    """The indices of points of new series beyond their principal's budget, and the budgets' new state."""
    chosen = np.flatnonzero(remembered(points))
    names = one_chunk(payloads.decoded.points["metric"])
    name_bytes = np.append(pc.binary_length(names.dictionary).fill_null(0).to_numpy(zero_copy_only=False), 0)
    text_bytes = name_bytes[points.metric[chosen]].astype(np.int64)
    text_bytes += set_bytes(payloads.decoded.attribute_sets)[points.attributes[chosen]]
    series = np.concatenate([column(stored.numbers, "series"), column(stored.distributions, "series")])
    of_points = points.push[chosen], points.series[chosen], text_bytes
    beyond, budgets = spend_series(senders, *of_points, series, state, _budgets(limits))
    return chosen[beyond], budgets


def _budgets(limits: Limits) -> Budgets:
    return Budgets(
        limits.principal_series_per_hour, limits.principal_text_bytes_per_hour, limits.principal_bytes_per_hour
    )


def _clients(keys: dict[str, pa.Array]) -> Int64s:
    return client_keys(keys["cluster_id"], keys["client_instance_id"])


def _landed_at(keys: dict[str, pa.Array]) -> Int64s:
    landed_at: Int64s = keys["landed_at"].fill_null(0).view(pa.int64()).to_numpy()
    return landed_at


def _in_order(pushes: pa.Table) -> pa.Table:
    """The pushes by partition and offset; copied only if they are in another order."""
    order = pc.sort_indices(pushes.select(PUSH_ORDER), [(name, "ascending") for name in PUSH_ORDER])
    in_order = (np.diff(order.to_numpy().astype(np.int64)) > 0).all()
    return pushes if in_order else pushes.take(order).combine_chunks()


def _push_columns(pushes: pa.Table) -> dict[str, pa.Array]:
    columns = {name: one_chunk(pushes[name]) for name in PUSH_COLUMNS}
    return {
        name: column.dictionary_encode() if pa.types.is_string(column.type) else column
        for name, column in columns.items()
    }


def _push_ids(keys: dict[str, pa.Array]) -> tuple[Int64s, Int64s]:
    """Hashes of each push's landing partition, and of the push itself (D1)."""
    partition = np.zeros(len(keys["offset"]), np.uint64)
    for name in ("source", "cluster_id", "topic"):
        partition = mix(partition, column_hashes(keys[name]))
    partition = mix(partition, keys["partition"].fill_null(-1).to_numpy().astype(np.uint64))
    push = mix(partition, keys["offset"].fill_null(-1).to_numpy().view(np.uint64))
    return partition.view(np.int64), push.view(np.int64)
