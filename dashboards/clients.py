"""The client instances that pushed in a time range: counted for every page, listed for pages that need each of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.dashboards.address import FILTERS, OWNED, Selection
from kafka_telemetry_lake.dashboards.answers import Asked, answer
from kafka_telemetry_lake.dashboards.lake import LakeReader, Versions
from kafka_telemetry_lake.dashboards.questions import MOST_INSTANCES, Parameter, in_words

LOOK_SHARE, MOST_LOOK_S = 30, 60  # times what counting the clients takes; at most


class Totals(NamedTuple):
    """What all of some client instances add up to.

    Attributes:
        instances, client_ids: how many pushed.
        pushes: with an instance id.
        push_interval_ms: of the median instance; 0: unknown.
        due, landed: pushes that were due between an instance's first and last one, and those of them that landed.
        clusters: names of their clusters, in order.
    """

    instances: int
    client_ids: int
    pushes: int
    push_interval_ms: float
    due: float
    landed: float
    clusters: tuple[str, ...]


NONE = Totals(0, 0, 0, 0, 0, 0, ())


@dataclass(frozen=True)
class SelectedClients:
    """The client instances that pushed in a time range of a lake at `versions`, and those that pass the filters."""

    lake: LakeReader
    versions: Versions
    selection: Selection
    start: datetime
    stop: datetime

    @cached_property
    def known(self) -> Totals:
        """Totals of all instances of the time range."""

        def ask(asked: Asked) -> pa.Table:
            began = time.monotonic()
            kept = self.lake.pushed(self.start, self.stop, asked)
            rows = kept.totals() if kept else self.lake.ask("totals", self._range, asked=asked)
            # Who looks at a large lake sees one moment for a while, rather than that each page begins anew.
            self.lake.look_every_s = min(MOST_LOOK_S, LOOK_SHARE * (time.monotonic() - began))
            return rows

        (row,) = answer((*self._key, "totals"), lambda: in_words("totals"), ask).to_pylist()
        interval, clusters = row.pop("push_interval_ms") or 0, tuple(row.pop("clusters") or ())
        return Totals(**row, push_interval_ms=interval, clusters=clusters)

    @cached_property
    def shown(self) -> Totals:
        """Totals of the instances that pass the filters."""
        return totals_of(self.chosen) if self.selection.filters else self.known

    @cached_property
    def instances(self) -> pa.Table:
        """All instances, those with the latest pushes first: the rows of question `instances`."""

        def ask(asked: Asked) -> pa.Table:
            kept = self.lake.pushed(self.start, self.stop, asked)
            rows = kept.instances() if kept else self.lake.ask("instances", self._range, asked=asked)
            return rows.slice(0, MOST_INSTANCES)

        return answer((*self._key, "instances"), lambda: in_words("instances"), ask)

    @property
    def are_listed_at_once(self) -> bool:
        """Whether a list of all instances costs little."""
        return self.known.instances <= MOST_INSTANCES and self.lake.pushes.keeps(self.start)

    @cached_property
    def chosen(self) -> pa.Table:
        """The rows of `instances` that have one of the values of each filter."""
        return _passing(self.instances, self.selection, lambda: self.owners)

    @cached_property
    def owners(self) -> pa.Table:
        """Application and owner of each instance that has one; without a list of applications nobody is asked."""
        if {"client_aliases", "application_rules"}.isdisjoint(dict(self.versions)):
            return pa.table({name: pa.array([], pa.string()) for name in ("client_instance_id", *OWNED)})
        return answer(
            (self.lake.uri, self.versions, "owners"),
            lambda: in_words("owners"),
            lambda asked: self.lake.ask("owners", {"top": MOST_INSTANCES}, asked=asked),
        )

    @property
    def _range(self) -> dict[str, Parameter]:
        return {"start": self.start, "stop": self.stop}

    @property
    def _key(self) -> tuple[Hashable, ...]:
        return self.lake.uri, self.versions, self.start, self.stop


@dataclass(frozen=True)
class ClientsOfId(SelectedClients):
    """The client instances of one client id that pushed in a time range: no others are listed.

    Attributes:
        client_id: "" are those without a client id.
    """

    client_id: str

    @cached_property
    def instances(self) -> pa.Table:
        """The rows of question `instances` of this client id, those with the latest pushes first."""
        name = "instances_by_client_id"
        values: dict[str, Parameter] = {"start": self.start, "stop": self.stop, "client": self.client_id}
        rows = answer(
            (*self._key, name, self.client_id),
            lambda: in_words(name),
            lambda asked: self.lake.ask(name, values, asked=asked, everybody=True),
        )
        return rows.slice(0, MOST_INSTANCES)


def totals_of(rows: pa.Table) -> Totals:
    """The totals of some rows of question `instances`; as its question `totals` counts all of them."""
    if not rows.num_rows:
        return NONE
    clients = rows.select(["pushes", "push_interval_ms", "first_push", "last_push"]).to_pandas()
    on_time = clients[clients["push_interval_ms"] > 0]
    between_ms = (on_time["last_push"] - on_time["first_push"]).dt.total_seconds() * 1000
    due = (between_ms / on_time["push_interval_ms"]).round()
    return Totals(
        instances=rows.num_rows,
        client_ids=len(pc.unique(rows["client_id"])),
        pushes=int(clients["pushes"].sum()),
        push_interval_ms=pc.quantile(rows["push_interval_ms"].cast("double"), 0.5)[0].as_py() or 0,
        due=float(due.sum()),
        landed=float((on_time["pushes"] - 1).clip(upper=due).sum()),
        clusters=tuple(sorted(pc.unique(rows["cluster_id"]).drop_null().to_pylist())),
    )


def _passing(instances: pa.Table, selection: Selection, owners: Callable[[], pa.Table]) -> pa.Table:
    """The instances that have one of the values of each filter."""
    for key, column in FILTERS.items():
        wanted = pa.array(selection.chosen(key), pa.string())
        if len(wanted) and key in OWNED:
            known = owners()
            ids = known.filter(pc.is_in(known[key], wanted))["client_instance_id"]
            instances = instances.filter(pc.is_in(instances["client_instance_id"], ids))
        elif len(wanted):
            instances = instances.filter(pc.is_in(instances[column], wanted))
    return instances
