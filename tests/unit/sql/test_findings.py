"""Each rule of the findings: the behaviour that it is about, and the same just short of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.sql_views import answer

HOUR = datetime(2026, 11, 21, 12, tzinfo=UTC)
PRODUCER, CONSUMER = "org.apache.kafka.producer.", "org.apache.kafka.consumer."
SENT = f"{PRODUCER}record.send.total"
DOCS = Path(__file__).parents[3] / "docs" / "findings.md"

Metrics = dict[str, tuple[float, float]]  # of counters: increase and covered seconds; of gauges: value and -1


@dataclass(frozen=True)
class Client:
    """What each instance of a client id did in the hour."""

    metrics: Metrics = field(default_factory=dict)
    software: tuple[str | None, str | None] = (None, None)
    outcomes: tuple[dict[str, Any], ...] = ()
    instances: int = 1
    quarantine: tuple[dict[str, Any], ...] = ()

    def rows(self, client_id: str) -> dict[str, list[dict[str, Any]]]:
        landed = {"cluster_id": "c", "client_id": client_id, "landed_at": HOUR, "landed_date": HOUR.date()}
        given = self.outcomes or [{"client_instance_id": f"i{n}", "outcome": "points"} for n in range(self.instances)]
        ids = list(dict.fromkeys(row["client_instance_id"] for row in given))
        name, version = self.software
        push = {"push_interval_ms": 60_000, "client_software_name": name, "client_software_version": version}
        points = [{"client_instance_id": one, "metric": metric, "delta_status": "ok", "time": HOUR} | _point(*measured)
                  for one in ids for metric, measured in self.metrics.items()]  # fmt: skip
        return {
            "metric_points": [landed | point for point in points],
            "push_outcomes": [landed | row for row in given],
            "pushes": [landed | push | {"client_instance_id": one} for one in ids],
            "quarantine": [landed | {"client_instance_id": ids[0]} | row for row in self.quarantine],
        }


def _point(value: float, covered_s: float) -> dict[str, Any]:
    if covered_s >= 0:
        return {"kind": "sum", "delta": value, "delta_start": HOUR - timedelta(seconds=covered_s)}
    return {"kind": "gauge", "value": value}


Found = dict[str, tuple[str, str, str]]


def found_by_client(clients: dict[str, Client]) -> dict[str, Found]:
    """Severity, evidence and advice by finding, by client id; one query, as planning it is what takes time."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for client_id, client in clients.items():
        for table, rows in client.rows(client_id).items():
            tables.setdefault(table, []).extend(rows)
    found: dict[str, Found] = {client_id: {} for client_id in clients}
    for row in answer("findings", tables):
        assert row["window_start"] == HOUR
        evidence = without_hour(row["evidence"])
        found[row["client_id"]][row["finding"]] = (row["severity"], evidence, row["advice"])
    return found


def without_hour(evidence: str) -> str:
    """The evidence without its end, which names the hour."""
    assert evidence.endswith(", in the hour from 2026-11-21 12:00 UTC")
    return evidence.partition(", in the hour from ")[0]


def found(client: Client) -> Found:
    return found_by_client({"orders": client})["orders"]


def gauge(value: float) -> tuple[float, float]:
    return value, -1


QUIET: Metrics = {
    SENT: (36_000, 3600),
    f"{PRODUCER}record.retry.total": (0, 3600),
    f"{PRODUCER}record.error.total": (0, 3600),
    f"{PRODUCER}records.per.request.avg": gauge(20),
    f"{PRODUCER}batch.size.avg": gauge(2000),
    f"{PRODUCER}batch.size.max": gauge(16_000),
    f"{PRODUCER}record.size.avg": gauge(100),
    f"{PRODUCER}compression.rate.avg": gauge(0.4),
    f"{PRODUCER}topic.byte.total": (3_600_000, 3600),
    f"{PRODUCER}buffer.exhausted.total": (0, 3600),
    f"{PRODUCER}bufferpool.wait.ratio": gauge(0),
    f"{PRODUCER}connection.creation.total": (9, 3600),
    f"{PRODUCER}failed.authentication.total": (0, 3600),
    f"{PRODUCER}metadata.age": gauge(299),
    f"{PRODUCER}produce.throttle.time.max": gauge(0),
    f"{CONSUMER}coordinator.rebalance.total": (2, 3600),
    f"{CONSUMER}time.between.poll.max": gauge(149_999),
    f"{CONSUMER}poll.idle.ratio.avg": gauge(0.5),
    f"{CONSUMER}fetch.manager.records.lag.max": gauge(50_000),
}


