"""The views of the inventory: what the metrics mean, how much each client does, who writes and reads which topic."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlglot
from sqlglot import exp

from kafka_telemetry_lake.pipelines.findings.model import LIBRARIES
from kafka_telemetry_lake.pipelines.findings.rules import measures
from kafka_telemetry_lake.pipelines.query.known_metrics import known_metrics
from kafka_telemetry_lake.pipelines.query.views import views
from tests.support.sql_views import answer, told

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
Row = dict[str, Any]
K = "org.apache.kafka."
SOFTWARE = {
    "Java": ("apache-kafka-java", "4.3.0"), "librdkafka": ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0"),
    "franz-go": ("kgo", "v1.22.2"), None: ("my-service", "1.0"),
}  # fmt: skip


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def client(name: str, library: str | None = "Java", cluster: str | None = "c", **more: Any) -> Row:
    software, version = SOFTWARE[library]
    usual: Row = {
        "cluster_id": cluster, "client_instance_id": name, "client_id": f"{name}-id", "state": "active", "step": 1,
        "client_software_name": software, "client_software_version": version, "principal": f"User:{name}",
    }  # fmt: skip
    return usual | more


def point(
    client: str, metric: str, *, delta: float | None = None, value: float | None = None, seconds: float = 1,
    cluster: str | None = "c", status: str = "delta", **attributes: str,
) -> Row:  # fmt: skip
    return {
        "cluster_id": cluster, "client_instance_id": client, "metric": K + metric, "delta": delta, "value": value,
        "kind": "gauge" if delta is None else "sum", "temporality": None if delta is None else "delta",
        "delta_status": status, "delta_start": at(seconds - 10), "time": at(seconds), "landed_at": at(seconds),
        "attributes": list(attributes.items()),
    }  # fmt: skip


SENT, SENT_TO, BYTES_TO = "producer.record.send.total", "producer.topic.record.send.total", "producer.topic.byte.total"
READ, READ_BYTES = (f"consumer.fetch.manager.{what}.consumed.total" for what in ("records", "bytes"))
CONNECTED, LATENCY = "producer.connection.creation.total", "producer.node.request.latency.avg"


def test_the_catalog_says_what_a_metric_is_and_what_counts_the_same() -> None:
    points = [
        point("a", SENT, delta=10), point("a", SENT_TO, delta=10, topic="t"),
        point("b", SENT, delta=3, seconds=90), point("a", READ, delta=5), point("a", READ, delta=5, topic="t"),
        point("l", LATENCY, value=2, node_id="1", node_role="broker"), point("a", "shop.carts", value=1),
        point("d", SENT, delta=1, cluster="d"),
    ]  # fmt: skip
    clients = [client("a"), client("b", client_software_version="3.9.0"), client("l", "librdkafka")]
    rows = answer("metric_catalog", {"metric_points": points, "client_changes": clients})
    found = {(row["cluster_id"], row["metric"].removeprefix(K), row["level"]): row for row in rows}
    assert found.keys() == {
        ("c", SENT, "client"), ("c", SENT_TO, "topic"), ("c", READ, "client"), ("c", READ, "topic"),
        ("c", LATENCY, "node"), ("c", "shop.carts", "client"), ("d", SENT, "client"),
    }  # fmt: skip
    sent = found["c", SENT, "client"]
    assert (sent["unit"], sent["aggregate"], sent["measure"]) == ("records", "sum", "records_sent")
    assert sent["meaning"] == "Increase of the records sent."
    assert sent["counted_again"] == f"{K}{SENT_TO} (topic)"
    assert (sent["libraries"], sent["instances"], sent["points"]) == (
        "apache-kafka-java 3.9.0, apache-kafka-java 4.3.0", 2, 2,
    )  # fmt: skip
    assert (sent["temporality"], sent["first_time"], sent["last_time"]) == ("delta", at(1), at(90))
    assert found["c", READ, "topic"]["counted_again"] == f"{K}{READ} (client)"
    assert found["d", SENT, "client"]["counted_again"] is None
    latency, own = found["c", LATENCY, "node"], found["c", "shop.carts", "client"]
    assert (latency["unit"], latency["aggregate"], latency["libraries"]) == (
        "ms", "mean", "confluent-kafka-python 2.16.1-rdkafka-2.16.0",
    )  # fmt: skip
    assert [own[name] for name in ("meaning", "unit", "aggregate", "advice", "source")] == [None] * 5
    assert own["points"] == 1


def test_every_known_metric_says_what_to_do_with_it() -> None:
    known = known_metrics()
    assert len(known) > 400
    assert {metric.aggregate for metric in known.values()} == {"sum", "rate", "mean", "max", "min", "last"}
    assert {name for metric in known.values() for name in metric.libraries} == set(LIBRARIES)
    asked = {K + name for measure in measures().measures.values() for name in measure.metrics}
    assert asked <= known.keys()  # those of the findings
    assert known[f"{K}admin.client.connection.creation.total"].measure == "connections_created"
    assert known[f"{K}producer.record.send.rate"].unit == "records/s"
    (rows,) = answer("known_metrics", {}, "SELECT count(*) AS n, count(advice) AS advised FROM known_metrics")
    assert rows == {"n": len(known), "advised": len(known)}


def test_measures_are_the_same_for_every_library() -> None:
    points = [
        point("java", SENT, delta=10), point("java", SENT_TO, delta=10, topic="t"),
        point("java", BYTES_TO, delta=100, topic="t"), point("java", BYTES_TO, delta=50, topic="u"),
        point("java", SENT, delta=7, seconds=50), point("java", SENT, delta=7, seconds=61),
        point("java", SENT, delta=99, status="duplicate"),
        point("reader", READ, delta=9), point("reader", READ, delta=9, topic="t"),
        point("reader", READ_BYTES, delta=90),
        *(point(name, CONNECTED, delta=2) for name in ("java", "rd", "go", "other")),
        point("rd", LATENCY, value=4, node_id="1"), point("rd", LATENCY, value=0, node_id="2"),
        point("rd", LATENCY, value=8, node_id="3"),
        point("admin", "admin.client.request.total", delta=3),
        point("sharer", "consumer.share.fetch.manager.records.consumed.total", delta=4),
        point("sharer", "consumer.connection.creation.total", delta=1),
    ]  # fmt: skip
    clients = [
        client("java"), client("reader", labels=[("group_id", "g")]), client("rd", "librdkafka"),
        client("go", "franz-go"), client("other", None), client("admin"), client("sharer"),
    ]  # fmt: skip
    aliases = [{"client_id": "java-id", "application": "shop", "owner": "team", "cluster_id": "c"}]
    rows = answer("client_measures", {"metric_points": points, "client_changes": clients, "client_aliases": aliases})
    found = {(row["client_instance_id"], row["minute"]): row for row in rows}
    assert len(found) == len(rows) == 8
    java = found["java", START]
    assert [java[name] for name in ("records_sent", "bytes_sent", "connections_created")] == [17, 150, 2]
    assert (java["library"], java["kind"], java["application"], java["owner"]) == ("java", "producer", "shop", "team")
    assert java["not_in_library"] == ""
    assert java["not_pushed"].split(", ")[:2] == ["record_retries", "record_errors"]
    assert found["java", at(60)]["records_sent"] == 7
    reader = found["reader", START]
    assert reader == reader | {"kind": "consumer", "records_consumed": 9, "bytes_consumed": 90, "group_id": "g"}
    rd = found["rd", START]
    assert (rd["records_sent"], rd["request_latency_avg_ms"], rd["library"]) == (None, 6, "librdkafka")
    assert "records_sent, bytes_sent" in rd["not_in_library"]
    assert rd["not_pushed"] == "queue_time_avg_ms, queue_time_max_ms, request_latency_max_ms, throttle_time_max_ms"
    assert "queue_time_avg_ms" in found["go", START]["not_in_library"]
    assert (found["other", START]["library"], found["other", START]["not_in_library"]) == ("unknown", "")
    assert "records_sent" in found["other", START]["not_pushed"]
    assert (found["admin", START]["kind"], found["admin", START]["requests"]) == ("admin", 3)
    assert (found["sharer", START]["kind"], found["sharer", START]["records_consumed"]) == ("share_consumer", 4)


@pytest.mark.parametrize(
    ("library", "kind"),
    [("librdkafka", "producer"), ("librdkafka", "consumer"), ("librdkafka", "share_consumer"),
     ("franz-go", "producer"), ("franz-go", "consumer")],
)  # fmt: skip
def test_what_a_library_lacks_is_what_the_catalog_says(library: str, kind: str) -> None:
    """A measure is said to be lacking if, and only if, no metric that it is computed of is one of the library's."""
    tree = sqlglot.parse_one(views()["client_measures"].select, read="spark")
    minutes = next(each.this for each in tree.find_all(exp.CTE) if each.alias == "minutes")
    texts = {each.alias: [text.this for text in each.find_all(exp.Literal)] for each in minutes.expressions}
    key = next(key for key, name in LIBRARIES.items() if name == library)
    names = [metric.metric.removeprefix(K) for metric in known_metrics().values() if key in metric.libraries]
    share = "consumer.share."
    own = {
        "producer": [name for name in names if name.startswith("producer.")],
        "consumer": [name for name in names if name.startswith("consumer.") and not name.startswith(share)],
        "share_consumer": [name for name in names if name.startswith("consumer.")],
    }[kind]
    pushed = {kind: f"{kind}.request.total", "share_consumer": f"{share}fetch.manager.records.consumed.total"}[kind]
    points = [point("x", pushed, value=0)]
    (row,) = answer("client_measures", {"metric_points": points, "client_changes": [client("x", library)]})
    assert row["kind"] == kind
    lacking = set(filter(None, row["not_in_library"].split(", ")))
    missing = lacking | set(filter(None, row["not_pushed"].split(", ")))
    assert lacking == {name for name in missing if not any(_reads(text, each) for text in texts[name] for each in own)}


