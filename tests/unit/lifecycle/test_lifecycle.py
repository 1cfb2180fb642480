"""States and events of client instances, from landed pushes alone."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS
from kafka_telemetry_lake.udfs.lifecycle.clients import Clients
from kafka_telemetry_lake.udfs.lifecycle.events import Event, EventLimit, event_rows, limited
from kafka_telemetry_lake.udfs.lifecycle.push_sequences import LIFECYCLE_IN, Clocks, with_clocks
from kafka_telemetry_lake.udfs.lifecycle.transitions import advance
from kafka_telemetry_lake.udfs.lifecycle.waves import counted

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
Rows = list[dict[str, Any]]
NO_VERSIONS = SUBSCRIPTIONS.schema.empty_table()
UNTOLD: dict[str, Any] = dict.fromkeys(("client_address", "client_port", "broker_id"))


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def push(seconds: float, offset: int, client: str = "a", **more: Any) -> dict[str, Any]:
    usual = {
        "source": "kafka", "cluster_id": "c", "topic": "client-telemetry", "partition": 0, "offset": offset,
        "landed_at": at(seconds), "client_instance_id": client, "client_id": f"id-{client}",
        "client_software_name": "apache-kafka-java", "client_software_version": "4.3.0", "client_address": "10.0.0.1",
        "client_port": 5000, "broker_id": 1, "push_interval_ms": 30_000, "terminating": False,
    }  # fmt: skip
    return usual | more


class Lifecycle:
    """Steps over pushes, as the pipeline does them; the state goes through its rows after each step."""

    def __init__(self, versions: pa.Table = NO_VERSIONS) -> None:
        self.clients, self.clocks, self.versions = Clients(), Clocks(), versions
        self.step = 0
        self.rows: pa.Table = self.clients.rows(np.zeros(0, np.int64))
        self.events: Rows = []

    def take(self, pushes: Iterable[Mapping[str, Any]]) -> Lifecycle:
        self.step += 1
        table = with_clocks(pa.Table.from_pylist(list(pushes), LIFECYCLE_IN), self.clocks)
        done = advance(self.clients, self.clocks, table, self.versions, self.step)
        self.rows = pa.concat_tables([self.rows, self.clients.rows(done.changed)])
        self.events += event_rows(self.clients, done.events).to_pylist()
        self.clients = Clients()
        self.clients.put(self.rows)
        return self

    def events_of(self, client: str = "a") -> list[tuple[float, str]]:
        """Time, s, and name of a client's events."""
        found = [row for row in self.events if row["client_instance_id"] == client]
        return [((row["at"] - START).total_seconds(), row["event"]) for row in found]

    def client(self, client: str = "a") -> dict[str, Any]:
        newest: dict[str, dict[str, Any]] = {
            row["client_instance_id"]: row for row in self.rows.sort_by("step").to_pylist()
        }
        return newest[client]


def others(seconds: float, offset: int) -> dict[str, Any]:
    """A push of another client of the partition, which moves its clock."""
    return push(seconds, offset, "z")


def versions(*entries: tuple[float, float | None, list[str], int]) -> pa.Table:
    """Rows of `subscriptions`: from, to (s), metrics and interval (ms) of one subscription for all clients."""
    rows = [
        {"cluster_id": "c", "name": "all", "metrics": metrics, "interval_ms": interval, "match": [],
         "valid_from": at(start), "valid_to": None if end is None else at(end), "not_seen_at": at(start),
         "last_seen_at": None if end is None else at(end)}
        for start, end, metrics, interval in entries
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, SUBSCRIPTIONS.schema)


def test_l1_first_push_and_what_is_known_of_a_client() -> None:
    row = Lifecycle().take([push(0, 7), push(30, 8)]).client()
    assert {name: row[name] for name in ("client_instance_id", "client_id", "state", "pushes", "missed_pushes")} == {
        "client_instance_id": "a", "client_id": "id-a", "state": "active", "pushes": 2, "missed_pushes": 0,
    }  # fmt: skip
    assert (row["first_seen"], row["last_seen"], row["offset"]) == (at(0), at(30), 8)
    assert (row["coverage"], row["brokers"], row["client_port"], row["broker_id"]) == (1.0, [1], 5000, 1)
    assert row["deadline"] == at(30 + 90)


def alice(seconds: float, offset: int, **more: Any) -> dict[str, Any]:
    return push(seconds, offset, **{"principal": "User:alice"} | more)


