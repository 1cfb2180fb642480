"""Rebootstraps and dead data paths: from what pushes tell of connections to events and the view over them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.udfs import rows
from kafka_telemetry_lake.udfs.conversion.shard import process
from kafka_telemetry_lake.udfs.conversion.state import ShardState
from kafka_telemetry_lake.udfs.identity import client_keys
from kafka_telemetry_lake.udfs.lifecycle.clients import Clients
from kafka_telemetry_lake.udfs.lifecycle.events import event_rows
from kafka_telemetry_lake.udfs.lifecycle.rebootstrap import take_signals
from kafka_telemetry_lake.udfs.lifecycle.step import OUTCOMES_IN
from tests.support.landing_records import captured
from tests.support.local_stream import push_rows
from tests.support.sql_views import answer
from tests.unit.lifecycle.test_lifecycle import push
from tests.unit.lifecycle.test_lifecycle_lake import LandedLake

Row = dict[str, Any]
BEGUN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGUN + timedelta(seconds=seconds)


def outcome(seconds: float, offset: int | None = None, name: str = "a", **signals: Any) -> Row:
    """A row of `push_outcomes`; offsets follow the time unless given."""
    place = {"source": "kafka", "cluster_id": "c", "topic": "t", "partition": 0}
    offset = int(1000 * seconds) if offset is None else offset
    return {
        **place, "offset": offset, "landed_at": at(seconds), "client_instance_id": name, "outcome": "points", **signals,
    }  # fmt: skip


def java(bootstrap: int, responses: int, created: int = 0, closed: int = 0, **more: Any) -> Row:
    usual = {
        "client_port": 5000, "bootstrap_requests": bootstrap, "broker_requests": responses,
        "broker_responses": responses, "connections_created": created, "connections_closed": closed,
        "bootstrap_nodes": 1, "broker_nodes": 2, "answering_nodes": 2,
    }  # fmt: skip
    return usual | more


def librdkafka(port: int, created: int = 0, answering: int = 2, bootstrap: int = 0, brokers: int = 2) -> Row:
    return {
        "client_port": port, "connections_created": created, "bootstrap_nodes": bootstrap, "broker_nodes": brokers,
        "answering_nodes": answering,
    }  # fmt: skip


def in_turn(signals: Iterable[Row], name: str = "a", every: float = 1) -> list[Row]:
    return [outcome(every * turn, name=name, **each) for turn, each in enumerate(signals)]


def events(steps: Iterable[Sequence[Row]], *, read_back: bool = False) -> list[Row]:
    """Rows of `client_events`, step by step; `read_back`: the state goes through its table between steps."""
    clients, found = Clients(), []
    for number, step in enumerate(steps, 1):
        names = [str(row["client_instance_id"]) for row in step]
        columns = [pa.array(each, pa.string()).dictionary_encode() for each in (["c"] * len(names), names)]
        keys = client_keys(*columns)
        for key, name in dict(zip(keys.tolist(), names, strict=True)).items():
            if clients.slots(keys[keys == key][:1])[0] < 0:
                slot = clients.add(keys[keys == key][:1])
                clients.objects["cluster_id"][slot], clients.objects["client_instance_id"][slot] = "c", name
                clients.numbers["partition"][slot] = clients.partition_code(("kafka", "t", 0))
        shuffled = random.Random(number).sample(list(step), len(step))
        changed, signs = take_signals(clients, pa.Table.from_pylist(shuffled, OUTCOMES_IN), number)
        found += event_rows(clients, signs).to_pylist()
        assert set(clients["step"][changed].tolist()) <= {number}
        if read_back:
            rows = clients.rows(pa.array(range(clients.size)).to_numpy())
            clients = Clients()
            clients.put(rows)
    return sorted(found, key=lambda row: (row["offset"], row["event"]))


def events_of(signals: Iterable[Row], every: float = 1) -> list[tuple[float, str]]:
    """Seconds and name of each event."""
    return [((row["at"] - BEGUN).total_seconds(), row["event"]) for row in events([in_turn(signals, every=every)])]


FIRST, STEADY = java(4, 6, 3), java(1, 10)
IDLE = java(1, 0)
REBOOTSTRAP = "rebootstrap"


@pytest.mark.parametrize(
    ("pushes", "expected"),
    [
        ([FIRST, STEADY, STEADY, java(3, 5, 2, 3), STEADY], [(3, REBOOTSTRAP)]),
        # In the push after that with the closed connections, which had no time to show it.
        ([FIRST, STEADY, java(1, 3, 0, 4), java(2, 5), STEADY], [(3, REBOOTSTRAP)]),
        # Telemetry goes over a broker's connection: a single request to a bootstrap node is one too many.
        ([java(3, 6, 3), java(0, 10), java(1, 8, 0, 7), STEADY], [(2, REBOOTSTRAP)]),
        ([FIRST, STEADY, java(1, 10, 1, 1), STEADY], []),  # a broker's connection made anew
        ([FIRST, STEADY, java(2, 10), STEADY], []),  # telemetry twice, over the same connections
        ([FIRST, java(3, 9, 1), STEADY], []),  # no usual level yet
        # Its telemetry goes over the bootstrap connection from now on, one request a push.
        ([java(3, 6, 3), java(0, 10), java(4, 5, 3, 3), *[STEADY] * 4], [(2, REBOOTSTRAP)]),
        # Bootstrapped again and again, until a broker answers: one episode.
        (
            [FIRST, STEADY, java(5, 0, 0, 7), java(1, 0, 0, 2), java(2, 0), java(1, 4, 1), STEADY, java(4, 5, 2, 3)],
            [(2, REBOOTSTRAP), (7, REBOOTSTRAP)],
        ),
        # What is usual is what quiet pushes show, no more and no less.
        (
            [FIRST, STEADY, java(1, 3, 0, 4), java(2, 5), java(1, 5, 1), java(2, 4, 1, 1)],
            [(3, REBOOTSTRAP), (5, REBOOTSTRAP)],
        ),
        ([FIRST, STEADY, java(0, 5, 0, 3), STEADY], []),
    ],
)  # fmt: skip
def test_l14_java_rebootstraps(pushes: list[Row], expected: list[tuple[float, str]]) -> None:
    assert events_of(pushes) == expected


def test_l14_what_a_rebootstrap_tells() -> None:
    (row,) = events([in_turn([FIRST, STEADY, java(3, 5, 2, 3)])])
    assert {name: row[name] for name in ("client_instance_id", "cluster_id", "partition", "offset", "at")} == {
        "client_instance_id": "a", "cluster_id": "c", "partition": 0, "offset": 2000, "at": at(2),
    }  # fmt: skip
    assert dict(row["detail"]) == {"bootstrap": "3", "usual_bootstrap": "1", "connections_created": "2"}


STABLE = librdkafka(5000)
# It knows a single broker.
LONE = [librdkafka(5000, 0, 1, 0, 1), librdkafka(5001, 1, 1, 0, 1), librdkafka(5001, 0, 1, 0, 1)]


@pytest.mark.parametrize(
    ("pushes", "expected"),
    [
        # A push in the middle of it knows the bootstrap node alone, a consumer's one more than its coordinator.
        ([STABLE, STABLE, librdkafka(5001, 1, 0, 1, 0), librdkafka(5002, 2), STABLE], [(2, REBOOTSTRAP)]),
        ([librdkafka(5000, bootstrap=1)] * 2 + [librdkafka(5001, 3, 0, 2, 1)], [(2, REBOOTSTRAP)]),
        # All connections made anew, once each; reported with the next push, when no more are made.
        ([STABLE, librdkafka(5001, 2), librdkafka(5001), librdkafka(5001)], [(2, REBOOTSTRAP)]),
        ([STABLE, librdkafka(5001, 2), librdkafka(5001, 1)], []),  # a broker is away, and is tried again
        ([STABLE, librdkafka(5001, 4), librdkafka(5001)], []),  # it was tried often before it came back
        ([STABLE, librdkafka(5001, 1), librdkafka(5001)], []),  # one connection of two
        ([STABLE, librdkafka(5000, 2), librdkafka(5000)], []),  # telemetry's connection stayed
        ([STABLE, librdkafka(5001, 1, answering=1), librdkafka(5001)], []),  # one of two known brokers answers
        (LONE, [(2, REBOOTSTRAP)]),
        ([librdkafka(5000, 3), librdkafka(5000)], []),  # its first pushes
        ([STABLE, *[librdkafka(5001, 1, 0, 1, 0), STABLE] * 2], [(1, REBOOTSTRAP), (3, REBOOTSTRAP)]),
    ],
)  # fmt: skip
def test_l14_l15_librdkafka_rebootstraps(pushes: list[Row], expected: list[tuple[float, str]]) -> None:
    assert events_of(pushes) == expected


REFUSED = java(1, 0, 0, 2, broker_requests=0)


@pytest.mark.parametrize(
    ("pushes", "every", "expected"),
    [
        ([FIRST, STEADY, *[REFUSED] * 5], 1, [(4, "data_path_dead")]),
        ([FIRST, STEADY, *[REFUSED] * 3, STEADY], 1, [(4, "data_path_dead"), (5, "data_path_restored")]),
        ([FIRST, STEADY, REFUSED, REFUSED, STEADY, REFUSED, REFUSED], 1, []),
        ([FIRST, STEADY, *[IDLE] * 6], 1, []),  # nothing to send
        # Attempts may lie further apart than pushes.
        ([FIRST, STEADY, REFUSED, IDLE, REFUSED, IDLE, REFUSED], 1, [(6, "data_path_dead")]),
        # Requests without a response: not before the request timeout.
        ([FIRST, STEADY, java(1, 0, broker_requests=2), *[IDLE] * 4], 5, []),
        ([FIRST, STEADY, java(1, 0, broker_requests=2), *[IDLE] * 4], 8, [(40, "data_path_dead")]),
        ([FIRST, STEADY, java(1, 0, broker_requests=2), IDLE], 40, []),
        ([java(1, 0, 3, broker_requests=2), IDLE, IDLE, IDLE], 1, []),
        ([FIRST, *[java(1, 0, metadata_age_s=age) for age in (590.0, 890.0, 1190.0)]], 300, [(600, "data_path_dead")]),
        ([FIRST, *[java(1, 5, metadata_age_s=age) for age in (590.0, 890.0, 1190.0)]], 300, []),
        ([STABLE, *[librdkafka(5000, 3, answering=0)] * 6], 1, []),  # librdkafka counts no responses
    ],
)  # fmt: skip
def test_l16_dead_data_paths(pushes: list[Row], every: float, expected: list[tuple[float, str]]) -> None:
    assert events_of(pushes, every) == expected


def test_l16_what_a_dead_data_path_tells() -> None:
    dead, restored = events([in_turn([FIRST, STEADY, *[REFUSED | {"metadata_age_s": 7.9}] * 4, STEADY])])
    since = "2026-11-21T12:00:01.000000Z"
    assert dict(dead["detail"]) == {"answered_at": since, "unheard_pushes": "3", "metadata_age_s": "7"}
    assert dict(restored["detail"]) == {"answered_at": since, "unheard_ms": "5000"}


def test_l14_l15_l16_a_push_read_late_tells_and_changes_nothing() -> None:
    late = outcome(1.5, 2500, **java(3, 5, 2, 3))
    steady = in_turn([FIRST, STEADY, STEADY, STEADY])
    (row,) = events([[*steady, late]])
    assert (row["event"], row["at"], row["offset"]) == (REBOOTSTRAP, at(1.5), 2500)
    # The events of the push before it in the topic aren't events of this one.
    closed = in_turn([FIRST, STEADY, java(1, 3, 0, 4)])
    assert events([[*closed, outcome(1.5, 2500, **java(2, 5))]]) == []
    anew = in_turn([STABLE, librdkafka(5001, 2)])
    assert events([[*anew, outcome(0.5, 1500, **librdkafka(5001)), outcome(2, **librdkafka(5001, 1))]]) == []
    # Its responses don't bring a dead data path back, its refused connections don't end one.
    refused = in_turn([FIRST, STEADY, *[REFUSED] * 4])
    assert [row["event"] for row in events([[*refused, outcome(1.5, 4500, **STEADY)]])] == ["data_path_dead"]
    assert events([[*steady, *(outcome(1.5, 2500 + turn, **REFUSED) for turn in range(4))]]) == []


def test_l14_pushes_that_were_not_converted_tell_nothing() -> None:
    again = [outcome(2, 2000, **java(3, 5, 2, 3)) | {"outcome": each} for each in ("duplicate", "too_late")]
    for each in again:
        assert events([[*in_turn([FIRST, STEADY]), each]]) == []


def test_events_follow_from_the_pushes_however_they_are_cut_into_steps() -> None:
    chosen = random.Random(1102)
    signals = [
        FIRST, STEADY, java(3, 5, 2, 3), REFUSED, IDLE, java(2, 0), STABLE, librdkafka(5001, 2), librdkafka(5001),
        librdkafka(5002, 1, 0, 1, 0), java(1, 0, broker_requests=3), java(1, 0, metadata_age_s=700.0),
    ]  # fmt: skip
    shifts, names = (0, 0, 0, -1.5, 20), ("a", "b", "c", "d")
    turns = range(600)
    pushes = [outcome(n + chosen.choice(shifts), n, chosen.choice(names), **chosen.choice(signals)) for n in turns]
    at_once = events([pushes])
    assert {row["event"] for row in at_once} == {REBOOTSTRAP, "data_path_dead", "data_path_restored"}
    assert len(at_once) > 50
    cuts = [0, *sorted(chosen.sample(range(1, 600), 30)), 600]
    steps = [pushes[start:end] for start, end in itertools.pairwise(cuts)]
    assert events(steps) == at_once
    assert events(steps, read_back=True) == at_once


def test_a_lake_tells_the_same_events_push_by_push_and_at_once(tmp_path: Path) -> None:
    signals = [FIRST, STEADY, java(3, 5, 2, 3), STEADY, *[REFUSED] * 4, STEADY, java(4, 5, 2, 2)]
    pushes = [{**push(turn, turn), **each, "outcome": "points"} for turn, each in enumerate(signals)]
    at_once = LandedLake(tmp_path / "once").land(pushes, {}).judge().events()
    assert [row["event"] for row in sorted(at_once, key=lambda row: row["offset"])] == [
        "first_seen", REBOOTSTRAP, "data_path_dead", "data_path_restored", REBOOTSTRAP,
    ]  # fmt: skip
    lake = LandedLake(tmp_path / "each")
    for each in pushes:  # a restart after every step
        lake.land([each], {}).judge()
    assert lake.events() == at_once
    rows = (
        run_query(str(lake.path), "SELECT event, at, restored_at FROM rebootstraps ORDER BY at").read_all().to_pylist()
    )
    assert [tuple(row.values()) for row in rows] == [
        (REBOOTSTRAP, at(2), None), ("data_path_dead", at(6), at(8)), (REBOOTSTRAP, at(9), None),
    ]  # fmt: skip


@cache
def captured_outcomes() -> pa.Table:
    pushes = push_rows(captured().to_pylist()).select(rows.PUSHES_IN.names).cast(rows.PUSHES_IN)
    at, field = rows.PUSHES_IN.names.index("cluster_id"), rows.PUSHES_IN.field("cluster_id")
    pushes = pushes.set_column(at, field, pa.array(["c"] * pushes.num_rows))
    return process(pushes, ShardState.empty())[0].push_outcomes


def test_captured_pushes_tell_their_episodes_and_nothing_else() -> None:
    outcomes = captured_outcomes().select(OUTCOMES_IN.names).cast(OUTCOMES_IN)
    names = {row["client_instance_id"]: row["client_id"] for row in captured_outcomes().to_pylist()}
    found = events([[row for row in outcomes.to_pylist() if row["client_instance_id"]]])
    assert sorted((names[row["client_instance_id"]], row["event"]) for row in found) == [
        ("java-none-producer_stop", "data_path_dead"), ("java-rebootstrap-producer_stop", REBOOTSTRAP),
    ]  # fmt: skip


def test_signals_of_captured_pushes() -> None:
    firsts: dict[str, Row] = {}
    for row in captured_outcomes().sort_by("landed_at").to_pylist():
        firsts.setdefault(row["client_id"], row)
    names = rows.CONNECTION_SIGNALS.names[1:]
    assert {name: firsts["java-rebootstrap-producer_stop"][name] for name in names} == {
        "bootstrap_requests": 4, "broker_requests": 12, "broker_responses": 11, "connections_created": 2,
        "connections_closed": 0, "bootstrap_nodes": 1, "broker_nodes": 1, "answering_nodes": 1, "metadata_age_s": 1.287,
    }  # fmt: skip
    assert {name: firsts["librdkafka-consumer_none-delta"][name] for name in names} == {
        "bootstrap_requests": None, "broker_requests": None, "broker_responses": None, "connections_created": 0,
        "connections_closed": None, "bootstrap_nodes": 1, "broker_nodes": 1, "answering_nodes": 1,
        "metadata_age_s": None,
    }  # fmt: skip


def test_the_view_pairs_a_dead_data_path_with_its_end() -> None:
    def event(name: str, kind: str, seconds: float, **detail: str) -> Row:
        return {
            "cluster_id": "c", "client_instance_id": name, "at": at(seconds), "offset": int(seconds), "event": kind,
            "detail": list(detail.items()),
        }  # fmt: skip

    events = [
        event("a", REBOOTSTRAP, 5, bootstrap="3", usual_bootstrap="1", connections_created="2"),
        event("a", "data_path_dead", 10, answered_at="2026-11-21T12:00:07.000000Z", metadata_age_s="9"),
        event("a", REBOOTSTRAP, 15, bootstrap="2", usual_bootstrap="0"),
        event("a", "data_path_restored", 20), event("a", "data_path_dead", 30), event("b", "data_path_restored", 40),
        event("a", "went_silent", 50),
    ]  # fmt: skip
    names = ("event", "at", "bootstrap", "usual_bootstrap", "connections_created", "metadata_age_s", "restored_at")
    found = sorted(answer("rebootstraps", {"client_events": events}), key=lambda row: row["at"])
    assert [tuple(row[name] for name in names) for row in found] == [
        (REBOOTSTRAP, at(5), 3, 1, 2, None, None), ("data_path_dead", at(10), None, None, None, 9, at(20)),
        (REBOOTSTRAP, at(15), 2, 0, None, None, None), ("data_path_dead", at(30), None, None, None, None, None),
    ]  # fmt: skip
    assert found[1]["answered_at"] == at(7)
