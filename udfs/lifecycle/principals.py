"""Whose a client instance is: a push of another principal, which quarantine has, says nothing about the client (L1)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.identity import client_keys
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int64s, Objects
from kafka_telemetry_lake.udfs.lifecycle.clients import Clients, is_set, texts_of
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS

FREE_AFTER_US = DEFAULT_LIMITS.evict_after_s * 1_000_000
"""So long after its last push a client is anybody's, as in `conversion.principals`."""


def own_pushes(clients: Clients, pushes: pa.Table) -> pa.Table:
    """The pushes without those of another principal than their client's; one that isn't known is no other.

    Args:
        clients: state after the step before.
        pushes: columns client_instance_id, cluster_id, principal and landed_at, in the order of their offsets.
    """
    if pushes["principal"].null_count == pushes.num_rows:
        return pushes
    principal = texts_of(pushes["principal"])
    named = np.flatnonzero(is_set(principal))
    ids = [pushes[name].combine_chunks().dictionary_encode() for name in ("cluster_id", "client_instance_id")]
    keys, client = np.unique(client_keys(*ids), return_inverse=True)
    client = client.reshape(-1)
    slots = clients.slots(keys)
    known = slots >= 0
    owner, last = np.full(len(keys), None, object), np.zeros(len(keys), np.int64)
    owner[known] = clients.objects["principal"][slots[known]]
    last[known] = clients["last_seen"][slots[known]]
    anyone = owner.copy()  # the owner, else some principal of these pushes
    missing = named[~is_set(anyone[client[named]])]
    anyone[client[missing]] = principal[missing]
    disputed = np.zeros(len(keys), np.bool_)
    disputed[client[named[principal[named] != anyone[client[named]]]]] = True
    if not disputed.any():
        return pushes
    foreign = _foreign(np.flatnonzero(disputed[client]), client, principal, pushes["landed_at"], owner, last)
    return pushes.filter(pa.array(~foreign))


def _foreign(
    rows: Int64s, client: Int64s, principal: Objects, landed_at: pa.ChunkedArray,
    owner: Objects, last: Int64s,
) -> Bools:  # fmt: skip
    """Which of these rows are of another principal. Pushes of the past (L8) make nobody the owner."""
    landed = landed_at.cast(pa.int64()).to_numpy()
    foreign = np.zeros(len(client), np.bool_)
    for row in rows.tolist():
        one = client[row]
        is_free = owner[one] is None or landed[row] - last[one] > FREE_AFTER_US
        if is_free and principal[row] is not None and landed[row] >= last[one]:
            owner[one] = principal[row]
        foreign[row] = None not in (principal[row], owner[one]) and principal[row] != owner[one]
        if not foreign[row]:
            last[one] = max(last[one], landed[row])
    return foreign
