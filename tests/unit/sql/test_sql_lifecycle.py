"""The views of clients, groups and producers, over seed rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.sql_views import answer, told

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
Row = dict[str, Any]
STREAMS = "shop-7d0f1c9e-0000-4000-8000-000000000001"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def client(name: str, state: str = "active", seen: float = 100, **more: Any) -> Row:
    usual: Row = {
        "cluster_id": "c", "client_instance_id": name, "client_id": name, "state": state, "step": 1,
        "client_software_name": "apache-kafka-java", "client_address": f"10.0.0.{len(name)}", "push_interval_ms": 1000,
        "first_seen": at(0), "last_seen": at(seen), "silent_at": at(seen + 60) if state == "silent" else None,
        "terminated_at": at(seen) if state == "terminated" else None, "pushes": 10, "missed_pushes": 0, "coverage": 1.0,
    }  # fmt: skip
    return usual | more


def event(name: str | None, kind: str, seconds: float = 0, **detail: str) -> Row:
    of: Row = {"cluster_id": "c", "client_instance_id": name, "at": at(seconds)}
    return of | {"event": kind, "detail": list(detail.items())}


def liveness(clients: Sequence[Row], events: Sequence[Row] = ()) -> dict[str, Row]:
    rows = answer("client_liveness", {"client_changes": clients, "client_events": events})
    return {row["client_instance_id"]: row for row in rows}


def test_clients_shows_the_newest_row_of_each() -> None:
    rows = [client("a", step=2, pushes=3), client("a", step=10), client("b")]
    assert told("clients", {"client_changes": rows}, "client_instance_id, pushes") == [("a", 10), ("b", 10)]


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        (client("a", "active"), None),
        (client("a", "terminated"), None),
        (client("a", "silent"), "closed_without_flag"),
        (client("a", "silent", labels=[("group_id", "g")]), "killed_or_cut_off"),
        (client("a", "silent", client_software_name="librdkafka"), "killed_or_cut_off"),
        (client("a", "silent", client_software_name=None), "unknown"),
        (client("a", "silent", client_software_name="my-service"), "unknown"),
        (client("a", "silent", client_software_name="kgo", client_software_version="v1.21.4"), "killed_or_cut_off"),
        # franz-go before 1.21.4 doesn't deliver its terminating push
        (client("a", "silent", client_software_name="kgo", client_software_version="v1.21.3"), "unknown"),
    ],
)
def test_l17_likely_cause_of_a_single_client(row: Row, cause: str | None) -> None:
    result = liveness([row, client("later", seen=500)])["a"]
    assert (result["likely_cause"], result["not_seen_for_ms"]) == (cause, 400_000)


BUFFER = "producer.buffer"


@pytest.mark.parametrize(
    ("available", "in_flight", "cause"),
    [(32.0, 0.0, "closed_without_flag"), (31.0, 0.0, "killed_or_cut_off"), (32.0, 2.0, "killed_or_cut_off")],
)
def test_l17_likely_cause_weighs_what_a_producer_had_to_send(available: float, in_flight: float, cause: str) -> None:
    place: dict[str, Any] = {"source": "kafka", "topic": "t", "partition": 0}
    silent = client("a", "silent", landed_at=at(100), offset=7, **place)
    points = [
        point(f"{BUFFER}.total.bytes", 100, offset=7, value=32.0, **place),
        point(f"{BUFFER}.available.bytes", 100, offset=7, value=available, **place),
        point("producer.requests.in.flight", 100, offset=7, value=in_flight, **place),
        point(f"{BUFFER}.available.bytes", 100, offset=6, value=1.0, **place),  # of the push before
    ]
    (row,) = answer("client_liveness", {"client_changes": [silent], "metric_points": points})
    assert (row["buffered_bytes"], row["requests_in_flight"], row["likely_cause"]) == (32 - available, in_flight, cause)


def test_l17_likely_cause_weighs_the_siblings() -> None:
    silent = client(f"{STREAMS}-admin", "silent")
    closed = client(f"{STREAMS}-StreamThread-1-consumer", "terminated", 101, client_address="10.0.0.99")
    assert liveness([silent, closed])[silent["client_id"]]["likely_cause"] == "closed_with_siblings"
    long_ago = closed | {"terminated_at": at(10)}
    assert liveness([silent, long_ago])[silent["client_id"]]["likely_cause"] == "closed_without_flag"
    other = client("shop-7d0f1c9e-0000-4000-8000-000000000002-admin", "terminated", 101, client_address="10.0.0.99")
    assert liveness([silent, other])[silent["client_id"]]["likely_cause"] == "closed_without_flag"


def test_l17_all_clients_of_an_address_are_gone() -> None:
    gone = [client(name, "silent", client_address="10.1.1.1") for name in ("a", "b")]
    assert {row["likely_cause"] for row in liveness(gone).values()} == {"process_gone"}
    alive = client("c", client_address="10.1.1.1")
    assert liveness([*gone, alive])["a"]["likely_cause"] == "closed_without_flag"


@pytest.mark.parametrize(
    ("wave", "cause"),
    [
        (event(None, "mass_silence", 180, share="0.900", clients="40"), "cluster_or_receiver"),
        (event(None, "mass_silence", 180, share="0.100", clients="40"), "closed_without_flag"),
        (event(None, "mass_silence", 180, share="0.900", clients="40", terminated="20"), "closed_without_flag"),
        (event(None, "mass_silence", 900, share="0.900", clients="40"), "closed_without_flag"),
        (event(None, "mass_silence", 180, share="0.900", clients="40") | {"cluster_id": "d"}, "closed_without_flag"),
    ],
)
def test_l17_many_at_once_are_the_cluster_or_the_receiver(wave: Row, cause: str) -> None:
    assert liveness([client("a", "silent")], [wave])["a"]["likely_cause"] == cause


def test_d4_coverage_of_clients_and_of_the_cluster() -> None:
    events = [
        event("a", "lost_interval", ms="4000"), event("a", "lost_interval", ms="1000"),
        event("a", "lost_interval_closed", ms="1000"), event("b", "temporality_flip"), event("b", "first_seen"),
    ]  # fmt: skip
    clients = [client("a", coverage=0.5, missed_pushes=10), client("b", seen=300)]
    columns = (
        "client_instance_id, clients, coverage, missed_pushes, lost_intervals, lost_intervals_closed, lost_ms, "
        "temporality_flips"
    )
    assert told("coverage", {"client_changes": clients, "client_events": events}, columns) == [
        ("a", 1, 0.5, 10, 2, 1, 4000, 0), ("b", 1, 1.0, 0, 0, 0, 0, 1), (None, 2, 0.875, 10, 2, 1, 4000, 1),
    ]  # fmt: skip


def test_lost_records_are_those_of_the_cluster_whose_clients_nobody_knows() -> None:
    lost = [{"cluster_id": cluster, "records": records} for cluster, records in (("c", 4), ("c", 3), ("other", 9))]
    columns, clients = "client_instance_id, lost_records", [client("a"), client("b")]
    found = told("coverage", {"client_changes": clients, "lost_records": lost}, columns)
    assert found == [("a", None), ("b", None), (None, 7)]
    assert told("coverage", {"client_changes": clients[:1]}, columns) == [("a", None), (None, 0)]


def point(metric: str, seconds: float, name: str = "a", **more: Any) -> Row:
    usual: Row = {
        "cluster_id": "c", "client_instance_id": name, "metric": f"org.apache.kafka.{metric}", "time": at(seconds),
        "landed_at": at(seconds), "delta_status": "value", "attributes": [],
    }  # fmt: skip
    return usual | more


def total(metric: str, seconds: float, delta: float, **more: Any) -> Row:
    return point(metric, seconds, delta=delta, value=delta, delta_status="delta", **more)


def test_consumer_groups() -> None:
    group = [("group_id", "g"), ("group_member_id", "m-2")]
    clients = [client("a", labels=group, group_member_ids=["m-1", "m-2"]), client("b", labels=group)]
    prefix = "consumer.coordinator"
    points = [
        point(f"{prefix}.assigned.partitions", 0, value=2.0), point(f"{prefix}.assigned.partitions", 30, value=4.0),
        total(f"{prefix}.rebalance.total", 0, 1), total(f"{prefix}.rebalance.total", 30, 2),
        point(f"{prefix}.last.heartbeat.seconds.ago", 0, value=-1.0),
        point(f"{prefix}.commit.latency.avg", 0, value=10.0), point(f"{prefix}.commit.latency.avg", 30, value=30.0),
        point(f"{prefix}.commit.latency.max", 30, value=90.0, delta_status="duplicate"),
        point(f"{prefix}.assigned.partitions", 30, "b", value=1.0), point("producer.batch.size.avg", 0, "b", value=1.0),
        point(f"{prefix}.assigned.partitions", 60, "b", value=3.0),
    ]  # fmt: skip
    columns = (
        "minute, client_instance_id, group_id, members, member_ids, pushes, assigned_partitions, rebalances, "
        "commit_latency_avg_ms, commit_latency_max_ms, last_heartbeat_ago_max_s"
    )
    assert told("consumer_groups", {"client_changes": clients, "metric_points": points}, columns) == [
        (at(0), "a", "g", 2, 2, 2, 4.0, 3.0, 20.0, None, None),
        (at(0), "b", "g", 2, None, 1, 1.0, None, None, None, None),
        (at(60), "b", "g", 1, None, 1, 3.0, None, None, None, None),
    ]


def member(group: str, member_id: str, client_id: str, *assignment: str, **more: Any) -> Row:
    usual: Row = {
        "cluster_id": "c", "group_id": group, "member_id": member_id, "client_id": client_id, "host": "10.0.0.1",
        "assignment": list(assignment), "valid_from": at(70),
    }  # fmt: skip
    return usual | more


STATES = [
    {"cluster_id": "c", "group_id": "g", "group_type": "consumer", "state": "Stable", "coordinator_id": 2},
    {"cluster_id": "c", "group_id": "g", "group_type": "consumer", "state": "Assigning", "valid_to": at(60)},
]


def test_members_of_a_group_are_known_by_their_id_then_by_their_client_id() -> None:
    group = [("group_id", "g")]
    clients = [
        client("java", labels=[*group, ("group_member_id", "m-1")], client_id="orders"),
        client("stale", labels=[*group, ("group_member_id", "m-0")], client_id="orders"),  # it has joined anew since
        client("by hand", labels=group, client_id="bills"),  # a Java consumer that is no member
        client("rd", labels=group, client_id="bills", client_software_name="librdkafka"),
        client("gone", "silent", labels=group, client_id="bills"),
        client("other", labels=[("group_id", "h")], client_id="bills"),
    ]
    members = [
        member("g", "m-1", "orders", "t-0"), member("g", "m-2", "orders", "t-1"), member("g", "m-3", "bills"),
        member("g", "m-4", "bills", "t-2", "t-3"), member("g", "m-5", "bills", valid_to=at(80)),
        member("g", "m-6", "orders", "t-4"),
    ]  # fmt: skip
    tables = {"client_changes": clients, "group_members": members, "group_states": STATES}
    rows = answer("consumer_group_members", tables)
    assert {(row["group_type"], row["group_state"], row["coordinator_id"]) for row in rows} == {
        ("consumer", "Stable", 2)
    }
    assert {row["member_id"]: (row["client_instance_id"], row["assigned_partitions"]) for row in rows} == {
        "m-1": ("java", 1), "m-2": ("stale", 1), "m-3": ("rd", 0), "m-4": (None, 2), "m-6": (None, 1),
    }  # fmt: skip


def test_consumer_groups_show_members_that_push_nothing() -> None:
    labels = [("group_id", "g"), ("group_member_id", "m-1")]
    tables = {
        "client_changes": [client("a", labels=labels)],
        "metric_points": [point("consumer.coordinator.assigned.partitions", 0, value=1.0)],
        "group_states": STATES,
        "group_members": [member("g", "m-1", "a", "t-0"), member("g", "m-2", "silent one", "t-1", "t-2")],
    }
    columns = (
        "minute, client_instance_id, client_id, group_member_id, pushes, members, known_members, assigned_partitions, "
        "coordinator_id, assignment"
    )
    assert told("consumer_groups", tables, columns) == [
        (at(0), "a", "a", "m-1", 1, 1, 2, 1.0, 2, ["t-0"]),
        (at(60), None, "silent one", "m-2", 0, 0, 2, 2.0, 2, ["t-1", "t-2"]),
    ]


def test_consumer_progress() -> None:
    prefix = "consumer.fetch.manager"
    points = [
        point(f"{prefix}.records.lag.max", 0, value=5.0), point(f"{prefix}.records.lag.max", 10, value=9.0),
        point(f"{prefix}.records.lead.min", 0, value=7.0), point("consumer.poll.idle.ratio.avg", 0, value=0.25),
        total(f"{prefix}.records.consumed.total", 0, 100), total(f"{prefix}.records.consumed.total", 10, 50),
        total(f"{prefix}.records.consumed.total", 10, 50, attributes=[("topic", "t")]),
        total(f"{prefix}.bytes.consumed.total", 0, 4096), point(f"{prefix}.fetch.latency.avg", 0, value=3.0),
    ]  # fmt: skip
    (row,) = answer("consumer_progress", {"client_changes": [client("a")], "metric_points": points})
    assert row == row | {
        "records_lag_max": 9.0, "records_lead_min": 7.0, "records_consumed": 150.0, "bytes_consumed": 4096.0,
        "poll_idle_ratio": 0.25, "fetch_latency_avg_ms": 3.0, "client_id": "a", "state": "active", "pushes": 2,
    }  # fmt: skip


def test_producer_pipeline() -> None:
    points = [
        point("producer.record.queue.time.avg", 0, value=4.0), point("producer.record.queue.time.max", 0, value=9.0),
        point("producer.node.request.latency.max", 0, value=5.0, attributes=[("node_id", "1")]),
        point("producer.node.request.latency.max", 0, value=50.0, attributes=[("node_id", "2")]),
        total("producer.bufferpool.wait.time.ns.total", 0, 2_500_000), total("producer.record.retry.total", 0, 3),
        point("producer.metadata.age", 0, value=12.0), point("consumer.poll.idle.ratio.avg", 0, value=1.0),
    ]  # fmt: skip
    (row,) = answer("producer_pipeline", {"metric_points": points})  # a client may be known by its points alone
    assert row == row | {
        "queue_time_avg_ms": 4.0, "queue_time_max_ms": 9.0, "node_request_latency_max_ms": 50.0, "slowest_node_id": "2",
        "buffer_wait_ms": 2.5, "record_retries": 3.0, "metadata_age_max_s": 12.0, "batch_size_avg_bytes": None,
        "client_id": None,
    }  # fmt: skip
