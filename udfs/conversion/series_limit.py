"""Limits one client's part of the state: a client that invents names is limited, without effect on others.

Only points that need state count: cumulative sums and histograms, and totals sent as DELTA.
"""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.conversion.distributions import Distributions
from kafka_telemetry_lake.udfs.conversion.points import Points, Reason
from kafka_telemetry_lake.udfs.conversion.state import ShardState, column
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int64s
from kafka_telemetry_lake.udfs.kernels.columns import one_chunk
from kafka_telemetry_lake.udfs.kernels.hashing import number
from kafka_telemetry_lake.udfs.otlp.decoded import Kind, Temporality


def beyond_limit(points: Points, distributions: Distributions, clients: Int64s, state: ShardState, limit: int) -> Bools:
    """The points of new series beyond their client's limit; the client's other series are converted as usual.

    A series counts as one, and so does each bucket of a histogram. Series of the state come first, then those of the
    points in their order.

    Args:
        clients: `identity.client_keys` of each push.
        state: the rows of these clients.
        limit: series and buckets of a client.

    Returns:
        One boolean per point.
    """
    beyond = np.zeros(len(points.push), np.bool_)
    chosen = np.flatnonzero(remembered(points))
    cells = np.ones(len(chosen), np.int64)
    lists = distributions.counts_first, distributions.positive_first, distributions.negative_first
    buckets = np.append(sum(np.diff(first) for first in lists), 0)
    cells += buckets[points.distribution[chosen]]  # -1 is none
    owner, stored_clients, stored_series, stored_cells = clients[points.push[chosen]], *_stored_series(state)
    index, distinct_clients = number(np.concatenate([stored_clients, owner]))
    total = np.bincount(index, np.concatenate([stored_cells, cells]), distinct_clients)
    if (total <= limit).all():  # nearly always true; the code below looks at each series
        return beyond
    too_many = total > limit
    of_many, stored_of_many = too_many[index[len(stored_clients) :]], too_many[index[: len(stored_clients)]]
    chosen, cells, owner = chosen[of_many], cells[of_many], owner[of_many]
    before = stored_series[stored_of_many]

    ids = np.concatenate([before, points.series[chosen]])
    _, first, series = np.unique(ids, return_index=True, return_inverse=True)
    stored_per_series = np.zeros(len(first), np.int64)
    stored_per_series[series[: len(before)]] = stored_cells[stored_of_many]
    needed = stored_per_series.copy()
    np.maximum.at(needed, series[len(before) :], cells)
    owners = np.concatenate([stored_clients[stored_of_many], owner])[first]
    order = np.lexsort((first, owners))  # per client by first appearance
    more = (needed - stored_per_series)[order]
    heads = np.flatnonzero(np.diff(owners[order], prepend=owners[order][0] - 1))
    passed = np.cumsum(more)
    _, client = np.unique(owners[order], return_inverse=True)
    of_client = np.bincount(client, stored_per_series[order])[client] + passed - (passed[heads] - more[heads])[client]
    full = np.zeros(len(first), np.bool_)
    full[order] = (more > 0) & (of_client > limit)
    beyond[chosen] = full[series[len(before) :]]
    return beyond


def remembered(points: Points) -> Bools:
    """The points whose series need state."""
    counter = np.where(points.kind == Kind.SUM, points.monotonic, points.kind > Kind.SUM) & (
        points.kind != Kind.SUMMARY
    )
    total = (points.temporality == Temporality.CUMULATIVE) | (
        (points.temporality == Temporality.DELTA) & (points.start >= points.time)
    )
    has_state: Bools = counter & total & points.recorded & (points.reason == Reason.NONE)
    return has_state


def _stored_series(state: ShardState) -> tuple[Int64s, Int64s, Int64s]:
    """Client, series and cells of each series of the state."""
    numbers, histograms = state.numbers, state.distributions
    lengths = [pc.list_value_length(one_chunk(histograms[name])).to_numpy() for name in ("positive", "negative")]
    return (
        np.concatenate([column(numbers, "client"), column(histograms, "client")]),
        np.concatenate([column(numbers, "series"), column(histograms, "series")]),
        np.concatenate([np.ones(numbers.num_rows, np.int64), 1 + lengths[0] + lengths[1]]),
    )
