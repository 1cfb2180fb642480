"""Mass events (L13): one event when many clients of a cluster fall silent, or start, within minutes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np

from kafka_telemetry_lake.udfs.kernels.arrays import Objects
from kafka_telemetry_lake.udfs.lifecycle.clients import Clients, Partition, objects_of
from kafka_telemetry_lake.udfs.lifecycle.events import EPOCH, MINUTE_US, NUMBERS, Event, Events
from kafka_telemetry_lake.udfs.lifecycle.rows import UNSUBSCRIBED

WINDOW = 5  # minutes that a wave may take to reach its size
LEAST_CLIENTS = 20
LEAST_SHARE = 0.1  # of the clients that were active before
# A partition this far behind the others is idle, and isn't waited for.
IDLE_US = 10 * MINUTE_US
MOST_LISTED = 5  # software versions or brokers in a detail
# Client ids of consumers that fall silent as a batch ends, since they push only while they are polled: Spark's, and
# restore consumers of Streams.
POLLED_IN_BATCHES = re.compile(
    "(consumer-)?spark-(kafka-(source|relation)|executor)-|.*-StreamThread-[0-9]+-restore-consumer$"
)
STARTS = (Event.FIRST_SEEN, Event.RESUMED)
# A wave's detail counts its clients by this: starting ones by software, silent ones by broker.
GROUPED = {"mass_restart": "software", "mass_silence": "brokers"}
Row = dict[str, Any]


@dataclass
class MinuteCounts:
    """One minute of a cluster: counts of events by kind, and of clients by software or broker."""

    net: int = 0  # change in the number of active clients
    counts: dict[str, int] = field(default_factory=dict)
    software: dict[str, int] = field(default_factory=dict)
    brokers: dict[str, int] = field(default_factory=dict)

    def clients(self, wave: str) -> int:
        kinds = STARTS if wave == "mass_restart" else (Event.WENT_SILENT,)
        return sum(self.counts.get(kind.name, 0) for kind in kinds)


@dataclass
class ClusterMinutes:
    """The minutes of a cluster, numbered since 1970, and the waves under way."""

    active: int = 0  # clients, after the last closed minute
    closed: int = 0  # the last closed minute
    minutes: dict[int, MinuteCounts] = field(default_factory=dict)  # open ones
    recent: dict[int, MinuteCounts] = field(default_factory=dict)  # closed ones of the last `WINDOW`
    waves: dict[str, int] = field(default_factory=dict)  # name to the last minute in which it showed


class Waves:
    """Counts events by minute, and reports a wave once the clocks of all partitions have passed its minute.

    So waves depend on the records alone, as single events do.
    """

    def __init__(self, content: Mapping[str, Any] | None = None) -> None:
        self._clusters: dict[tuple[str, str, str], ClusterMinutes] = {}
        for entry in (content or {}).get("clusters", ()):
            scalars = {name: entry[name] for name in ("active", "closed", "waves")}
            minutes, recent = (
                {int(minute): MinuteCounts(**counts) for minute, counts in entry[name].items()}
                for name in ("minutes", "recent")
            )
            self._clusters[tuple(entry["key"])] = ClusterMinutes(minutes=minutes, recent=recent, **scalars)

    def content(self) -> dict[str, Any]:
        """The whole state as JSON values, for the constructor."""
        return {"clusters": [{"key": key, **asdict(cluster)} for key, cluster in self._clusters.items()]}

    def waits(self, now: int) -> bool:
        """Whether a minute that ended before `now`, µs, is still open."""
        passed = now // MINUTE_US - 1
        return any(minute <= passed for cluster in self._clusters.values() for minute in cluster.minutes)

    def add(self, counts: Mapping[CountedEvents, int]) -> None:
        """Count events of clients: those of `counted`."""
        for (source, topic, cluster_id, kind, minute, net, software, broker), number in counts.items():
            cluster = self._clusters.setdefault((source, topic, cluster_id), ClusterMinutes())
            if minute <= cluster.closed:  # the minute has been reported already
                cluster.active += number * net
                continue
            counted = cluster.minutes.setdefault(minute, MinuteCounts())
            counted.net += number * net
            _count(counted.counts, Event(kind).name, number)
            if kind in STARTS:
                _count(counted.software, software, number)
            elif kind == Event.WENT_SILENT:
                _count(counted.brokers, str(broker) if broker >= 0 else "unknown", number)

    def close(self, clocks: Mapping[Partition, int]) -> list[Row]:
        """Close the minutes that all partitions have passed, and return their waves: rows of ``CLIENT_EVENTS``."""
        by_topic: dict[tuple[str, str], list[int]] = {}
        for (source, topic, _), clock in clocks.items():
            by_topic.setdefault((source, topic), []).append(clock)
        rows: list[Row] = []
        for (source, topic, cluster_id), cluster in self._clusters.items():
            times = by_topic.get((source, topic), [0])
            passed = min(time for time in times if time > max(times) - IDLE_US) // MINUTE_US - 1
            place = {"source": source, "topic": topic, "cluster_id": cluster_id or None}
            for minute in sorted(minute for minute in cluster.minutes if minute <= passed):
                rows += [place | row for row in _close(cluster, minute)]
            cluster.closed = max(cluster.closed, passed)
        return rows


class CountedEvents(NamedTuple):
    """What events that are counted together have in common; the change is that of the number of active clients."""

    source: str
    topic: str
    cluster_id: str
    kind: int
    minute: int
    net: int
    software: str
    broker: int


def counted(clients: Clients, events: Events) -> Counter[CountedEvents]:
    """The numbers of events, for `Waves.add`; those of `POLLED_IN_BATCHES` say nothing about the fleet."""
    names = clients.objects["client_id"][events.slot].tolist()
    counts_for_fleet = np.array([POLLED_IN_BATCHES.match(name or "") is None for name in names], np.bool_)
    states_before = events.numbers[:, NUMBERS[Event.RESUMED].index("state_before")]
    brokers = clients["broker_id"][events.slot]
    columns = (events.kind, events.at // MINUTE_US, events.partition, states_before, brokers)
    texts = (_software(clients, events), clients.objects["cluster_id"][events.slot])
    rows = zip(*(column[counts_for_fleet].tolist() for column in (*columns, *texts)), strict=True)
    counts: Counter[CountedEvents] = Counter()
    for (kind, minute, code, state_before, broker, named, cluster_id), number in Counter(rows).items():
        source, topic, _ = clients.partitions[code]
        net = _net(kind, state_before)
        counts[CountedEvents(source, topic, cluster_id or "", kind, minute, net, named, broker)] += number
    return counts


def _software(clients: Clients, events: Events) -> Objects:
    names, versions = (clients.objects[f"client_software_{part}"][events.slot] for part in ("name", "version"))
    return objects_of([f"{a or '?'} {b or '?'}" for a, b in zip(names, versions, strict=True)])


def _net(kind: int, state_before: int) -> int:
    """The change in the number of active clients that an event means."""
    if kind in STARTS:
        return 0 if kind == Event.RESUMED and state_before == UNSUBSCRIBED else 1
    return -1 if kind in (Event.WENT_SILENT, Event.TERMINATED) else 0


def _close(cluster: ClusterMinutes, minute: int) -> list[Row]:
    cluster.recent = {number: counted for number, counted in cluster.recent.items() if number > minute - WINDOW}
    cluster.recent[minute] = cluster.minutes.pop(minute)
    cluster.active += cluster.recent[minute].net
    # Active clients before the window, and after each of its minutes but the last.
    nets = [counted.net for counted in cluster.recent.values()]
    active = [max(0, cluster.active - sum(nets[place:])) for place in range(len(nets))]
    rows = []
    for wave, grouped in GROUPED.items():
        before = max(active) if wave == "mass_silence" else active[0]
        count = sum(counted.clients(wave) for counted in cluster.recent.values())
        least = max(LEAST_CLIENTS, LEAST_SHARE * before)
        under_way = minute - cluster.waves.get(wave, -WINDOW) < WINDOW
        if count < least or before < LEAST_CLIENTS:
            if count < least / 2:
                cluster.waves.pop(wave, None)
            continue
        cluster.waves[wave] = minute
        if not under_way:
            rows.append(_row(cluster, minute, wave, grouped, count, before))
    return rows


def _row(cluster: ClusterMinutes, minute: int, wave: str, grouped: str, count: int, before: int) -> Row:
    named: Counter[str] = Counter()
    events: Counter[str] = Counter()
    for each in cluster.recent.values():
        named.update(getattr(each, grouped))
        events.update({name.lower(): number for name, number in each.counts.items()})
    most = sorted(named.items(), key=lambda item: (-item[1], item[0]))[:MOST_LISTED]
    at = EPOCH + timedelta(minutes=minute + 1)
    detail = {
        "clients": str(count),
        "active_before": str(before),
        "share": f"{min(1.0, count / before):.3f}",
        "window_s": str(60 * WINDOW),
        grouped: ", ".join(f"{name}: {number}" for name, number in most),
        **{name: str(number) for name, number in sorted(events.items())},
    }
    return {"landed_at": at, "at": at, "event": wave, "detail": list(detail.items())}


def _count(counts: dict[str, int], name: str, number: int) -> None:
    counts[name] = counts.get(name, 0) + number
