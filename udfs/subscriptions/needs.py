"""Which findings and views lose or gain metrics that they need when clients are asked for others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kafka_telemetry_lake.udfs.subscriptions.what_if import Requested, is_of


class MetricReader(NamedTuple):
    """What reads metrics, by their whole names and by library."""

    what: str
    """finding or view"""
    name: str
    metrics: Mapping[str, frozenset[str]]


class AskedAlike(NamedTuple):
    """So many client instances of a library and of the same kinds, what is asked of them, and what would be."""

    number: int
    library: str
    kinds: frozenset[str]
    before: Requested
    after: Requested


class ChangedNeed(NamedTuple):
    """What a reader loses or gains, and for how many clients of how many that have such metrics."""

    what: str
    name: str
    change: str
    clients: int
    of_clients: int
    metrics: tuple[str, ...]


def changed_needs(readers: Iterable[MetricReader], clients: Iterable[AskedAlike]) -> Iterator[ChangedNeed]:
    """The losses, then the gains.

    A finding needs all its metrics: without one it can't be judged. A view shows what there is, so each counts. Metrics
    of another kind of client aren't needed, as a consumer's of a producer.
    """
    known = list(clients)
    found: list[ChangedNeed] = []
    for reader in readers:
        metrics: dict[str, set[str]] = defaultdict(set)
        affected: dict[str, int] = defaultdict(int)
        concerned = 0
        for some in known:
            needed = {each for each in reader.metrics.get(some.library, ()) if is_of(each, some.kinds)}
            if not needed:
                continue
            concerned += some.number
            before, after = ({each for each in needed if one.asks_for(each)} for one in (some.before, some.after))
            whole = needed if reader.what == "finding" else set[str]()
            for change, has, other in (("loses", before, after), ("gains", after, before)):
                if has - other and has >= whole:
                    metrics[change] |= has - other
                    affected[change] += some.number
        found += [
            ChangedNeed(reader.what, reader.name, change, affected[change], concerned, tuple(sorted(metrics[change])))
            for change in metrics
        ]
    yield from sorted(found, key=lambda need: (need.change != "loses", need.what, need.name))
