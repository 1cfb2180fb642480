"""View application_cost: whose bytes and requests they are, what they cost, and what it can't say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kafka_telemetry_lake.pipelines.applications.costs import read_prices
from tests.support.sql_views import answer

HOUR = datetime(2026, 7, 1, 12, tzinfo=UTC)
GB = 1e9
PRICES = """\
currency: EUR
bytes_in_gb: 2
bytes_out_gb: 1
storage_gb_month: 10
requests_million: 5
cross_zone_gb: {a: 4, b: 8}
topics:
  - {topic: 'audit.*', retention_hours: 7200, replication_factor: 3}
  - {topic: 'orders|bills', retention_hours: 72, replication_factor: 2}
"""


def prices(tmp_path: Path, text: str = PRICES) -> list[dict[str, Any]]:
    (tmp_path / "prices.yml").write_text(text)
    return read_prices(tmp_path / "prices.yml")


def client(name: str, rack: str | None = None, **more: Any) -> dict[str, Any]:
    labels = [] if rack is None else [("client_rack", rack)]
    return {"cluster_id": "c", "client_instance_id": name, "client_id": name, "step": 1, "labels": labels} | more


def push(name: str, **more: Any) -> dict[str, Any]:
    at = {"landed_at": HOUR + timedelta(minutes=7), "landed_date": HOUR.date()}
    return {"cluster_id": "c", "client_instance_id": name, "client_id": name} | at | more


def point(name: str, metric: str, delta: float, **attributes: str) -> dict[str, Any]:
    own = {"metric": f"org.apache.kafka.{metric}", "delta": delta, "delta_status": "ok", "kind": "sum"}
    return push(name) | own | {"attributes": list(attributes.items())}


def sent(name: str, topic: str, gigabytes: float) -> dict[str, Any]:
    return point(name, "producer.topic.byte.total", gigabytes * GB, topic=topic)


def network(name: str, kind: str, node: int, gigabytes: float, role: str = "broker") -> dict[str, Any]:
    direction = "outgoing" if kind == "producer" else "incoming"
    return point(name, f"{kind}.node.{direction}.byte.total", gigabytes * GB, node_id=str(node), node_role=role)


def costs(clients: list[dict[str, Any]], points: list[dict[str, Any]], **tables: Any) -> list[dict[str, Any]]:
    outcomes = [push(each["client_instance_id"], cluster_id=each["cluster_id"], outcome="points") for each in clients]
    rules = [{"position": 0, "client_id": "(shop|bank|lib|far)-.*", "application": "known", "owner": "team"}]
    brokers = [{"cluster_id": "c", "broker_id": broker, "rack": rack} for broker, rack in ((1, "a"), (2, "b"))]
    lake = {"client_changes": clients, "metric_points": points, "push_outcomes": outcomes, "brokers": brokers}
    return answer("application_cost", lake | {"application_rules": rules} | tables)


def test_each_byte_and_request_is_priced_once(tmp_path: Path) -> None:
    points = [
        sent("shop-1", "orders", 3), sent("shop-1", "audit-x", 1), sent("other", "bills", 2),
        point("shop-1", "producer.request.total", 2e6),
        point("shop-1", "producer.request.total", 9e6) | {"delta_status": "duplicate"},
        network("shop-1", "producer", 1, 3), network("shop-1", "producer", 2, 1), network("other", "producer", 2, 2),
        network("bank-1", "consumer", 1, 4), network("bank-1", "consumer", 2, 2, role="coordinator"),
        network("bank-1", "consumer", -1, 7, role="bootstrap"),
    ]  # fmt: skip
    clients = [client("shop-1", "a"), client("bank-1", "b"), client("other", "b")]
    known, other = costs(clients, points, prices=prices(tmp_path))
    assert known == known | {"application": "known", "owner": "team", "instances": 2, "window_start": HOUR}
    assert known == known | {"bytes_in": 4 * GB, "bytes_out": 4 * GB, "requests": 2e6}
    assert known == known | {"zoned_bytes": 10 * GB, "cross_zone_bytes": 5 * GB, "cross_zone_share": 0.5}
    assert known["stored_byte_hours"] == (3 * 72 * 2 + 1 * 7200 * 3) * GB
    costed = ("bytes_in_cost", "bytes_out_cost", "storage_cost", "requests_cost", "cross_zone_cost", "cost", "missing")
    storage = (3 * 72 * 2 + 1 * 7200 * 3) / 720 * 10
    # From a to broker 2 in b: 1 GB at a's price. From broker 1 in a to b: 4 GB at b's price.
    expected = [8, 4, storage, 10, 1 * 4 + 4 * 8]
    assert [known[name] for name in costed] == [*map(pytest.approx, expected), pytest.approx(sum(expected)), None]
    assert known["known_cost"] == pytest.approx(known["cost"])
    cost = pytest.approx(4 + 2 * 72 * 2 / 72)
    assert (other["application"], other["bytes_in"], other["cost"]) == (None, 2 * GB, cost)


def missing(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("storage_cost", "cross_zone_cost", "cost", "known_cost", "missing"))


def test_a_missing_price_gives_no_cost_and_is_said(tmp_path: Path) -> None:
    listed = prices(tmp_path)
    (row,) = costs([client("far-1", "z")], [network("far-1", "consumer", 1, 1)], prices=listed)
    assert missing(row) == (0, None, None, 1, "the price list has no price for zone z")
    (row,) = costs([client("far-1", "z")], [network("far-1", "consumer", 1, 1)], prices=listed, brokers=[])
    said = "the rack of the client or the broker is unknown for 100 % of the traffic"
    assert missing(row)[1:] == (None, None, 1, said)
    (row,) = costs([client("far-1")], [network("far-1", "consumer", 1, 1)], prices=listed)
    assert (row["cross_zone_share"], row["cost"]) == (None, None)
    (row,) = costs([client("shop-1", "a")], [sent("shop-1", "new", 1), sent("shop-1", "bills", 1)], prices=listed)
    assert missing(row) == (None, 0, None, 4, "the price list has no retention for topic new")
    (row,) = costs([client("shop-1", "a")], [sent("shop-1", "bills", 1)])
    assert (row["bytes_in"], *missing(row)) == (GB, None, None, None, 0, "there is no price list")
    (row,) = costs([client("lib-1"), client("shop-1")], [sent("shop-1", "bills", 1)], prices=listed)
    assert (row["unmeasured_instances"], row["cost"]) == (1, None)
    assert row["missing"] == "the libraries of 1 client instances push no bytes"


def test_one_price_of_0_for_all_zones_needs_no_racks(tmp_path: Path) -> None:
    listed = prices(tmp_path, PRICES.replace("{a: 4, b: 8}", "0"))
    (row,) = costs([client("far-1")], [network("far-1", "consumer", 1, 1)], prices=listed)
    assert missing(row) == (0, 0, 1, 1, None)


def test_a_cluster_s_own_list_replaces_that_of_any_cluster(tmp_path: Path) -> None:
    every = prices(tmp_path)
    own = [row | {"cluster_id": "c"} for row in prices(tmp_path, PRICES.replace("in_gb: 2", "in_gb: 3"))]
    ended = [row | {"cluster_id": "d", "valid_to": HOUR} for row in own]
    clients = [client("shop-1", "a"), client("shop-2", "a", cluster_id="d")]
    points = [sent("shop-1", "bills", 1), sent("shop-2", "bills", 1) | {"cluster_id": "d"}]
    rows = costs(clients, points, prices=every + own + ended)
    assert [(row["cluster_id"], row["bytes_in_cost"]) for row in rows] == [("c", 3), ("d", 2)]


def test_admins_have_no_bytes_that_could_be_missing(tmp_path: Path) -> None:
    """Each process of Kafka Streams has one; it costs its requests."""
    clients = [client("shop-1", "a"), client("shop-admin")]
    points = [sent("shop-1", "bills", 1), point("shop-admin", "admin.client.request.total", 1e6)]
    (row,) = costs(clients, points, prices=prices(tmp_path))
    assert (row["instances"], row["unmeasured_instances"], row["requests"], row["missing"]) == (2, 0, 1e6, None)
    assert row["cost"] == pytest.approx(2 + 2 + 5)