def test_l1_a_push_of_another_principal_says_nothing_about_the_client() -> None:
    """Whoever knows a client instance id could otherwise say its goodbye."""
    foreign = push(40, 2, principal="User:eve", terminating=True, client_software_version="0.1")
    for steps in ([[alice(0, 1), foreign, alice(60, 3)]], [[alice(0, 1)], [foreign], [alice(60, 3)]]):
        lifecycle = Lifecycle()
        for step in steps:
            lifecycle.take(step)
        assert lifecycle.events_of() == [(0, "first_seen")]
        row = lifecycle.client()
        assert (row["state"], row["pushes"], row["principal"], row["client_software_version"]) == (
            "active", 2, "User:alice", "4.3.0",
        )  # fmt: skip


def test_l1_a_principal_that_is_not_known_is_no_other() -> None:
    lifecycle = Lifecycle().take([push(0, 1), alice(30, 2), push(60, 3, terminating=True)])
    assert (lifecycle.client()["state"], lifecycle.client()["pushes"]) == ("terminated", 3)


@pytest.mark.parametrize(("silence", "expected"), [(86_400, "silent"), (86_400.001, "terminated")])
def test_l1_a_client_is_anybodys_a_day_after_its_last_push(silence: float, expected: str) -> None:
    other = alice(silence, 2, principal="User:bob", terminating=True)
    assert Lifecycle().take([alice(0, 1)]).take([other]).client()["state"] == expected
    assert Lifecycle().take([alice(0, 1), other]).client()["state"] == expected


def test_l3_silent_at_last_landing_plus_three_intervals() -> None:
    life = Lifecycle().take([push(0, 0), others(90, 1)])
    assert life.events_of() == [(0, "first_seen")]
    assert life.take([others(90.001, 2)]).events_of() == [(0, "first_seen"), (90, "went_silent")]
    row = life.client()
    assert (row["state"], row["silent_at"], row["deadline"]) == ("silent", at(90), None)
    silent = life.events[-1]
    assert (silent["offset"], silent["landed_at"]) == (0, at(0))
    assert dict(silent["detail"]) == {
        "last_seen": "2026-11-21T12:00:00.000000Z", "threshold_ms": "90000", "push_interval_ms": "30000",
    }  # fmt: skip


LENGTHENED = versions((-100, 50, ["*"], 30_000), (50, None, ["*"], 300_000))
MADE_AGAIN = versions((-100, 10, ["*"], 1000), (20, None, ["*"], 1000))


@pytest.mark.parametrize(
    ("asked", "pushes", "deadline"),
    [
        (NO_VERSIONS, [push(0, 0, push_interval_ms=1000)], 60),  # L3: a minute at least
        (NO_VERSIONS, [push(0, 0, push_interval_ms=None)], 900),  # L4: as the longest
        (NO_VERSIONS, [push(0, 0), push(30, 1, push_interval_ms=None)], 120),  # L4: the last one
        (LENGTHENED, [push(0, 0)], 950),
        (MADE_AGAIN, [push(0, 0, push_interval_ms=1000), others(330, 1), push(340, 2, push_interval_ms=1000)], 400),
    ],
    ids=["short", "unknown", "not said", "lengthened", "deleted and made again"],
)
def test_l3_l4_l5_silent_after_its_deadline_and_not_before(asked: pa.Table, pushes: Rows, deadline: float) -> None:
    life = Lifecycle(asked).take([*pushes, others(deadline, 8)])
    assert life.events_of() == [(0, "first_seen")]
    assert life.take([others(deadline + 0.001, 9)]).events_of() == [(0, "first_seen"), (deadline, "went_silent")]


def test_l2_other_partitions_clock_silences_nobody() -> None:
    life = Lifecycle().take([push(0, 0), push(5000, 0, "z", partition=1)])
    assert life.events_of() == [(0, "first_seen")]


def test_l7_silent_client_resumes() -> None:
    life = Lifecycle().take([push(0, 0), others(100, 1)]).take([push(150, 2)])
    assert life.events_of() == [(0, "first_seen"), (90, "went_silent"), (150, "resumed")]
    row = life.client()
    assert (row["state"], row["silent_at"], row["resumptions"], row["missed_pushes"]) == ("active", None, 1, 4)
    assert row["coverage"] == 1 - 4 * 30 / 150
    assert dict(life.events[-1]["detail"]) == {"from": "silent", "gap_ms": "150000"}


