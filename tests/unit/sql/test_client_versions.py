"""Versions of client libraries: the file of what is known, and the views that compare clients with it."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from kafka_telemetry_lake.pipelines.libraries.versions import NAME, VersionsError, parse_versions, versions
from tests.support.sql_views import answer

BUG = "{id: a, library: java, versions: [[1.0.0, 1.0.1]], affects: data, finding: true, summary: s, source: u}"


def client(instance: str, name: str | None, version: str | None, **more: Any) -> dict[str, Any]:
    known = {"cluster_id": "c", "client_instance_id": instance, "client_id": instance, "step": 1, "state": "active"}
    return known | {"client_software_name": name, "client_software_version": version} | more


def test_versions_in_use_with_their_bugs_support_and_brokers() -> None:
    clients = [
        client("1", "apache-kafka-java", "3.9.1"), client("2", "apache-kafka-java", "3.9.1", state="terminated"),
        client("3", "apache-kafka-java", "3.9.2"), client("4", "apache-kafka-java", "4.1.1"),
        client("5", "apache-kafka-java", "4.2.0"), client("6", "confluent-kafka-python", "2.10.0-rdkafka-2.10.0"),
        client("7", "librdkafka", "2.12.0"), client("8", "kgo", "v1.22.2"), client("9", "apache-kafka-java", "trunk"),
        client("10", "apache-kafka-java", "3.8.1", cluster_id="d"), client("11", None, None),
        client("12", "kgo", "v1.20.4"), client("13", "krafka", "0.27.0"),
        client("14", "apache-kafka-java", "7.9.2-ccs"), client("15", "apache-kafka-java", "2.0.1"),
        client("16", "apache-kafka-java", "2.1.0"),
    ]  # fmt: skip
    members = [
        {"cluster_id": "c", "group_id": "g", "member_id": "m", "client_id": "old", "host": "h", "assignment": []}
    ]
    rules = [{"position": 0, "client_id": "1|6", "application": "shop", "owner": "team"}]
    rows = answer("client_versions", {"client_changes": clients, "group_members": members, "application_rules": rules})
    said = {(row["cluster_id"], row["software_name"], row["software_version"]): row for row in rows}
    # Those before 2.1 are too old for brokers of 4.0.
    for version, works in (("2.0.1", False), ("2.1.0", True)):
        old = said.pop(("c", "apache-kafka-java", version))
        assert (old["works_with_brokers_4"], old["supported"]) == (works, False)
    columns = ("library", "instances", "active_instances", "supported", "end_of_life", "worst", "fixed_in",
               "works_with_brokers_4")  # fmt: skip
    java, python = "apache-kafka-java", "confluent-kafka-python"
    assert {key: tuple(row[name] for name in columns) for key, row in said.items()} == {
        ("c", java, "3.9.1"): ("java", 2, 1, False, None, "data", "4.2.1", True),
        ("c", java, "3.9.2"): ("java", 1, 1, False, None, "telemetry", "4.2.1", True),
        ("c", java, "4.1.1"): ("java", 1, 1, False, None, "data", "4.2.1", True),
        ("c", java, "4.2.0"): ("java", 1, 1, True, None, "telemetry", "4.2.1", True),
        ("c", java, "trunk"): ("java", 1, 1, None, None, None, None, None),
        ("c", python, "2.10.0-rdkafka-2.10.0"): ("librdkafka", 1, 1, None, None, "connections", "2.11.0", True),
        ("c", "librdkafka", "2.12.0"): ("librdkafka", 1, 1, None, None, None, None, True),
        ("c", "kgo", "v1.22.2"): ("franz-go", 1, 1, None, None, None, None, True),
        ("c", "kgo", "v1.20.4"): ("franz-go", 1, 1, None, None, "telemetry", "1.21.4", True),
        ("c", "krafka", "0.27.0"): ("krafka", 1, 1, None, None, "telemetry", None, None),
        # Of Kafka 3.9, nobody knows which patch: bugs that 3.9.2 mended may be in it or not, so they aren't named.
        ("c", java, "7.9.2-ccs"): ("java", 1, 1, False, None, "telemetry", "4.2.1", True),
        ("c", None, None): ("unknown", 2, 2, None, None, None, None, None),
        ("d", java, "3.8.1"): ("java", 1, 1, False, date(2025, 9, 2), "data", "4.2.1", True),
    }  # fmt: skip
    assert said["c", python, "2.10.0-rdkafka-2.10.0"]["bugs"] == [
        "librdkafka #5017", "librdkafka #5104", "librdkafka #5105", "librdkafka #5106",
    ]  # fmt: skip
    assert said["c", java, "3.9.1"]["bugs"] == ["CVE-2026-35554", "KAFKA-20393"]
    assert len(said["c", "kgo", "v1.20.4"]["bugs"]) == 5
    assert said["c", java, "7.9.2-ccs"]["bugs"] == ["KAFKA-20393"]
    assert (said["c", java, "3.9.1"]["applications"], said["c", java, "3.9.1"]["owners"]) == (["shop"], ["team"])
    assert {row["as_of"] for row in rows} == {versions().as_of}


@pytest.mark.parametrize(
    ("bugs", "message"),
    [
        (f"[{BUG.replace('1.0.1', '1.0.0')}]", "bugs.0: versions: the first version with the bug must be"),
        (f"[{BUG.replace('1.0.1', 'soon')}]", "bugs.0.versions.0.1: String should match"),
        (f"[{BUG.replace('affects: data', 'affects: us')}]", "bugs.0.affects: Input should be"),
        (f"[{BUG.replace('summary: s, ', '')}]", "bugs.0.summary: needed"),
        ("[", "not YAML"),
    ],
)
def test_what_is_wrong_with_the_file_is_one_line(bugs: str, message: str) -> None:
    with pytest.raises(VersionsError, match=f"^{NAME}: {message}") as caught:
        parse_versions(f"{{as_of: 2026-01-02, libraries: {{}}, bugs: {bugs}}}")
    assert "\n" not in str(caught.value)


def test_every_source_is_an_address_and_no_bug_is_listed_twice() -> None:
    known = versions()
    assert all(bug.source.startswith("https://") for bug in known.bugs)
    assert len({bug.id for bug in known.bugs}) == len(known.bugs)
    assert all(library.support_source.startswith("https://") for library in known.libraries.values())