def _reads(text: str, metric: str) -> bool:
    if text.startswith("%"):
        return metric.endswith(text[1:])
    return metric == text or metric.partition(".")[2] == text


def test_who_writes_and_who_reads_a_topic() -> None:
    points = [
        point("w", SENT_TO, delta=10, topic="orders"), point("w", SENT_TO, delta=20, topic="orders", seconds=11),
        point("w", BYTES_TO, delta=300, topic="orders"),
        point("w", "producer.topic.record.error.total", delta=2, topic="orders"),
        point("w", "producer.topic.compression.rate", value=0.5, topic="orders"),
        point("w", SENT_TO, delta=1, topic="orders", seconds=3700), point("w", SENT, delta=31),
        point("w", SENT_TO, delta=99, topic="orders", status="conflict"),
        point("r", READ, delta=25, topic="orders"), point("r", READ, delta=25),
        point("r", "consumer.fetch.manager.records.lag", value=5, topic="orders", partition="0"),
        point("r", "consumer.fetch.manager.records.lag", value=7, topic="orders", partition="1"),
        point("rd", CONNECTED, delta=1), point("rd", LATENCY, value=1, node_id="1"),
        point("d", SENT_TO, delta=4, topic="orders", cluster="d"),
    ]  # fmt: skip
    clients = [
        client("w"), client("r", labels=[("group_id", "billing")]), client("rd", "librdkafka"),
        client("d", cluster="d"),
    ]  # fmt: skip
    aliases = [{"client_id": "w-id", "application": "shop", "owner": "team"}]
    tables = {"metric_points": points, "client_changes": clients, "client_aliases": aliases}
    rows = answer("topic_clients", tables)
    found = {(row["cluster_id"], row["client_instance_id"], row["topic"], row["hour"]): row for row in rows}
    assert len(rows) == len(found) == 5
    first = found["c", "w", "orders", START]
    assert first == first | {"role": "producer", "known_from": "telemetry", "application": "shop", "owner": "team"}
    assert first == first | {"group_id": None, "records": 30, "bytes": 300, "covered_s": 20, "records_per_s": 1.5}
    assert first == first | {"bytes_per_s": 30, "compression_ratio": 0.5, "record_errors": 2}
    assert found["c", "w", "orders", at(3600)]["records"] == 1
    reader = found["c", "r", "orders", START]
    assert reader == reader | {"role": "consumer", "group_id": "billing", "records": 25, "records_lag_max": 7}
    assert found["c", "rd", None, START]["records"] is None
    flows = told("topic_flows", tables, "topic, writer, records_written, reader, records_read")
    assert flows == [("orders", "d-id", 4, None, None), ("orders", "shop", 31, "r-id", 25)]