def test_l7_a_return_after_five_minutes_is_a_back_off() -> None:
    life = Lifecycle().take([push(0, 0, push_interval_ms=1000), push(304, 1, push_interval_ms=1000)])
    assert dict(life.events[-1]["detail"])["likely_cause"] == "telemetry_back_off"


def test_l8_a_push_read_late_takes_the_silence_back() -> None:
    life = Lifecycle().take([push(0, 0), others(100, 1)]).take([push(50, 2)])
    assert life.events_of()[1:] == [(90, "went_silent"), (50, "resumed")]
    assert dict(life.events[-1]["detail"])["corrects"] == "went_silent"
    assert (life.client()["state"], life.client()["deadline"]) == ("active", at(140))


def test_l6_terminated_by_the_flag_and_not_twice_within_the_interval() -> None:
    life = Lifecycle().take([push(0, 0), push(10, 1, terminating=True), push(20, 2, terminating=True)])
    assert life.events_of() == [(0, "first_seen"), (10, "terminated")]
    row = life.client()
    assert (row["state"], row["terminated_at"], row["last_seen"], row["deadline"]) == (
        "terminated",
        at(10),
        at(20),
        None,
    )
    assert life.take([others(5000, 3)]).events_of() == [(0, "first_seen"), (10, "terminated")]
    assert life.take([push(6000, 4, terminating=True)]).events_of()[2:] == [(6000, "terminated")]
    assert life.client()["terminated_at"] == at(6000)


def test_l7_terminated_is_not_final() -> None:
    life = Lifecycle().take([push(0, 0, terminating=True), push(100, 1)])
    assert life.events_of() == [(0, "first_seen"), (0, "terminated"), (100, "resumed")]
    assert (life.client()["state"], life.client()["terminated_at"], life.client()["missed_pushes"]) == (
        "active",
        None,
        0,
    )


def test_l8_a_push_from_before_the_termination_does_not_resume() -> None:
    life = Lifecycle().take([push(0, 0), push(30, 1, terminating=True), push(29, 2)])
    assert life.events_of() == [(0, "first_seen"), (30, "terminated")]
    assert (life.client()["state"], life.client()["pushes"]) == ("terminated", 3)


def test_l6_a_silent_client_may_say_goodbye() -> None:
    life = Lifecycle().take([push(0, 0), push(100, 1, terminating=True)])
    assert [name for _, name in life.events_of()] == ["first_seen", "went_silent", "resumed", "terminated"]


@pytest.mark.parametrize(
    ("gap", "second", "missed"),
    [
        (59.8, {}, 0),
        (59.9, {}, 1),
        (90, {}, 2),
        (74.8, {"client_port": 6000}, 0),  # started anew: up to 1.5 intervals
        (75, {"client_port": 6000}, 1),
        (74.8, {"client_port": None}, 0),  # perhaps anew
        (75, {"client_port": None}, 1),
        (85, {"push_interval_ms": 60_000}, 0),
    ],
)
def test_l9_d4_a_gap_misses_the_pushes_it_should_have_held(gap: float, second: dict[str, Any], missed: int) -> None:
    row = Lifecycle().take([push(0, 0), push(gap, 1, **second)]).client()
    assert (row["missed_pushes"], row["coverage"]) == (missed, pytest.approx(1 - missed * 30 / gap))


@pytest.mark.parametrize(("gap", "missed"), [(74.8, 0), (75, 1)])
def test_l9_where_ports_are_unknown_a_push_may_be_the_first_of_a_connection(gap: float, missed: int) -> None:
    row = Lifecycle().take([push(0, 0, **UNTOLD), push(gap, 1, **UNTOLD)]).client()
    assert row["missed_pushes"] == missed


def test_l10_l11_a_connection_that_names_no_software_is_no_other_client() -> None:
    """Brokers have the name `unknown` for it: franz-go before 1.21 names itself on its first connection only."""
    unnamed = {"client_software_name": "unknown", "client_software_version": "unknown"}
    for missing in (unnamed, dict.fromkeys(unnamed)):
        pushes = [push(30 * i, i, **(missing if i % 2 else {})) for i in range(8)]
        life = Lifecycle().take(pushes[:4]).take(pushes[4:])
        assert life.events_of() == [(0, "first_seen")]
        client = life.client()
        assert (client["client_software_name"], client["client_software_version"]) == ("apache-kafka-java", "4.3.0")


