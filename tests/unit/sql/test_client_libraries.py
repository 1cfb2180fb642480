"""Which library a client is of: the names and versions that libraries and their bindings really send (KIP-511)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kafka_telemetry_lake.pipelines.libraries.versions import VersionsError, parse_versions, versions
from tests.support.sql_views import answer, told

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
IDLE = "org.apache.kafka.consumer.poll.idle.ratio.avg"
# Software name and version as sent: library, its version, and readiness for other addresses of all brokers.
SENT: dict[tuple[str | None, str | None], tuple[str, str | None, str]] = {
    ("apache-kafka-java", "4.3.1"): ("java", "4.3.1", "default"),
    ("apache-kafka-java", "4.4.0-SNAPSHOT"): ("java", "4.4.0", "default"),
    ("apache-kafka-java", "4.0.0"): ("java", "4.0.0", "default"),
    ("apache-kafka-java", "3.9.1.redhat-00001"): ("java", "3.9.1", "opt_in"),
    ("apache-kafka-java", "7.7.1-ccs"): ("java", "3.7", "none"),  # Confluent's build of Kafka 3.7
    ("apache-kafka-java", "7.7.1-ccs-SNAPSHOT"): ("java", "3.7", "none"),
    ("apache-kafka-java", "8.1.0-13-ce"): ("java", "4.1", "default"),
    ("apache-kafka-java", "unknown"): ("java", None, "unknown"),
    ("librdkafka", "2.16.0"): ("librdkafka", "2.16.0", "default"),
    ("librdkafka", "2.10.1"): ("librdkafka", "2.10.1", "false_triggers"),
    ("librdkafka", "2.12.1-RC1"): ("librdkafka", "2.12.1", "default"),  # from Rust, node-rdkafka, PHP, C
    ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0"): ("librdkafka", "2.16.0", "default"),
    ("confluent-kafka-javascript", "1.10.1-librdkafka-2.15.1"): ("librdkafka", "2.15.1", "default"),
    ("confluent-kafka-javascript", "v1.4.0-librdkafka-2.11.0"): ("librdkafka", "2.11.0", "false_triggers"),
    ("confluent-kafka-go", "2.15.0"): ("librdkafka", "2.15.0", "default"),
    ("confluent-kafka-dotnet", "2.9.0"): ("librdkafka", "2.9.0", "none"),
    ("karafka", "v2.5.0-rdkafka-ruby-v0.19.5-librdkafka-v2.8.0"): ("librdkafka", "2.8.0", "none"),
    ("org.muhkuh.lua-kafka", "0.2.1-librdkafka-2.10.0"): ("librdkafka", "2.10.0", "false_triggers"),
    ("zig-kafka", "0.0.6"): ("librdkafka", None, "unknown"),  # its own version
    ("zigrdkafka", "1.2.3"): ("librdkafka", None, "unknown"),
    ("kgo", "v1.22.2"): ("franz-go", "1.22.2", "unknown"),
    ("kgo", "v1.20.5-0.20260101000000-abcdef012345"): ("franz-go", "1.20.5", "unknown"),
    ("kgo", "unknown"): ("franz-go", None, "unknown"),
    ("krafka", "0.27.0"): ("krafka", "0.27.0", "unknown"),
    ("kafrust", "0.3.1"): ("kafrust", "0.3.1", "unknown"),
    ("dekaf", "1.0.0.0"): ("dekaf", "1.0.0", "unknown"),
    ("kafka-python", "3.0.12"): ("kafka-python", "3.0.12", "unknown"),
    ("sarama", "v1.61.1"): ("sarama", "1.61.1", "unknown"),
    ("sarama", "dev"): ("sarama", None, "unknown"),  # built from a vendored copy
    ("platformatic-kafka", "2.12.1"): ("unknown", None, "unknown"),
    ("my-service", "2.15.0"): ("unknown", None, "unknown"),
    ("unknown", "unknown"): ("unknown", None, "unknown"),  # what brokers have for clients that say nothing
    (None, None): ("unknown", None, "unknown"),
}


def clients() -> list[dict[str, Any]]:
    return [
        {
            "cluster_id": "c", "client_instance_id": f"i{n}", "client_id": f"c{n}", "step": 1, "state": "active",
            "client_software_name": name, "client_software_version": version,
        }
        for n, (name, version) in enumerate(SENT)
    ]  # fmt: skip


def by_software(rows: list[dict[str, Any]], prefix: str, *columns: str) -> dict[Any, Any]:
    names = (f"{prefix}software_name", f"{prefix}software_version")
    return {tuple(row[name] for name in names): tuple(row[name] for name in columns) for row in rows}


def test_every_view_knows_the_library_by_the_strings_that_are_really_sent() -> None:
    known = {software: (library, version) for software, (library, version, _) in SENT.items()}
    tables = {"client_changes": clients()}
    assert by_software(answer("clients", tables), "client_", "library", "library_version") == known
    assert by_software(answer("client_versions", tables), "", "library", "library_version") == known
    said = by_software(answer("rebootstrap_readiness", tables), "client_", "library", "library_version", "readiness")
    assert said == SENT
    java = [each for each in clients() if each["client_software_version"] == "4.0.0"]
    twice = {"client_changes": [*java, java[0] | {"client_instance_id": "b"}]}
    assert told("rebootstrap_readiness", twice, "clients, active_clients") == [(2, 2)]


def test_columns_of_findings_know_it_too() -> None:
    landed = {"cluster_id": "c", "landed_at": AT, "landed_date": AT.date()}
    of = [landed | {name: each[name] for name in ("client_id", "client_instance_id")} for each in clients()]
    pushes = [
        row | {"client_software_name": name, "client_software_version": version}
        for row, (name, version) in zip(of, SENT, strict=True)
    ]
    idle = {"metric": IDLE, "kind": "gauge", "value": 0.25, "delta_status": "ok", "time": AT}
    outcomes = [row | {"outcome": "points"} for row in of]
    rows = answer(
        "instance_hours",
        {"pushes": pushes, "push_outcomes": outcomes, "metric_points": [row | idle for row in of]},
    )
    said = by_software(rows, "", "library", "library_version")
    sent = {software: known for software, known in SENT.items() if software[0] != "unknown"}  # which is no name
    assert said == {software: (library, version) for software, (library, version, _) in sent.items()}
    # Java's ratio is of the time since the start of the poll before; librdkafka's is the share itself, but in
    # JavaScript and in Rust, whose clients may have the name of C's, the application isn't who polls.
    shares = {"java": pytest.approx(1 / 3), "librdkafka": 0.25}
    unknown = ("librdkafka", "confluent-kafka-javascript")
    assert by_software(rows, "", "poll_share") == {
        software: (None if software[0] in unknown else shares.get(library),) for software, (library, *_) in sent.items()
    }


def test_a_connection_that_names_no_software_hides_no_library() -> None:
    """franz-go before 1.21.0 names itself on its first connection only; brokers have `unknown` for the others."""
    landed = {"cluster_id": "c", "client_id": "a", "client_instance_id": "i", "landed_date": AT.date()}
    pushes = [
        landed
        | {"landed_at": AT + timedelta(minutes=n)}
        | {"client_software_name": name, "client_software_version": version}
        for n, (name, version) in enumerate([("kgo", "v1.20.5"), ("unknown", "unknown"), (None, None)])
    ]
    (row,) = answer("instance_hours", {"pushes": pushes, "push_outcomes": [landed | {"landed_at": AT}]})
    assert (row["library"], row["library_version"], row["library_number"]) == ("franz-go", "1.20.5", 1_020_005)


def test_measures_that_the_library_lacks_are_said_to_be_lacking_for_each_binding() -> None:
    points = [
        {
            "cluster_id": "c", "client_instance_id": each["client_instance_id"], "delta": 1.0, "kind": "sum",
            "metric": "org.apache.kafka.producer.connection.creation.total", "temporality": "delta",
            "delta_status": "delta", "delta_start": AT, "time": AT, "landed_at": AT, "attributes": [],
        }
        for each in clients()
    ]  # fmt: skip
    rows = answer("client_measures", {"client_changes": clients(), "metric_points": points})
    lacks = by_software(rows, "client_", "not_in_library")
    assert {software for software, (text,) in lacks.items() if "records_sent" in text.split(", ")} == {
        software for software, (library, *_) in SENT.items() if library in ("librdkafka", "franz-go")
    }


def test_a_library_has_the_same_name_in_all_views() -> None:
    rows = answer("known_metrics", {}, "SELECT DISTINCT unnest(libraries) AS library FROM known_metrics ORDER BY ALL")
    named = [row["library"] for row in rows]
    assert named == ["franz-go", "java", "librdkafka"]
    assert set(named) <= versions().libraries.keys()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{library: java, source: u}", "software.0: name: needed, or within"),
        ("{library: java, name: 'a(', source: u}", "software.0: name or within: not a regular expression"),
        (
            "{library: java, name: 'a', within: '1[.]2', source: u}",
            "software.0: groups: none in name, and one in within",
        ),
        ("{library: java, within: '(1)', bare: true, source: u}", "software.0: bare: not with within"),
        ("{library: nobody, name: a, source: u}", "libraries: nobody isn't one of them"),
    ],
)
def test_what_is_wrong_with_an_entry_is_one_line(entry: str, message: str) -> None:
    java = "{java: {source: u, support_source: u}}"
    with pytest.raises(VersionsError, match=message) as caught:
        parse_versions(f"{{as_of: 2026-01-02, software: [{entry}], libraries: {java}, bugs: []}}")
    assert "\n" not in str(caught.value)
