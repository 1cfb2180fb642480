"""How much of the state one client may take: a client that makes up names is stopped, and the others don't notice.

Only points that the state has to remember count: cumulative sums and histograms, and totals sent as DELTA.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from udfs.decoded import Kind, Temporality
from udfs.distributions import Distributions
from udfs.points import Points, Reason
from udfs.state import ShardState, column

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def beyond_limit(points: Points, distributions: Distributions, clients: Int64s, state: ShardState, limit: int) -> Bools:
    """The points whose series no longer fit into their client's state; others of the client go on.

    A series counts as one, and so does each bucket of a histogram. Those that the state has are there first, then those
    of the points in their order.

    Args:
        clients: `identity.client_keys` of each push.
        state: the rows of these clients.
        limit: of a client.
    """
    beyond = np.zeros(len(points.push), np.bool_)
    chosen = np.flatnonzero(_remembered(points))
    cells = np.ones(len(chosen), np.int64)
    buckets = np.append(np.diff(distributions.positive_first) + np.diff(distributions.negative_first), 0)
    cells += buckets[points.distribution[chosen]]  # -1 is none
    owner, held_by, held_series, held_cells = clients[points.push[chosen]], *_held(state)
    known, index = np.unique(np.concatenate([held_by, owner]), return_inverse=True)
    total = np.bincount(index, np.concatenate([held_cells, cells]), len(known))
    if (total <= limit).all():  # nearly always: what follows looks at each series
        return beyond
    many = total > limit
    of_many, held_of_many = many[index[len(held_by) :]], many[index[: len(held_by)]]
    chosen, cells, owner = chosen[of_many], cells[of_many], owner[of_many]
    before = held_series[held_of_many]

    ids = np.concatenate([before, points.series[chosen]])
    _, first, series = np.unique(ids, return_index=True, return_inverse=True)
    held = np.zeros(len(first), np.int64)
    held[series[: len(before)]] = held_cells[held_of_many]
    needed = held.copy()
    np.maximum.at(needed, series[len(before) :], cells)
    owners = np.concatenate([held_by[held_of_many], owner])[first]
    order = np.lexsort((first, owners))  # per client by first appearance
    more, heads = (needed - held)[order], np.flatnonzero(np.diff(owners[order], prepend=owners[order][0] - 1))
    passed = np.cumsum(more)
    _, client = np.unique(owners[order], return_inverse=True)
    of_client = np.bincount(client, held[order])[client] + passed - (passed[heads] - more[heads])[client]
    full = np.zeros(len(first), np.bool_)
    full[order] = (more > 0) & (of_client > limit)
    beyond[chosen] = full[series[len(before) :]]
    return beyond


def _remembered(points: Points) -> Bools:
    counter = np.where(points.kind == Kind.SUM, points.monotonic, points.kind > Kind.SUM) & (
        points.kind != Kind.SUMMARY
    )
    total = (points.temporality == Temporality.CUMULATIVE) | (
        (points.temporality == Temporality.DELTA) & (points.start >= points.time)
    )
    kept: Bools = counter & total & points.recorded & (points.reason == Reason.NONE)
    return kept


def _held(state: ShardState) -> tuple[Int64s, Int64s, Int64s]:
    """Client, series and cells of each series of the state."""
    numbers, histograms = state.numbers, state.distributions
    lengths = [pc.list_value_length(histograms[name]).fill_null(0).to_numpy() for name in ("positive", "negative")]
    return (
        np.concatenate([column(numbers, "client"), column(histograms, "client")]),
        np.concatenate([column(numbers, "series"), column(histograms, "series")]),
        np.concatenate([np.ones(numbers.num_rows, np.int64), 1 + lengths[0] + lengths[1]]),
    )