def test_l10_software_changes_under_one_id() -> None:
    life = Lifecycle().take([push(0, 0), push(30, 1, client_software_version=None)])
    life.take([push(60, 2, client_software_version="4.3.1")])
    assert life.events_of() == [(0, "first_seen"), (60, "software_changed")]
    assert dict(life.events[-1]["detail"]) == {"from": "apache-kafka-java 4.3.0", "to": "apache-kafka-java 4.3.1"}
    assert life.client()["client_software_version"] == "4.3.1"


@pytest.mark.parametrize(
    ("first", "second", "is_duplicate"),
    [
        ({}, {"client_address": "10.0.0.2"}, True),
        ({}, {"client_id": "other"}, True),
        ({}, {"client_port": 6000}, True),  # the same broker, faster than one timer
        ({}, {"client_port": 6000, "broker_id": 2}, False),  # a client pushes to whichever broker is least loaded
        ({"broker_id": None}, {"client_port": 6000, "broker_id": None}, None),  # perhaps to another broker
        ({}, {"client_port": None}, None),  # perhaps over the same connection
        (UNTOLD, UNTOLD, None),
        ({"client_address": None}, {"client_address": None}, None),  # perhaps from another host
        ({}, {"client_address": None}, False),  # what isn't told is as before
        ({}, {"client_id": None}, False),
        ({"principal": "User:a"}, {"principal": None}, False),
    ],
)
def test_l11_two_instances_with_one_id(
    first: dict[str, Any], second: dict[str, Any], is_duplicate: bool | None
) -> None:
    pushes = [push(10 * i, i, **(second if i % 2 else first)) for i in range(8)]
    life = Lifecycle().take(pushes[:5]).take(pushes[5:])
    assert [name for _, name in life.events_of()] == ["first_seen", *["duplicate_instance"] * (is_duplicate is True)]
    assert life.client()["duplicated"] is is_duplicate


def test_an_unknown_broker_is_none_of_those_that_took_pushes() -> None:
    life = Lifecycle().take([push(0, 0, **UNTOLD)])
    assert [life.client()[name] for name in (*UNTOLD, "brokers")] == [None] * 4
    assert life.take([push(30, 1), push(60, 2, broker_id=None)]).client()["brokers"] == [1]


@pytest.mark.parametrize(
    ("second", "is_duplicate"),
    [({"client_address": "10.0.0.2"}, True), ({"client_id": "b"}, True), ({"client_port": 6}, False)],
)
def test_l11_at_the_pace_of_one_timer_another_origin_tells(second: dict[str, Any], is_duplicate: bool) -> None:
    life = Lifecycle().take(push(30 * i, i, **(second if i % 2 else {})) for i in range(4))
    assert [name for _, name in life.events_of()] == ["first_seen", *["duplicate_instance"] * is_duplicate]


@pytest.mark.parametrize(
    "pushes",
    [
        [push(10 * i, i, client_address=f"10.0.0.{each}") for i, each in enumerate((1, 1, 2, 2, 3))],
        [push(30 * i, i, client_port=port) for i, port in enumerate((5000, 5000, 6000, 6000, 7000))],
    ],
    ids=["moves", "connects anew"],
)
def test_l11_a_client_that_moves_or_connects_anew_is_no_second_instance(pushes: Rows) -> None:
    assert [name for _, name in Lifecycle().take(pushes).events_of()] == ["first_seen"]


def test_l13_sparks_consumers_start_and_fall_silent_by_their_batches() -> None:
    clients, clocks = Clients(), Clocks()
    ids = {"spark": "consumer-spark-kafka-source-0d6f-1-executor-1", "job": "spark-job", "none": None}
    ids["restore"] = "app-1f0e8a5e-StreamThread-12-restore-consumer"
    rows = [push(0, n, name, client_id=client_id, broker_id=None) for n, (name, client_id) in enumerate(ids.items())]
    pushes = with_clocks(pa.Table.from_pylist([*rows, others(500, 9)], LIFECYCLE_IN), clocks)
    events = advance(clients, clocks, pushes, NO_VERSIONS, 1).events
    counts = counted(clients, events)
    kinds = {kind: sum(number for one, number in counts.items() if one.kind == kind) for kind in Event}
    assert (kinds[Event.FIRST_SEEN], kinds[Event.WENT_SILENT]) == (3, 2)  # of job, none and z; of job and none


def test_l1_pushes_without_an_instance_id_are_nobodys() -> None:
    assert Lifecycle().take([push(0, 0, client_instance_id=None)]).rows.num_rows == 0


