"""Subscriptions through time: which versions were in force at a push, how surely that is known, and who matched.

History comes from polling (``pipelines.config_history``): a version holds from the first poll that saw it to the first
that did not; between the last poll without it and the first with it, nobody knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from udfs.client_attributes import matchable
from udfs.rows import TIMESTAMP, column
from udfs.subscriptions import Subscription, matching

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

EARLIEST, LATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


CLIENT_MATCHES = pa.schema(
    [
        column("cluster_id", pa.string(), "Kafka cluster"),
        column("client_attributes_id", pa.int64(), "row of client_attributes"),
        column("name", pa.string(), "subscription"),
        column("valid_from", TIMESTAMP, "which version of the subscription"),
        column("matches", pa.bool_(), "true, or NULL where the pattern can't be evaluated; others have no row"),
    ]
)


def subscription_of(version: Mapping[str, Any]) -> Subscription:
    """The subscription of a row of table `subscriptions`."""
    match = tuple(sorted((key, pattern) for key, pattern in version["match"]))
    return Subscription(version["name"], tuple(version["metrics"]), version["interval_ms"], match)


def client_matches(clients: pa.Table, versions: pa.Table) -> pa.Table:
    """Who matches which version: every client against every version of the same cluster.

    Patterns are evaluated once per distinct value; call it with new clients and all versions, and with all clients
    and new versions.

    Args:
        clients: rows of table `client_attributes`.
        versions: rows of table `subscriptions`.

    Returns:
        Rows of ``CLIENT_MATCHES``.
    """
    ids, known = clients["client_attributes_id"].combine_chunks(), matchable(clients)
    parts = [CLIENT_MATCHES.empty_table()]
    for version in versions.to_pylist():
        same_cluster = pc.equal(clients["cluster_id"], version["cluster_id"])
        matched = pc.and_kleene(matching(known, subscription_of(version)), pc.fill_null(same_cluster, False))
        kept = pc.fill_null(matched, True)
        found = {"client_attributes_id": ids.filter(kept), "matches": matched.filter(kept)}
        rows = pa.table(found)
        for name in ("cluster_id", "name", "valid_from"):
            rows = rows.append_column(name, pa.array([version[name]] * rows.num_rows, CLIENT_MATCHES.field(name).type))
        parts.append(rows.select(CLIENT_MATCHES.names).cast(CLIENT_MATCHES))
    return pa.concat_tables(parts).combine_chunks()


@dataclass(frozen=True)
class Timeline:
    """When the set of subscriptions in force changed, on one cluster.

    `starts`: µs since 1970; epoch i lasts from starts[i] to starts[i + 1], the first from the beginning of time.
    `in_force`: rows of the versions in force, per epoch. `unknown`: disjoint open intervals (µs) in which the set may
    have been another.
    """

    starts: Int64s
    in_force: tuple[tuple[int, ...], ...]
    unknown: Int64s

    def epochs(self, landed_at: Int64s) -> Int64s:
        """The epoch of each time (µs)."""
        found: Int64s = np.searchsorted(self.starts, landed_at, side="right") - 1
        return found

    def uncertain(self, landed_at: Int64s) -> Bools:
        """Whether the set of subscriptions at each time (µs) is not known for sure."""
        before = np.searchsorted(self.unknown[:, 0], landed_at, side="left") - 1
        inside: Bools = (before >= 0) & (landed_at < np.append(self.unknown[:, 1], EARLIEST)[before])
        return inside


def timeline(versions: pa.Table) -> Timeline:
    """The timeline of one cluster's rows of table `subscriptions`."""
    begins, ends = _micros(versions["valid_from"]), _micros(versions["valid_to"], LATEST)
    starts = np.unique(np.concatenate([[EARLIEST], begins, ends[ends < LATEST]]))
    in_force = tuple(tuple(np.flatnonzero((begins <= start) & (start < ends)).tolist()) for start in starts)
    ended = ends < LATEST
    unknown_from = np.concatenate(
        [_micros(versions["not_seen_at"], EARLIEST), _micros(versions["last_seen_at"])[ended]]
    )
    return Timeline(starts, in_force, _merged(unknown_from, np.concatenate([begins, ends[ended]])))


def _micros(times: pa.ChunkedArray, instead: int = 0) -> Int64s:
    micros: Int64s = times.cast(pa.int64()).fill_null(instead).to_numpy()
    return micros


def _merged(starts: Int64s, ends: Int64s) -> Int64s:
    merged: list[list[int]] = []
    for start, end in sorted(zip(starts.tolist(), ends.tolist(), strict=True)):
        if merged and start < merged[-1][1]:
            merged[-1][1] = max(end, merged[-1][1])
        else:
            merged.append([start, end])
    return np.array(merged, np.int64).reshape(-1, 2)
