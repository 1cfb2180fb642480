"""Labels of client instances: the resource attributes of their pushes, which change when a consumer joins a group."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.identity import client_keys_of
from kafka_telemetry_lake.udfs.kernels.arrays import Int64s
from kafka_telemetry_lake.udfs.lifecycle.clients import (
    MOST_MEMBERS,
    ORDER,
    PAIR,
    Clients,
    by_offset,
    label_pairs,
    label_texts,
    objects_of,
    texts_of,
)
from kafka_telemetry_lake.udfs.rows import PUSH_OUTCOMES

# Columns that are read from table `push_outcomes`.
LABELS_IN = pa.schema([PUSH_OUTCOMES.field(name) for name in (*ORDER, "cluster_id", "client_instance_id", "labels")])
MEMBER, MEMBERS = "group_member_id", "group_member_ids"


def label(clients: Clients, outcomes: pa.Table, step: int) -> Int64s:
    """Take the labels of pushes into the clients' state, and return the slots of the clients whose labels changed.

    Args:
        outcomes: columns of `LABELS_IN`, any order; rows without labels are skipped.
        step: number of the step.
    """
    outcomes = outcomes.filter(pc.and_(outcomes["client_instance_id"].is_valid(), outcomes["labels"].is_valid()))
    if outcomes.num_rows == 0:
        return np.zeros(0, np.int64)
    outcomes = by_offset(outcomes)
    texts = label_texts(outcomes["labels"].combine_chunks())
    slots = clients.slots(client_keys_of(outcomes))
    new_labels = texts_of(pa.chunked_array([texts]))
    has_labels = (slots >= 0) & (texts.fill_null("").to_numpy(zero_copy_only=False) != "")
    changed = np.unique(slots[has_labels & (new_labels != clients.objects["labels"][slots])])
    # Labels hardly ever change, so only those clients' rows are looked at one by one.
    labels, members = (
        dict(zip(changed.tolist(), clients.objects[name][changed], strict=True)) for name in ("labels", MEMBERS)
    )
    for row in np.flatnonzero(np.isin(slots, changed)).tolist():
        slot = int(slots[row])
        if new_labels[row] and labels[slot] != new_labels[row]:
            labels[slot] = new_labels[row]
            members[slot] = _with_member(members[slot], new_labels[row])
    clients.objects["labels"][changed] = objects_of([*labels.values()])
    clients.objects[MEMBERS][changed] = objects_of([*members.values()])
    clients["step"][changed] = step
    return changed


def _with_member(listed: str | None, labels: str) -> str | None:
    """The member ids of a client, separated by `PAIR`, with that of its new labels."""
    member, members = dict(label_pairs(labels)).get(MEMBER), listed.split(PAIR) if listed else []
    if not member or member in members[-1:]:
        return listed
    return PAIR.join([*members, member][-MOST_MEMBERS:])
