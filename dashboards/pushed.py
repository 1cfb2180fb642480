"""The client instances of some pushes, counted and listed: the answers to questions `totals` and `instances`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# Columns of which rows have numbers, the places of texts in a list of them.
TEXTS = (
    "cluster_id",
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "principal",
    "client_address",
    "group_id",
)
# `at`: µs since 1970. `instance`: its number. `interval`: ms. `terminating`: -1 is NULL, as of the texts.
TYPES = dict.fromkeys(TEXTS, np.int32) | {
    "at": np.int64,
    "instance": np.int32,
    "interval": np.int32,
    "terminating": np.int8,
    "is_push": np.bool_,
}
UNKNOWN = int(np.iinfo(np.int32).min)  # a push interval
TIME = pa.timestamp("us", "UTC")

Column = npt.NDArray[Any]
Places = npt.NDArray[np.int64]


class PushedInstances:
    """The instances that have pushes in some rows."""

    def __init__(self, rows: Mapping[str, Column], texts: Mapping[str, pa.Array], known: int) -> None:
        """Take rows in the order of time, of equal ones the greater id first.

        Args:
            rows: columns of `TYPES`. A row that isn't a push has only a group.
            texts: what the numbers of `TEXTS` stand for.
            known: how many instances have numbers.
        """
        self._rows, self._texts, self._known = rows, texts, known
        self._pushes = np.flatnonzero(rows["is_push"])
        self._of = self._rows["instance"][self._pushes]

    @cached_property
    def _count(self) -> Places:
        """How often each known instance pushed."""
        return np.bincount(self._of, minlength=self._known)

    @cached_property
    def _first(self) -> Places:
        """The row of each instance's first push."""
        rows = np.full(self._known, -1)
        rows[self._of[::-1]] = self._pushes[::-1]
        return rows

    @cached_property
    def _last(self) -> Places:
        """The row of each instance's last push; -1: it has none."""
        rows = np.full(self._known, -1)
        rows[self._of] = self._pushes  # of several, NumPy stores the last
        return rows

    @cached_property
    def _interval(self) -> Column:
        """The longest push interval of each instance."""
        longest = np.full(self._known, UNKNOWN, np.int32)
        np.maximum.at(longest, self._of, self._rows["interval"][self._pushes])
        return longest

    def _latest(self, name: str) -> Column:
        """The last value that is known of each instance; -1: none is."""
        values = self._rows[name]
        known = np.flatnonzero(values >= 0)
        latest = np.full(self._known, -1, values.dtype)
        latest[self._rows["instance"][known]] = values[known]
        return latest

    def totals(self) -> pa.Table:
        """The answer to question `totals`."""
        shown = np.flatnonzero(self._count)
        pushes, interval = self._count[shown], self._interval[shown]
        at = self._rows["at"]
        pushing_ms = at[self._last[shown]] // 1000 - at[self._first[shown]] // 1000
        has_interval = interval > 0
        due = np.zeros(len(shown))
        due[has_interval] = np.floor(pushing_ms[has_interval] / interval[has_interval] + 0.5)
        known = interval[interval != UNKNOWN]
        clusters = np.unique(self._rows["cluster_id"][self._pushes])
        client_ids = np.unique(self._rows["client_id"][self._pushes])
        names = self._text("client_id", client_ids)
        return pa.table(
            {
                "instances": [len(shown)],
                "pushes": [int(pushes.sum())],
                "push_interval_ms": pa.array([float(np.median(known)) if len(known) else None], pa.float64()),
                "due": [float(due.sum())],
                "landed": [float(np.minimum(pushes - 1, due).sum())],
                "clusters": [sorted(self._text("cluster_id", clusters[clusters >= 0]).to_pylist()) or None],
                "client_ids": [pc.count_distinct(pc.fill_null(names, "")).as_py()],
            }
        )

    def instances(self) -> pa.Table:
        """The answer to question `instances`."""
        shown = np.flatnonzero(self._count)
        shown = shown[np.argsort(-self._last[shown])]
        last, at = self._last[shown], self._rows["at"]
        interval = self._interval[shown]
        names = {name: self._latest(name)[shown] for name in TEXTS[2:]}
        software, version = (names.pop(name) for name in ("client_software_name", "client_software_version"))
        return pa.table(
            {
                "cluster_id": self._text("cluster_id", self._rows["cluster_id"][last]),
                "client_instance_id": self._text("client_instance_id", self._rows["client_instance_id"][last]),
                "client_id": pc.fill_null(self._text("client_id", names["client_id"]), ""),
                "client_software_name": self._text("client_software_name", software),
                "client_software_version": self._text("client_software_version", version),
                **{name: self._text(name, names[name]) for name in ("principal", "group_id", "client_address")},
                "push_interval_ms": pa.array(interval, pa.int32(), mask=interval == UNKNOWN),
                "pushes": self._count[shown],
                "first_push": pa.array(at[self._first[shown]]).cast(TIME),
                "last_push": pa.array(at[last]).cast(TIME),
                "terminated": self._latest("terminating")[shown] == 1,
                "software": self._software(software, version),
            }
        )

    def _text(self, name: str, places: Column) -> pa.Array:
        return self._texts[name].take(pa.array(places, mask=places < 0))

    def _software(self, names: Column, versions: Column) -> pa.Array:
        """Name and version as one text, which is made once of each."""
        both = pa.array((names.astype(np.int64) + 1) << 32 | (versions.astype(np.int64) + 1)).dictionary_encode()
        pairs = both.dictionary.to_numpy()
        parts = [
            self._text("client_software_name", (pairs >> 32) - 1),
            self._text("client_software_version", (pairs & 0xFFFFFFFF) - 1),
        ]
        texts = pc.binary_join_element_wise(*(pc.fill_null(part, "unknown") for part in parts), " ")
        return texts.take(both.indices)
