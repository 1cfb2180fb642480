"""Which moment's subscriptions apply to a push, from the SubscriptionId that it carries (M10)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int64s, UInt32s
from kafka_telemetry_lake.udfs.rows import TIMESTAMP
from kafka_telemetry_lake.udfs.subscriptions.history import Timeline, subscription_of, timeline
from kafka_telemetry_lake.udfs.subscriptions.matching import Subscription, matchable, matching
from kafka_telemetry_lake.udfs.subscriptions.subscription_id import checksums, instance_hashes, subscription_checksums

UNDECIDED = 2  # a match that can't be evaluated here

AGREES, OLDER, NEWER, UNKNOWN = "agrees", "older", "newer", "unknown"

ANNOUNCED_SUBSCRIPTIONS = pa.schema(
    [
        pa.field("cluster_id", pa.string(), metadata={"comment": "Kafka cluster"}),
        pa.field("client_attributes_id", pa.int64(), metadata={"comment": "row of client_attributes"}),
        pa.field("landed_from", TIMESTAMP, metadata={"comment": "pushes that landed from then on; NULL: any before"}),
        pa.field("landed_to", TIMESTAMP, metadata={"comment": "and before then; NULL: any after"}),
        pa.field(
            "subscription_at", TIMESTAMP, metadata={"comment": "moment whose subscriptions apply; NULL: landed_at"}
        ),
        pa.field("subscription_state", pa.string(), metadata={"comment": "agrees, older, newer, unknown"}),
    ]
)


def announced_subscriptions(clients: pa.Table, versions: pa.Table) -> pa.Table:
    """Compare clients' SubscriptionIds with those that brokers announced over time, on one cluster.

    Args:
        clients: rows of table `client_attributes`, each with a client instance id and a SubscriptionId.
        versions: the cluster's rows of table `subscriptions`.

    Returns:
        A row of ``ANNOUNCED_SUBSCRIPTIONS`` per client and time between two changes of the subscriptions, in which its
        pushes may have landed. `subscription_at` is NULL if the id agrees with the subscriptions in force then. Else it
        is the nearest moment whose subscriptions agree: an older one if the client hadn't received the change yet, or a
        newer one that no poll had seen yet. State unknown: no moment agrees.
    """
    when = timeline(versions)
    ids = clients["subscription_id"].to_numpy()
    inside = subscription_checksums(ids, instance_hashes(clients["client_instance_id"]))
    kinds, kind = matches_of(matchable(clients), [subscription_of(version) for version in versions.to_pylist()])
    epochs = len(when.starts)
    client = np.repeat(np.arange(clients.num_rows), epochs)
    landed_in = np.tile(np.arange(epochs), clients.num_rows)
    under = epochs_pushed_under(kind[client], landed_in, inside[client], _announced(when, kinds, versions))
    state = np.select([under < 0, under == landed_in, under < landed_in], [UNKNOWN, AGREES, OLDER], default=NEWER)
    ends = np.append(when.starts[1:], 0)
    at = np.where(under < landed_in, ends[under] - 1, when.starts[under])
    columns = [
        clients["cluster_id"].take(pa.array(client)),
        clients["client_attributes_id"].take(pa.array(client)),
        _times(when.starts[landed_in], landed_in == 0),
        _times(ends[landed_in], landed_in == epochs - 1),
        _times(at, (under < 0) | (under == landed_in)),
        pa.array(state.tolist(), pa.string()),
    ]
    return pa.table(columns, schema=ANNOUNCED_SUBSCRIPTIONS)


def _times(micros: Int64s, none: Bools) -> pa.Array:
    return pa.array(micros, mask=none).cast(TIMESTAMP)


def epochs_pushed_under(
    kind: Int64s, epochs: Int64s, checksums: UInt32s, announced: Sequence[Sequence[frozenset[int]]]
) -> Int64s:
    """The epoch whose subscriptions a client had when it pushed.

    The epoch in which the push landed is tried first, then older ones, which the client may still have, then newer
    ones, which no poll had seen yet.

    Args:
        kind, epochs: of each push: its client's kind, the epoch in which it landed.
        checksums: ``subscription_id.subscription_checksums`` of each push.
        announced: ``subscription_id.checksums`` of the subscriptions that match a client, per kind of client and epoch.

    Returns:
        One epoch per push; -1 where none agrees, or where those of the push's epoch are unknown.
    """
    pushes = np.stack([kind, epochs, checksums.astype(np.int64)], axis=1)
    distinct, rows = np.unique(pushes, axis=0, return_inverse=True)
    agreeing = [_agreeing(epoch, checksum, announced[row]) for row, epoch, checksum in distinct.tolist()]
    return np.array(agreeing, np.int64)[rows.reshape(-1)]


def _agreeing(epoch: int, checksum: int, announced: Sequence[frozenset[int]]) -> int:
    if not announced[epoch]:
        return -1
    candidates = [*range(epoch, -1, -1), *range(epoch + 1, len(announced))]
    return next((each for each in candidates if checksum in announced[each]), -1)


def matches_of(clients: pa.Table, subscriptions: Sequence[Subscription]) -> tuple[list[list[int]], Int64s]:
    """Distinct combinations of matches (0, 1, or UNDECIDED, per subscription), and the combination of each client.

    Args:
        clients: as of ``matching``.
    """
    matched = np.zeros((clients.num_rows, len(subscriptions)), np.int8)
    for column, subscription in enumerate(subscriptions):
        matches = matching(clients, subscription).cast(pa.int8()).fill_null(UNDECIDED)
        matched[:, column] = matches.to_numpy(zero_copy_only=False)
    kinds, kind = np.unique(matched, axis=0, return_inverse=True)
    return kinds.tolist(), kind.reshape(-1)


def _announced(when: Timeline, kinds: list[list[int]], versions: pa.Table) -> list[list[frozenset[int]]]:
    """The checksums that a client of each kind may have, per epoch; none where a match is undecided."""
    subscriptions = [subscription_of(version) for version in versions.to_pylist()]

    def checksums_of(kind: list[int], in_force: tuple[int, ...]) -> frozenset[int]:
        if any(kind[version] == UNDECIDED for version in in_force):
            return frozenset()
        return checksums(tuple(subscriptions[version] for version in in_force if kind[version]))

    return [[checksums_of(kind, in_force) for in_force in when.in_force] for kind in kinds]
