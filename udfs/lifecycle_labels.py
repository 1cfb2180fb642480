"""Labels of client instances: the resource attributes of their pushes, which change when a consumer joins a group."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from udfs.identity import client_keys
from udfs.lifecycle_state import KEPT_MEMBERS, Clients, label_pairs, label_texts, texts_of
from udfs.rows import PUSH_OUTCOMES

_PLACE = ("source", "topic", "partition", "offset")
# What is read of table `push_outcomes`.
LABELS_IN = pa.schema([PUSH_OUTCOMES.field(name) for name in (*_PLACE, "cluster_id", "client_instance_id", "labels")])
MEMBER = "group_member_id"


def label(clients: Clients, outcomes: pa.Table, step: int) -> npt.NDArray[np.int64]:
    """Take the labels of pushes into the clients' state; gives the slots of the clients whose labels changed.

    Args:
        outcomes: columns of `LABELS_IN`, any order; a push without labels says nothing.
        step: number of the step.
    """
    none = np.zeros(0, np.int64)
    outcomes = outcomes.filter(pc.and_(outcomes["client_instance_id"].is_valid(), outcomes["labels"].is_valid()))
    if outcomes.num_rows == 0:
        return none
    outcomes = outcomes.take(pc.sort_indices(outcomes.select(_PLACE), [(name, "ascending") for name in _PLACE]))
    texts = label_texts(outcomes["labels"].combine_chunks())
    ids = [outcomes[name].combine_chunks().dictionary_encode() for name in ("cluster_id", "client_instance_id")]
    slots = clients.slots(client_keys(*ids))
    # Only where a client's labels differ from those before, which is hardly ever.
    told = texts_of(pa.chunked_array([texts]))
    held = clients.objects["labels"]
    differs = (slots >= 0) & (texts.fill_null("").to_numpy(zero_copy_only=False) != "") & (told != held[slots])
    changed = np.unique(slots[differs])
    for row in np.flatnonzero(np.isin(slots, changed)).tolist():
        if told[row] and held[slots[row]] != told[row]:
            held[slots[row]] = told[row]
            _join(clients, int(slots[row]), told[row])
    clients["step"][changed] = step
    return changed


def _join(clients: Clients, slot: int, text: str) -> None:
    member = dict(label_pairs(text)).get(MEMBER)
    members = clients.objects["group_member_ids"][slot] or ()
    if member and member not in members[-1:]:
        clients.objects["group_member_ids"][slot] = (*members, member)[-KEPT_MEMBERS:]
