"""Subscriptions over time: which versions were in force when, and which clients each version matches.

History comes from polling (``pipelines.lake.config_history``): a version is valid from the first poll that saw it until
the first that didn't.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.kernels.arrays import Int64s
from kafka_telemetry_lake.udfs.rows import TIMESTAMP, column
from kafka_telemetry_lake.udfs.subscriptions.matching import Subscription, matchable, matching

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
    return Subscription(version["name"], tuple(version["metrics"]), version["interval_ms"], match, version["problem"])


def client_matches(clients: pa.Table, versions: pa.Table) -> pa.Table:
    """Match every client against every version of the same cluster.

    Patterns are evaluated once per distinct value. Call it with new clients and all versions, then with all clients and
    new versions.

    Args:
        clients: rows of table `client_attributes`.
        versions: rows of table `subscriptions`.

    Returns:
        Rows of ``CLIENT_MATCHES``.
    """
    ids, attributes = clients["client_attributes_id"].combine_chunks(), matchable(clients)
    parts = [CLIENT_MATCHES.empty_table()]
    for version in versions.to_pylist():
        same_cluster = pc.equal(clients["cluster_id"], version["cluster_id"])
        matched = pc.and_kleene(matching(attributes, subscription_of(version)), pc.fill_null(same_cluster, False))
        stored = pc.fill_null(matched, True)
        rows = pa.table({"client_attributes_id": ids.filter(stored), "matches": matched.filter(stored)})
        for name in ("cluster_id", "name", "valid_from"):
            rows = rows.append_column(name, pa.array([version[name]] * rows.num_rows, CLIENT_MATCHES.field(name).type))
        parts.append(rows.select(CLIENT_MATCHES.names).cast(CLIENT_MATCHES))
    return pa.concat_tables(parts).combine_chunks()


@dataclass(frozen=True)
class Timeline:
    """When the set of subscriptions in force changed, on one cluster.

    `starts`: µs since 1970; epoch i lasts from starts[i] to starts[i + 1], the first from the beginning of time.
    `in_force`: rows of the versions in force, per epoch.
    """

    starts: Int64s
    in_force: tuple[tuple[int, ...], ...]

    def epochs(self, landed_at: Int64s) -> Int64s:
        """The epoch of each time (µs); an epoch includes its start (M8)."""
        epochs: Int64s = np.searchsorted(self.starts, landed_at, side="right") - 1
        return epochs


def timeline(versions: pa.Table) -> Timeline:
    """The timeline of one cluster's rows of table `subscriptions`."""
    begins, ends = _micros(versions["valid_from"]), _micros(versions["valid_to"], LATEST)
    starts = np.unique(np.concatenate([[EARLIEST], begins, ends[ends < LATEST]]))
    in_force = tuple(tuple(np.flatnonzero((begins <= start) & (start < ends)).tolist()) for start in starts)
    return Timeline(starts, in_force)


def _micros(times: pa.ChunkedArray, instead: int = 0) -> Int64s:
    micros: Int64s = times.cast(pa.int64()).fill_null(instead).to_numpy()
    return micros
