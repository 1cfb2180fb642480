"""Findings about versions, names and pushes: what clients are, and how their telemetry lands."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kafka_telemetry_lake.pipelines.libraries.versions import versions
from tests.support.made_clients import (
    CONSUMER,
    HOUR,
    Client,
    at,
    found,
    found_by_client,
    found_rows,
    gauged,
    tables_of,
    without_hour,
)
from tests.support.sql_views import answer

pytestmark = pytest.mark.lake


def test_client_versions_with_known_bugs() -> None:
    said = {
        ("confluent-kafka-python", "2.10.0-rdkafka-2.10.0"): "librdkafka 2.10.0",
        ("librdkafka", "2.5.0"): "librdkafka 2.5.0",
        ("confluent-kafka-python", "2.11.1-rdkafka-2.11.1"): "librdkafka 2.11.1",
        ("confluent-kafka-go", "2.11.1"): "librdkafka 2.11.1",
        ("confluent-kafka-javascript", "1.4.0-librdkafka-2.11.0"): "librdkafka 2.11.0",
        ("apache-kafka-java", "3.8.1"): "Java client 3.8.1",
        ("apache-kafka-java", "7.8.1-ccs"): "Java client 7.8.1-ccs",
        ("kgo", "v1.21.3"): "franz-go 1.21.3",
        ("krafka", "0.27.0"): "krafka 0.27.0",
        ("confluent-kafka-python", "2.10.1-rdkafka-2.10.1"): None,
        ("confluent-kafka-python", "2.12.0-rdkafka-2.12.0"): None,
        ("confluent-kafka-go", "2.15.0"): None,
        ("librdkafka", "unknown"): None,
        ("apache-kafka-java", "3.9.0"): None,
        ("apache-kafka-java", "4.3.1"): None,
        ("kgo", "v1.22.2"): None,
        ("kgo", "unknown"): None,
        (None, None): None,
    }
    findings = found_by_client({str(software): Client(software=software) for software in said})
    evidence = [[(name, evidence) for name, (_, evidence, _) in client.items()] for client in findings.values()]
    assert evidence == [[] if text is None else [("buggy_client_version", text)] for text in said.values()]
    severity, _, advice = findings[str(("kgo", "v1.21.3"))]["buggy_client_version"]
    assert severity == "warning"
    assert "looks silent (franz-go #1348, terminating push); its metrics" in advice
    assert advice.endswith(f". Update to 1.21.4 or newer (as of {versions().as_of}).")
    krafka = findings[str(("krafka", "0.27.0"))]["buggy_client_version"][2]
    assert "the totals since its start, so sums count them again (krafka, deltas)" in krafka
    assert krafka.endswith(f". No version without them is known (as of {versions().as_of}).")


def test_a_bug_that_only_ends_telemetry_is_named_once_a_client_is_silent() -> None:
    """KAFKA-20393: Java pushes on to the old address of a broker that moved."""
    software = {"4.2.0": "4.2.1", "4.3.1": "4.4.0", "4.2.2": None, "4.4.0": None}
    tables = tables_of({version: Client(software=("apache-kafka-java", version)) for version in software})
    tables["client_events"] = [at(version, "i0", event="went_silent") for version in software]
    found_in = {row["client_id"]: row for row in answer("instance_findings", tables)}
    assert found_in.keys() == {version for version, fixed in software.items() if fixed}
    for version, row in found_in.items():
        assert (row["finding"], row["severity"]) == ("buggy_client_version", "info")
        assert row["advice"].startswith("after the address of the broker that it pushes to changed, it goes on pushing")
        assert f"(KAFKA-20393). Update to {software[version]} or newer" in row["advice"]


def test_the_bounds_of_short_lived_clients() -> None:
    """A push interval is 60 s: ten instances, six intervals, and less than a quarter of the pushes that they ask."""

    def run(instances: int, pushes: int, span_s: int) -> Client:
        times = [HOUR] * (pushes - 1) + [HOUR + timedelta(seconds=span_s)]
        return Client(outcomes=tuple(
            {"client_instance_id": f"i{n % instances}", "outcome": "points", "landed_at": at}
            for n, at in enumerate(times)
        ))  # fmt: skip

    fleets = {"all": run(10, 10, 360), "few": run(9, 9, 360), "short": run(10, 10, 359), "rare": run(10, 15, 361),
              "quarter": run(10, 15, 360)}  # fmt: skip
    findings = {name: list(client) for name, client in found_by_client(fleets).items() if client}
    assert findings == {"all": ["short_lived_clients"], "rare": ["short_lived_clients"]}


def test_what_happened_to_the_telemetry_itself() -> None:
    good = {"client_instance_id": "i", "outcome": "points", "decompressed_bytes": 838_860}
    assert found(Client(outcomes=(good,))) == {}
    bad = (good | {"outcome": "quarantined"}, good | {"lost_start": HOUR, "decompressed_bytes": 838_861})
    findings = found(Client(outcomes=(good, *bad)))
    assert {name: (severity, evidence) for name, (severity, evidence, _) in findings.items()} == {
        "large_telemetry": (
            "warning",
            "pushes of up to 838861 bytes, decompressed; it went on after intervals that never landed, as clients do "
            "after TELEMETRY_TOO_LARGE",
        ),
        "lost_telemetry": ("info", "intervals that the client collected but that never landed: 1"),
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


def test_telemetry_that_ends_near_the_size_that_brokers_refuse() -> None:
    """Not if it was small, said goodbye (then there is no event), pushes again, or another push was the large one."""

    def push(client_id: str, size: int | None, minute: int, **more: Any) -> dict[str, Any]:
        landed = {"landed_at": HOUR + timedelta(minutes=minute), "decompressed_bytes": size, "outcome": "points"}
        return at(client_id, "i", **landed, **more)

    def silent(client_id: str, minute: int, event: str = "went_silent") -> dict[str, Any]:
        return at(client_id, "i", event=event) | {"landed_at": HOUR + timedelta(minutes=minute)}

    tables: dict[str, list[dict[str, Any]]] = {
        "push_outcomes": [
            push("cut", 100, 0), push("cut", 838_861, 9), push("small", 838_860, 9), push("closed", 838_861, 9),
            push("back", 838_861, 5), push("back", 838_861, 9), push("then small", 838_861, 5),
            push("then small", 838_860, 9), push("upgraded", 1_048_577, 9), push("default", 1_048_576, 9),
            push("tried", 900_000, 5), push("tried", 1_048_577, 9, lost_start=HOUR), push("dropped", 900_000, 5),
            push("dropped", None, 9), push("consumer", 838_861, 9), push("allowed", 1_048_577, 9),
        ],
        "client_events": [
            silent("cut", 9), silent("small", 9), silent("closed", 9, "terminated"), silent("back", 5),
            silent("back", 9, "resumed"), silent("then small", 9), silent("upgraded", 9), silent("default", 9),
            silent("tried", 5), silent("tried", 9), silent("dropped", 9), silent("consumer", 9),
            at("cut", "j", event="went_silent"), silent("gone", 9),
        ],
        "metric_points": [gauged("consumer", "i", f"{CONSUMER}poll.idle.ratio.avg", 0.5)],
    }  # fmt: skip
    after, before = "it fell silent without a terminating push after one of {} bytes, decompressed; {}", (
        "brokers that take so much have a larger telemetry.max.bytes or bound the compressed size only"
    )  # fmt: skip
    maybe = "the next one may have been too large"
    tried = "it had gone on after intervals that never landed, as clients do after TELEMETRY_TOO_LARGE"
    assert [(row[0], row[-2], row[-1]) for row in found_rows(tables, "telemetry_cut_off")] == [
        ("consumer", "error", after.format(838_861, maybe)),
        ("cut", "warning", after.format(838_861, maybe)),
        ("default", "warning", after.format(1_048_576, maybe)),
        ("tried", "warning", after.format(1_048_577, tried)),
        ("upgraded", "warning", after.format(1_048_577, f"{before}, and an upgrade ends that")),
    ]
    pushes = "pushes of up to {} bytes, decompressed{}"
    assert [(row[0], row[-1]) for row in found_rows(tables, "large_telemetry")] == [
        ("allowed", pushes.format(1_048_577, f"; {before}")),
        *((name, pushes.format(838_861, "")) for name in ("back", "closed")),
        ("dropped", pushes.format(900_000, "")),
        ("then small", pushes.format(838_861, "")),
    ]


def test_what_the_names_of_clients_show() -> None:
    def push(client_id: str, n: int, principal: str = "User:a", version: str = "4.3.0") -> dict[str, Any]:
        software = {"client_software_name": "apache-kafka-java", "client_software_version": version}
        return at(client_id, f"i{n}", principal=principal, **software)

    pushes = [
        push("fine", 1), push("fine", 2), push("shared", 1), push("shared", 2, "User:b"),
        push("mixed", 1), push("mixed", 2, version="4.2.0"), push("rdkafka", 1), push("producer-1", 1), push("", 1),
        push("producer-x", 1), push("my-consumer-1", 1), push("dekaf-producer", 1), push("krafka", 1),
        push("unnamed", 1) | {"client_software_name": "unknown", "client_software_version": "unknown"},
        push("unnamed", 1), push("unnamed", 2),
    ]  # fmt: skip
    rows = answer("findings", {"pushes": pushes})
    assert sorted((row["finding"], row["client_id"], without_hour(row["evidence"])) for row in rows) == [
        ("default_client_id", "", "1 client instances have the client id that their library sets"),
        ("default_client_id", "dekaf-producer", "1 client instances have the client id that their library sets"),
        ("default_client_id", "krafka", "1 client instances have the client id that their library sets"),
        ("default_client_id", "producer-1", "1 client instances have the client id that their library sets"),
        ("default_client_id", "rdkafka", "1 client instances have the client id that their library sets"),
        (
            "mixed_versions",
            "mixed",
            "2 client instances have 2 versions, such as apache-kafka-java 4.2.0 and apache-kafka-java 4.3.0",
        ),
        ("shared_client_id", "shared", "2 principals use it, such as User:a and User:b"),
    ]
