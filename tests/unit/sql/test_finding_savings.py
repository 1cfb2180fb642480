"""View finding_savings: what following the advice saves, in numbers worked out by hand, and why it can't be told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kafka_telemetry_lake.pipelines.applications.costs import read_prices
from kafka_telemetry_lake.pipelines.findings.model import Saving
from kafka_telemetry_lake.pipelines.findings.rules import rules
from kafka_telemetry_lake.pipelines.findings.views import NO_METHOD
from tests.support.sql_views import answer

pytestmark = pytest.mark.lake

HOUR = datetime(2026, 7, 1, 12, tzinfo=UTC)
PRICES = """\
currency: EUR
bytes_in_gb: 2
bytes_out_gb: 1
storage_gb_month: 10
requests_million: 5
cross_zone_gb: 0
topics:
  - {topic: 'orders|bills', retention_hours: 72, replication_factor: 2}
"""
Rows = list[dict[str, Any]]


def counted(metric: str, delta: float, seconds: float = 3600, quarters: int = 1, **attributes: str) -> Rows:
    """A counter that rose in so many quarters of the hour; delta and seconds are those of the hour."""
    point = {"kind": "sum", "delta": delta / quarters, "delta_start": HOUR - timedelta(seconds=seconds / quarters)}
    return [
        point | _of(metric, attributes) | {"landed_at": HOUR + timedelta(minutes=15 * quarter)}
        for quarter in range(quarters)
    ]


def gauge(metric: str, value: float, pushes: int = 1, **attributes: str) -> Rows:
    return [{"kind": "gauge", "value": value} | _of(metric, attributes)] * pushes


def _of(metric: str, attributes: dict[str, str]) -> dict[str, Any]:
    name = {"metric": f"org.apache.kafka.{metric}", "attributes": list(attributes.items())}
    return name | {"delta_status": "ok", "time": HOUR}


def savings(tmp_path: Path, clients: dict[str, Rows], prices: str | None = PRICES) -> dict[tuple[str, str], Any]:
    """The rows of the view by client and finding."""
    landed = {"cluster_id": "c", "landed_at": HOUR, "landed_date": HOUR.date()}
    names = [landed | {"client_instance_id": name, "client_id": name} for name in clients]
    tables: dict[str, Rows] = {
        "push_outcomes": [
            each | {"outcome": "points", "labels": [("group_id", "g"), ("group_member_id", "m")]} for each in names
        ],
        "pushes": [each | {"push_interval_ms": 60_000} for each in names],
        "client_changes": [
            {"cluster_id": "c", "client_instance_id": name, "client_id": name, "step": 1} for name in clients
        ],
        "application_rules": [{"position": 0, "client_id": "shop.*", "application": "shop", "owner": "team"}],
        "metric_points": [
            each | point for each, points in zip(names, clients.values(), strict=True) for point in points
        ],
    }
    if prices is not None:
        (tmp_path / "prices.yml").write_text(prices)
        tables["prices"] = read_prices(tmp_path / "prices.yml")
    rows = answer("finding_savings", tables)
    return {(row["client_id"], row["finding"]): row for row in rows}


def sending(records: float, per_request: float, requests: float) -> Rows:
    counters = counted("producer.record.send.total", records) + counted("producer.request.total", requests)
    return counters + gauge("producer.records.per.request.avg", per_request)


def batches(mean: float, most: float, sent: float) -> Rows:
    sizes = gauge("producer.batch.size.avg", mean) + gauge("producer.batch.size.max", most)
    return sizes + counted("producer.topic.byte.total", sent, topic="orders")


CLIENTS: dict[str, tuple[str, Rows, float]] = {
    # 72,000 records at 20/s: linger.ms=100 gathers 2 (fewer than ten: it is at most 100), instead of 1 a request.
    "shop-single": ("one_record_per_request", sending(72_000, 1, 80_000), 72_000 - 36_000),
    # 360 kB/s fill 7200 bytes in 20 ms, instead of 1800: three of four requests (36,000 records by 10) go.
    "shop-tiny": ("tiny_batches", sending(36_000, 10, 5_000) + batches(1_800, 4_000, 360_000 * 3600), 2_700),
    "shop-full": ("full_batches", sending(1_440_000, 40, 50_000) + batches(15_000, 16_384, 1e9), 18_000),
    "shop-commits": (
        "frequent_commits",
        counted("consumer.coordinator.commit.total", 7_200) + counted("consumer.request.total", 20_000),
        7_200 - 720,
    ),
    # Left are two fetches a second on each of 3 connections, and one for each 100 kB of 180 MB.
    "shop-fetches": (
        "tiny_fetches",
        [
            *counted("consumer.fetch.manager.fetch.total", 360_000),
            *counted("consumer.incoming.byte.total", 180e6),
            *gauge("consumer.connection.count", 3),
            *counted("consumer.request.total", 400_000),
        ],
        360_000 - 21_600 - 1_800,
    ),
    "shop-churn": (
        "connection_churn",
        [
            *counted("producer.connection.creation.total", 360),
            *gauge("producer.connection.count", 4),
            *counted("producer.request.total", 500),
        ],
        356,
    ),
    "shop-idle-closes": (
        "idle_closes",
        [
            *counted("producer.connection.creation.total", 12),
            *counted("producer.connection.close.total", 12, quarters=4),
            *gauge("producer.connection.count", 2),
            *counted("producer.request.total", 500),
        ],
        10,
    ),
    "shop-member": (
        "idle_member",
        gauge("consumer.coordinator.assigned.partitions", 0, 60) + counted("consumer.request.total", 1_250),
        1_250,
    ),
}


def test_requests_that_the_advice_saves(tmp_path: Path) -> None:
    rows = savings(tmp_path, {name: points for name, (_, points, _) in CLIENTS.items()})
    assert {name: rows[name, finding]["requests_saved"] for name, (finding, _, _) in CLIENTS.items()} == {
        name: pytest.approx(saved) for name, (_, _, saved) in CLIENTS.items()
    }
    for name, (finding, _, saved) in CLIENTS.items():
        row, saving = rows[name, finding], rules()[finding].saving
        assert isinstance(saving, Saving)
        assert (row["application"], row["owner"], row["currency"], row["missing"]) == ("shop", "team", "EUR", None)
        assert (row["bytes_in_saved"], row["stored_byte_hours_saved"]) == (None, None)
        assert row["cost_saved"] == pytest.approx(saved / 1e6 * 5)
        assert (row["method"], row["measured"], row["assumed"]) == (saving.method, saving.measured, saving.assumed)
        assert row["window_start"] == HOUR


def test_every_estimate_is_tested() -> None:
    estimated = {rule.id for rule in rules().values() if isinstance(rule.saving, Saving)}
    assert {finding for finding, _, _ in CLIENTS.values()} | {"uncompressed_records"} == estimated


def plain(sent: float, *topics: str) -> Rows:
    of_topics = (point for topic in topics for point in compressed(sent, 1.0, topic))
    return [*gauge("producer.compression.rate.avg", 1.0), *of_topics]


def compressed(sent: float, ratio: float, topic: str) -> Rows:
    bytes_ = counted("producer.topic.byte.total", sent, topic=topic)
    return bytes_ + gauge("producer.topic.compression.rate", ratio, topic=topic)


def test_bytes_that_compression_saves_at_the_ratio_of_the_topic_s_other_producers(tmp_path: Path) -> None:
    clients = {
        "shop-plain": plain(1e9, "orders", "bills"),
        # 1 GB and 0.2 GB were 2 GB and 1 GB before: 0.4 of their size.
        "other-half": compressed(1e9, 0.5, "orders"),
        "other-tenth": compressed(0.2e9, 0.2, "orders"),
    }
    row = savings(tmp_path, clients)["shop-plain", "uncompressed_records"]
    assert (row["bytes_in_saved"], row["requests_saved"]) == (pytest.approx(0.6e9), None)  # nobody compresses for bills
    assert row["stored_byte_hours_saved"] == pytest.approx(0.6e9 * 72 * 2)
    assert row["cost_saved"] == pytest.approx(0.6 * 2 + 0.6 * 72 * 2 / 720 * 10)
    assert row["missing"] is None


def test_a_saving_is_at_most_what_the_client_had_and_never_below_zero(tmp_path: Path) -> None:
    few = {"shop-few": sending(72_000, 1, 40_000)}  # Java's records per request are too few: it had 40,000 requests
    assert savings(tmp_path, few)["shop-few", "one_record_per_request"]["requests_saved"] == 4_000
    churn = [*CLIENTS["shop-churn"][1][:2], *counted("producer.request.total", 100)]
    assert savings(tmp_path, {"shop-few": churn})["shop-few", "connection_churn"]["requests_saved"] == 100
    fast = [
        *counted("consumer.fetch.manager.fetch.total", 180_360), *counted("consumer.incoming.byte.total", 180e6),
        *gauge("consumer.connection.count", 30), *counted("consumer.request.total", 400_000),
    ]  # fmt: skip
    row = savings(tmp_path, {"shop-wide": fast})["shop-wide", "tiny_fetches"]
    assert (row["requests_saved"], row["cost_saved"], row["missing"]) == (0, 0, None)


def untold(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("requests_saved", "bytes_in_saved", "cost_saved", "missing"))


def test_without_a_price_list_or_a_count_that_it_prices_the_requests_are_told(tmp_path: Path) -> None:
    every = CLIENTS["shop-single"][1]
    rows = savings(tmp_path, {"shop-single": every}, prices=None)
    assert untold(rows["shop-single", "one_record_per_request"]) == (36_000, None, None, "there is no price list")
    points = [each for each in every if not each["metric"].endswith(".request.total")]
    row = savings(tmp_path, {"shop-single": points})["shop-single", "one_record_per_request"]
    said = "the client pushes no request.total, so the price list counts none of its requests"
    assert untold(row) == (36_000, None, None, said)


def test_a_topic_without_retention_has_no_cost(tmp_path: Path) -> None:
    clients = {"shop-plain": plain(1e9, "new"), "other": compressed(1e9, 0.5, "new")}
    row = savings(tmp_path, clients)["shop-plain", "uncompressed_records"]
    said = "the price list has no retention for a topic of the application"
    assert untold(row) == (None, pytest.approx(0.5e9), None, said)
    assert row["stored_byte_hours_saved"] is None


UNKNOWN = {
    "uncompressed_records": plain(1e9, "bills"),
    "tiny_fetches": [each for each in CLIENTS["shop-fetches"][1] if "connection" not in each["metric"]],
    "connection_churn": [each for each in CLIENTS["shop-churn"][1] if not each["metric"].endswith("count")],
    "idle_member": [each for each in CLIENTS["shop-member"][1] if not each["metric"].endswith("total")],
    "full_batches": [each for each in CLIENTS["shop-full"][1] if "request" not in each["metric"]],
}


@pytest.mark.parametrize("finding", UNKNOWN)
def test_without_a_metric_that_it_needs_it_says_so(tmp_path: Path, finding: str) -> None:
    saving = rules()[finding].saving
    assert isinstance(saving, Saving)
    row = savings(tmp_path, {"shop": UNKNOWN[finding]})["shop", finding]
    assert untold(row) == (None, None, None, saving.unknown)


def test_advice_that_saves_no_cost_says_why(tmp_path: Path) -> None:
    failing = counted("producer.record.error.total", 5) + counted("producer.record.send.total", 100)
    slow = gauge("consumer.coordinator.commit.latency.avg", 1_500)
    rows = savings(tmp_path, {"shop-failing": failing, "shop-slow": slow})
    assert untold(rows["shop-failing", "failed_records"]) == (None, None, None, NO_METHOD)
    slow_row = rows["shop-slow", "costly_commits"]
    assert untold(slow_row)[3] == rules()["costly_commits"].saving
    assert (slow_row["method"], slow_row["measured"], slow_row["assumed"]) == (None, None, None)