ONE_BEHAVIOUR: list[tuple[str, str, Metrics, str]] = [
    ("failed_records", "error", {f"{PRODUCER}record.error.total": (3, 60)}, "3 records could not be sent (36000 were)"),
    (
        "silent_retries",
        "warning",
        {f"{PRODUCER}record.retry.total": (360, 3600)},
        "360 sends were retried for 36000 records",
    ),
    ("silent_retries", "info", {f"{PRODUCER}record.retry.total": (359, 3600)}, "none failed"),
    (
        "one_record_per_request",
        "warning",
        {f"{PRODUCER}records.per.request.avg": gauge(1.04)},
        "1.0 records per request at 10.0 records/s",
    ),
    (
        "full_batches",
        "info",
        {f"{PRODUCER}batch.size.avg": gauge(13_000), SENT: (360_000, 3600)},
        "13000 bytes on average, 16000 at most",
    ),
    ("uncompressed_records", "info", {f"{PRODUCER}compression.rate.avg": gauge(1.0)}, "3.6 MB were sent at 100.0 %"),
    ("buffer_full", "error", {f"{PRODUCER}buffer.exhausted.total": (1, 60)}, "1 records were given up"),
    ("buffer_full", "warning", {f"{PRODUCER}bufferpool.wait.ratio": gauge(0.02)}, "waited for buffer memory 2.0 %"),
    (
        "connection_churn",
        "warning",
        {f"{PRODUCER}connection.creation.total": (61, 3600)},
        "61 connections opened, 1.0 a minute",
    ),
    (
        "failed_authentication",
        "error",
        {f"{PRODUCER}failed.authentication.total": (2, 3600)},
        "2 authentications failed",
    ),
    ("unstable_group", "warning", {f"{CONSUMER}coordinator.rebalance.total": (3, 3600)}, "3 rebalances"),
    ("slow_processing", "warning", {f"{CONSUMER}time.between.poll.max": gauge(150_000)}, "150 s between two polls"),
    ("slow_processing", "error", {f"{CONSUMER}time.between.poll.max": gauge(300_000)}, "300 s between two polls"),
    (
        "processing_bound",
        "warning",
        {f"{CONSUMER}poll.idle.ratio.avg": gauge(0.05)},
        "5.0 % of the time for records, lag up to 50000",
    ),
    ("throttled", "warning", {f"{PRODUCER}produce.throttle.time.max": gauge(2546)}, "2546 ms at most"),
    ("throttled", "warning", {f"{CONSUMER}fetch.manager.fetch.throttle.time.max": gauge(1)}, "1 ms at most"),
    ("stale_metadata", "error", {f"{PRODUCER}metadata.age": gauge(408)}, "408 s old"),
]


def test_a_healthy_client_has_no_findings() -> None:
    assert found(Client(QUIET)) == {}


def test_one_behaviour_one_finding() -> None:
    findings = found_by_client({str(n): Client(QUIET | metrics) for n, (_, _, metrics, _) in enumerate(ONE_BEHAVIOUR)})
    for client, (finding, severity, _, evidence) in zip(findings.values(), ONE_BEHAVIOUR, strict=True):
        assert list(client) == [finding]
        assert client[finding][0] == severity
        assert evidence in client[finding][1]


def test_retries_that_end_in_failures_are_reported_as_failures() -> None:
    metrics = QUIET | {f"{PRODUCER}record.retry.total": (50, 60), f"{PRODUCER}record.error.total": (2, 60)}
    assert list(found(Client(metrics))) == ["failed_records"]


def test_advice_on_batching_follows_the_rate() -> None:
    """100 records/s of 2 kB: 100 ms of lingering gather 10 records, 20 kB, so a batch of 32 KiB holds them."""
    slow = QUIET | {f"{PRODUCER}records.per.request.avg": gauge(1.2), f"{PRODUCER}record.size.avg": gauge(2000)}
    rates = {"hundred": 360_000.0, "many": 36_000_000.0, "few": 35_000.0}
    findings = found_by_client({name: Client(slow | {SENT: (sent, 3600)}) for name, sent in rates.items()})
    advice = {name: client["one_record_per_request"][2] for name, client in findings.items() if client}
    assert "linger.ms=100 and batch.size=32768, about 10 records per request" in advice["hundred"]
    assert "linger.ms=5 and batch.size=131072, about 50 records per request" in advice["many"]
    assert "few" not in advice  # to gather them would take too long


def test_connections_at_a_start_are_no_churn() -> None:
    def opened(connections: float, seconds: float, instances: int) -> Client:
        return Client({f"{CONSUMER}connection.creation.total": (connections, seconds)}, instances=instances)

    findings = found_by_client(
        {
            "start": opened(9, 30, 1),
            "many": opened(10, 33, 3),
            "fewer": opened(9, 33, 3),
            "slow": opened(60, 3600, 1),
        }
    )
    assert {name for name, client in findings.items() if client} == {"many"}
    assert list(findings["many"]) == ["connection_churn"]


