"""As of when a push is matched that carries the SubscriptionId its client was told."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from udfs.client_attributes import matchable
from udfs.rows import TIMESTAMP
from udfs.subscription_history import Timeline, subscription_of, timeline
from udfs.subscription_id import checksums, instance_hashes, subscription_checksums
from udfs.subscriptions import matching

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt32s = npt.NDArray[np.uint32]

OPEN = 2  # a match that can't be evaluated here

AGREES, OLDER, NEWER, UNKNOWN = "agrees", "older", "newer", "unknown"

TOLD_SUBSCRIPTIONS = pa.schema(
    [
        pa.field("cluster_id", pa.string(), metadata={"comment": "Kafka cluster"}),
        pa.field("client_attributes_id", pa.int64(), metadata={"comment": "row of client_attributes"}),
        pa.field("landed_from", TIMESTAMP, metadata={"comment": "pushes that landed from then on; NULL: any before"}),
        pa.field("landed_to", TIMESTAMP, metadata={"comment": "and before then; NULL: any after"}),
        pa.field("subscription_at", TIMESTAMP, metadata={"comment": "as of when they are matched; NULL: landed_at"}),
        pa.field("subscription_state", pa.string(), metadata={"comment": "agrees, older, newer, unknown"}),
    ]
)


def told_subscriptions(clients: pa.Table, versions: pa.Table) -> pa.Table:
    """Compare clients' SubscriptionIds with those that they had been told through time, on one cluster.

    Args:
        clients: rows of table `client_attributes`, each with a client instance id and a SubscriptionId.
        versions: the cluster's rows of table `subscriptions`.

    Returns:
        A row of ``TOLD_SUBSCRIPTIONS`` per client and time between two changes of the subscriptions, in which its
        pushes may have landed. Where the id agrees with what was in force then, `subscription_at` is NULL, else it is
        the nearest moment of a time with whose it agrees: an older one, when the client hadn't heard of the change
        yet, or a newer one, which no poll had seen yet; unknown: no time's agrees.
    """
    when = timeline(versions)
    ids = clients["subscription_id"].to_numpy()
    inside = subscription_checksums(ids, instance_hashes(clients["client_instance_id"]))
    kinds, kind = _kinds(matchable(clients), versions)
    epochs = len(when.starts)
    client = np.repeat(np.arange(clients.num_rows), epochs)
    landed_in = np.tile(np.arange(epochs), clients.num_rows)
    under = epochs_pushed_under(kind[client], landed_in, inside[client], _told(when, kinds, versions))
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
    return pa.table(columns, schema=TOLD_SUBSCRIPTIONS)


def _times(micros: Int64s, none: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.array(micros, mask=none).cast(TIMESTAMP)


def epochs_pushed_under(
    kind: Int64s, epochs: Int64s, checksums: UInt32s, told: Sequence[Sequence[frozenset[int]]]
) -> Int64s:
    """The epoch whose subscriptions a client had been told when it pushed.

    The epoch in which the push landed is tried first, then older ones, which the client still works with, then newer
    ones, which no poll had seen yet.

    Args:
        kind, epochs: of each push: its client's kind, the epoch in which it landed.
        checksums: ``subscription_id.subscription_checksums`` of each push.
        told: ``subscription_id.checksums`` of the subscriptions that match a client, per kind of client and epoch.

    Returns:
        One epoch per push; -1 where none agrees, or its own epoch's can't be told.
    """
    pushes = np.stack([kind, epochs, checksums.astype(np.int64)], axis=1)
    distinct, rows = np.unique(pushes, axis=0, return_inverse=True)
    found = [_agreeing(epoch, checksum, told[row]) for row, epoch, checksum in distinct.tolist()]
    return np.array(found, np.int64)[rows.reshape(-1)]


def _agreeing(epoch: int, checksum: int, told: Sequence[frozenset[int]]) -> int:
    if not told[epoch]:
        return -1
    candidates = [*range(epoch, -1, -1), *range(epoch + 1, len(told))]
    return next((each for each in candidates if checksum in told[each]), -1)


def _kinds(clients: pa.Table, versions: pa.Table) -> tuple[list[list[int]], Int64s]:
    """Distinct combinations of matches (0, 1, or OPEN, per version), and the combination of each client."""
    matched = np.zeros((clients.num_rows, versions.num_rows), np.int8)
    for column, version in enumerate(versions.to_pylist()):
        found = matching(clients, subscription_of(version)).cast(pa.int8()).fill_null(OPEN)
        matched[:, column] = found.to_numpy(zero_copy_only=False)
    kinds, kind = np.unique(matched, axis=0, return_inverse=True)
    return kinds.tolist(), kind.reshape(-1)


def _told(when: Timeline, kinds: list[list[int]], versions: pa.Table) -> list[list[frozenset[int]]]:
    """The checksums that a client of each kind may have been told, per epoch; none where a match is open."""
    subscriptions = [subscription_of(version) for version in versions.to_pylist()]

    def told(kind: list[int], in_force: tuple[int, ...]) -> frozenset[int]:
        if any(kind[version] == OPEN for version in in_force):
            return frozenset()
        return checksums(tuple(subscriptions[version] for version in in_force if kind[version]))

    return [[told(kind, in_force) for in_force in when.in_force] for kind in kinds]