def test_l12_single_events_are_bounded_and_view_clients_has_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_telemetry_lake.udfs.lifecycle.events.MOST_PER_MINUTE", 3)
    clients, clocks, event_limit = Clients(), Clocks(), EventLimit()
    counts = []
    for first in (0, 2, 4):
        rows = [push(0, first + i, f"n{first + i}") for i in range(2)]
        pushes = with_clocks(pa.Table.from_pylist(rows, LIFECYCLE_IN), clocks)
        events = limited(clients, advance(clients, clocks, pushes, NO_VERSIONS, 1).events)
        counts.append(event_limit.apply([events]).num_rows)
    assert (counts, clients.size) == ([2, 1, 0], 6)
    minute, partition = START.timestamp() // 60, ("kafka", "client-telemetry", 0)
    again = EventLimit(event_limit.content([partition]), [partition])
    assert again.counts == event_limit.counts
    event_limit.forget({partition: int(1e6 * 60 * (minute + 60))})
    assert list(event_limit.counts.values()) == [6]
    event_limit.forget({partition: int(1e6 * 60 * (minute + 61))})
    assert event_limit.counts == {}


def test_l5_nobody_asks_any_more() -> None:
    life = Lifecycle(versions((-100, 10, ["*"], 30_000))).take([push(0, 0), others(91, 1)])
    assert (life.events_of(), life.client()["state"]) == ([(0, "first_seen")], "unsubscribed")
    life.take([push(200, 2)])
    assert life.events_of() == [(0, "first_seen"), (200, "resumed")]
    assert dict(life.events[-1]["detail"]) == {"from": "unsubscribed", "gap_ms": "200000"}
    assert life.client()["missed_pushes"] == 0


def test_l5_who_is_not_asked_is_awaited_again_when_asked_again() -> None:
    asked = versions((-100, 10, ["*"], 30_000), (500, None, ["*"], 30_000))
    life = Lifecycle(asked).take([push(0, 0), others(400, 1)])
    assert life.client()["state"] == "unsubscribed"
    life.take([others(500 + 300 + 90 + 1, 2)])
    assert (life.events_of(), life.client()["state"]) == ([(0, "first_seen"), (890, "went_silent")], "silent")


def random_pushes(seed: int) -> Rows:
    """A disorderly fleet of few clients on two partitions: gaps, flags, late landings, changes, twins."""
    chance = random.Random(seed)
    now = [0.0, 0.0]
    pushes = []
    for offset in range(120):
        client = chance.randrange(8)
        partition = client % 2
        now[partition] += chance.choice([0, 0.5, 5, 20, 45])
        late = chance.choice([0, 0, 0, 0, 3, 70])
        pushes.append(
            push(
                now[partition] - late, offset, f"client-{client}", partition=partition,
                terminating=chance.random() < 0.1, push_interval_ms=chance.choice([1000, 20_000, 20_000, None]),
                principal=chance.choice([None, "User:a", "User:a", "User:b"]),
                client_port=chance.choice([5000, 5000, 6000, None]), broker_id=chance.choice([1, 1, 2]),
                client_software_version=chance.choice(["4.3.0"] * 9 + ["4.3.1", None]),
                client_address=chance.choice(["10.0.0.1", "10.0.0.1", "10.0.0.2", None]),
            )
        )  # fmt: skip
    return pushes


@pytest.mark.parametrize("seed", range(12))
def test_l2_events_do_not_depend_on_how_pushes_are_cut_into_steps(seed: int) -> None:
    pushes, chance = random_pushes(seed), random.Random(seed)
    asked = versions((-100, 300, ["*"], 20_000), (330, 700, ["*"], 60_000), (900, None, ["*"], 20_000))

    def key(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(map(str, (row["partition"], row["offset"], row["at"], row["event"], row["detail"])))

    whole = Lifecycle(asked).take(pushes)
    assert {Event[name.upper()] for _, name in whole.events_of("client-1")} >= {Event.FIRST_SEEN}
    for _ in range(2):
        cut = Lifecycle(asked)
        first = 0
        while first < len(pushes):
            size = chance.randrange(1, 25)
            cut.take(pushes[first : first + size])
            first += size
        assert sorted(cut.events, key=key) == sorted(whole.events, key=key)
        for number in range(8):
            ours, theirs = (dict(life.client(f"client-{number}")) for life in (cut, whole))
            assert ours | {"step": 0} == theirs | {"step": 0}
