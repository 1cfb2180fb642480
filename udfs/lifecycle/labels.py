"""Labels of client instances: the resource attributes of their pushes, which change when a consumer joins a group."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.identity import client_keys
from kafka_telemetry_lake.udfs.kernels.arrays import Int64s
from kafka_telemetry_lake.udfs.lifecycle.clients import MOST_MEMBERS, Clients, label_pairs, label_texts, texts_of
from kafka_telemetry_lake.udfs.rows import PUSH_OUTCOMES

_PLACE = ("source", "topic", "partition", "offset")
# Columns that are read from table `push_outcomes`.
LABELS_IN = pa.schema([PUSH_OUTCOMES.field(name) for name in (*_PLACE, "cluster_id", "client_instance_id", "labels")])
MEMBER = "group_member_id"


def label(clients: Clients, outcomes: pa.Table, step: int) -> Int64s:
    """Take the labels of pushes into the clients' state, and return the slots of the clients whose labels changed.

    Args:
        outcomes: columns of `LABELS_IN`, any order; rows without labels are skipped.
        step: number of the step.
    """
    outcomes = outcomes.filter(pc.and_(outcomes["client_instance_id"].is_valid(), outcomes["labels"].is_valid()))
    if outcomes.num_rows == 0:
        return np.zeros(0, np.int64)
    outcomes = outcomes.take(pc.sort_indices(outcomes.select(_PLACE), [(name, "ascending") for name in _PLACE]))
    texts = label_texts(outcomes["labels"].combine_chunks())
    ids = [outcomes[name].combine_chunks().dictionary_encode() for name in ("cluster_id", "client_instance_id")]
    slots = clients.slots(client_keys(*ids))
    new_labels, stored_labels = texts_of(pa.chunked_array([texts])), clients.objects["labels"]
    has_labels = (slots >= 0) & (texts.fill_null("").to_numpy(zero_copy_only=False) != "")
    changed = np.unique(slots[has_labels & (new_labels != stored_labels[slots])])
    # Labels hardly ever change, so only those clients' rows are looked at one by one.
    for row in np.flatnonzero(np.isin(slots, changed)).tolist():
        if new_labels[row] and stored_labels[slots[row]] != new_labels[row]:
            stored_labels[slots[row]] = new_labels[row]
            _add_member(clients, int(slots[row]), new_labels[row])
    clients["step"][changed] = step
    return changed


def _add_member(clients: Clients, slot: int, text: str) -> None:
    member = dict(label_pairs(text)).get(MEMBER)
    members = clients.objects["group_member_ids"][slot] or ()
    if member and member not in members[-1:]:
        clients.objects["group_member_ids"][slot] = (*members, member)[-MOST_MEMBERS:]