def test_client_versions_with_known_bugs() -> None:
    said = {
        ("confluent-kafka-python", "2.10.0-rdkafka-2.10.0"): "librdkafka 2.10.0",
        ("librdkafka", "2.5.0"): "librdkafka 2.5.0",
        ("confluent-kafka-python", "2.11.1-rdkafka-2.11.1"): "librdkafka 2.11.1",
        ("apache-kafka-java", "3.8.1"): "Java client 3.8.1",
        ("confluent-kafka-python", "2.10.1-rdkafka-2.10.1"): None,
        ("confluent-kafka-python", "2.12.0-rdkafka-2.12.0"): None,
        ("librdkafka", "unknown"): None,
        ("apache-kafka-java", "3.9.0"): None,
        ("kgo", "v1.22.2"): None,
        (None, None): None,
    }
    findings = found_by_client({str(software): Client(software=software) for software in said})
    evidence = [[(name, evidence) for name, (_, evidence, _) in client.items()] for client in findings.values()]
    assert evidence == [[] if text is None else [("buggy_client_version", text)] for text in said.values()]


def test_short_lived_clients_push_less_often_than_their_interval_asks() -> None:
    def run(instances: int, each: int) -> Client:
        pushes = [(f"i{n}", minute) for n in range(instances) for minute in range(n % 2, each * 2, 2)]
        return Client(outcomes=tuple(
            {"client_instance_id": name, "outcome": "points", "landed_at": HOUR + timedelta(minutes=minute)}
            for name, minute in [*pushes, ("i0", 50)]
        ))  # fmt: skip

    findings = found_by_client({"short": run(12, 2), "steady": run(12, 14), "few": run(9, 2)})
    assert {name: list(client) for name, client in findings.items()} == {
        "short": ["short_lived_clients"],
        "steady": [],
        "few": [],
    }


def test_what_happened_to_the_telemetry_itself() -> None:
    good = {"client_instance_id": "i", "outcome": "points", "decompressed_bytes": 838_860}
    assert found(Client(outcomes=(good,))) == {}
    findings = found(
        Client(
            outcomes=(
                good,
                good | {"outcome": "quarantined"},
                good | {"lost_start": HOUR, "decompressed_bytes": 838_861},
            )
        )
    )
    assert {name: (severity, evidence) for name, (severity, evidence, _) in findings.items()} == {
        "large_telemetry": ("warning", "pushes of up to 838861 bytes, decompressed"),
        "lost_telemetry": ("info", "1 intervals were collected by the client but never landed"),
        "unreadable_telemetry": ("error", "1 of 3 pushes could not be read"),
    }


def test_a_push_that_could_not_be_processed_is_no_unreadable_one() -> None:
    failed = {"client_instance_id": "i", "outcome": "quarantined"}
    rows = ({"scope": "push", "reason": "PROCESSING_FAILED"}, {"scope": "push", "reason": "INVALID_RECORD"})
    (one,) = found(Client(outcomes=(failed,), quarantine=rows[:1])).items()
    assert (one[0], one[1][:2]) == (
        "failed_processing", ("error", "1 of 1 pushes made their processing fail and were set aside")
    )  # fmt: skip
    assert "replay --from quarantine" in one[1][2]
    both = found(Client(outcomes=(failed, failed), quarantine=rows))
    assert {name: evidence for name, (_, evidence, _) in both.items()} == {
        "failed_processing": "1 of 2 pushes made their processing fail and were set aside",
        "unreadable_telemetry": "1 of 2 pushes could not be read",
    }


def test_a_principal_that_lands_more_than_ten_shares_of_twenty_or_more() -> None:
    def greedy(others: int, size: int) -> list[tuple[Any, ...]]:
        sent = [("User:greedy", size), *((f"User:{n}", 100) for n in range(others)), (None, 10**9)]
        landed = {"cluster_id": "c", "client_id": "x", "client_instance_id": "i", "landed_at": HOUR}
        landed["landed_date"] = HOUR.date()
        rows = [landed | {"principal": principal, "payload_bytes": size} for principal, size in sent]
        found = answer("findings", {"pushes": rows})
        greedy = [row for row in found if row["finding"] == "greedy_principal"]
        return [(row["client_id"], without_hour(row["evidence"])) for row in greedy]

    # 20 principals: more than 10 / 20 of all bytes
    assert greedy(19, 1900) == []
    evidence = "User:greedy landed 1901 of 3801 bytes by 1 client instances; 20 principals pushed"
    assert greedy(19, 1901) == [(None, evidence)]
    assert greedy(18, 10**6) == []