def test_readers_without_telemetry_are_known_from_groups_and_brokers() -> None:
    member = {"cluster_id": "c", "member_id": "m", "valid_from": at(60), "valid_to": None}
    tables: dict[str, Any] = {
        "group_members": [
            member | {"group_id": "mute", "client_id": "mute-1", "assignment": ["my-orders-0", "my-orders-1", "t-0"]},
            member | {"group_id": "rd", "client_id": "rd-id", "assignment": ["t-1"], "member_id": "n"},
        ],
        "group_offsets": [
            {"cluster_id": "c", "group_id": group, "topic": topic, "partition": 0, "seen_at": at(120)}
            for group, topic in (("mute", "t"), ("gone", "t"), ("rd", "t"))
        ],
        "client_changes": [client("rd", "librdkafka", labels=[("group_id", "rd")])],
        "metric_points": [point("rd", "consumer.connection.creation.total", delta=1)],
        "quota_usage": [
            {
                "cluster_id": "c", "broker_id": broker, "quota_type": kind, "user": user, "client_id": name,
                "window_start": at(60 * minute), "window_seconds": seconds, "observed_rate": rate, "source": source,
            }
            for broker, kind, user, name, minute, seconds, rate, source in (
                (1, "produce", "", "hidden", 0, 60, 10.0, "broker"), (2, "produce", "", "hidden", 1, 60, 5.0, "broker"),
                (1, "produce", "", "hidden", 0, 10, 10.0, "broker"),
                (1, "request", "", "hidden", 0, 60, 10.0, "broker"),
                (1, "fetch", "", "rd-id", 0, 60, 10.0, "broker"), (1, "fetch", "eve", "rd-id", 0, 60, 1.0, "broker"),
                (1, "produce", "", "idle", 0, 60, 0.0, "broker"), (1, "produce", "", "est", 0, 60, 9.0, "client"),
            )
        ],
    }  # fmt: skip
    rows = answer("topic_clients", tables)
    found = {(row["known_from"], row["topic"], row["group_id"], row["client_id"], row["bytes"]) for row in rows}
    assert found == {
        ("group", "my-orders", "mute", "mute-1", None), ("group", "t", "mute", "mute-1", None),
        ("group", "t", "rd", "rd-id", None), ("group", "t", "gone", None, None),
        ("quota", None, None, "hidden", 900), ("quota", None, None, "rd-id", 60),
    }  # fmt: skip
    assert {row["principal"] for row in rows if row["bytes"] == 60} == {"User:eve"}
    assert len(rows) == len(found)
    assert told("topic_flows", tables, "DISTINCT topic, writer, reader") == [
        ("my-orders", None, "mute-1"), ("t", None, "gone"), ("t", None, "mute-1"), ("t", None, "rd-id"),
    ]  # fmt: skip


@pytest.mark.parametrize(("state", "known"), [("terminated", {"telemetry"}), ("active", {"telemetry", "group"})])
def test_a_member_that_has_ended_since_the_last_sync_is_its_client(state: str, known: set[str]) -> None:
    """An active client with the group and client id of a member that isn't matched is another one."""
    member = {"cluster_id": "c", "group_id": "g", "member_id": "m", "client_id": "r-id", "assignment": ["t-0"]}
    clients = [client("r", state=state, labels=[("group_id", "g"), ("group_member_id", "own")])]
    members = [member, member | {"member_id": "own", "assignment": ["u-0"]}] if state == "active" else [member]
    rows = answer("topic_clients", {
        "metric_points": [point("r", READ, delta=5, topic="t")], "client_changes": clients,
        "group_members": [each | {"valid_from": at(0)} for each in members],
    })  # fmt: skip
    assert {row["known_from"] for row in rows if row["topic"] == "t"} == known


def test_a_dot_in_a_topic_that_consumers_write_as_underscore_counts_once() -> None:
    points = [
        point("new", READ, delta=5, topic="a.b"), point("new", READ, delta=5, topic="a_b"),
        point("old", READ, delta=3, topic="a_b"), point("old", READ, delta=2, topic="x_y"),
        point("w", SENT_TO, delta=8, topic="a.b"), point("w", SENT_TO, delta=8, topic="x_y"),
    ]  # fmt: skip
    clients = [client("new"), client("old", client_software_version="3.9.0"), client("w")]
    tables = {"metric_points": points, "client_changes": clients}
    assert told("topic_clients", tables, "client_instance_id, topic, records") == [
        ("new", "a.b", 5), ("old", "a.b", 3), ("old", "x_y", 2), ("w", "a.b", 8), ("w", "x_y", 8),
    ]  # fmt: skip


def test_a_topic_that_another_replaces_keeps_its_rows() -> None:
    """A topic can't be renamed: the new one is another, and no row of one counts for the other."""
    points = [point("w", SENT_TO, delta=8, topic="before"), point("w", SENT_TO, delta=9, topic="after", seconds=3601)]
    tables = {"metric_points": points, "client_changes": [client("w")]}
    assert told("topic_flows", tables, "topic, records_written, first_written, last_written") == [
        ("after", 9, at(3600), at(3600)), ("before", 8, START, START),
    ]  # fmt: skip
