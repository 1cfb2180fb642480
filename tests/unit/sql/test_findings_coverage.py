"""Finding silent_software: at its bounds and just below, by the reports of an hour."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.support.made_clients import HOUR, without_hour
from tests.support.sql_views import answer

PYTHON, JAVA = ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0"), ("apache-kafka-java", "4.3.1")


def reports(software: tuple[str, str], connections: int, minute: int = 0, broker: int = 1) -> list[dict[str, Any]]:
    """A status of a broker: a row of the software and one of the others."""
    at = HOUR + timedelta(minutes=minute)
    row = {"cluster_id": "c", "broker_id": broker, "landed_at": at, "landed_date": at.date(), "reported_at": at,
           "listener": "L"}  # fmt: skip
    name, version = software
    counted = {"client_software_name": name, "client_software_version": version, "connections": connections}
    return [row | {"connections": 0}] + ([row | counted] if connections else [])


def pushed(software: tuple[str, str], instances: int) -> list[dict[str, Any]]:
    name, version = software
    return [
        {"cluster_id": "c", "client_instance_id": f"i{n}", "landed_at": HOUR, "landed_date": HOUR.date(),
         "client_software_name": name, "client_software_version": version}
        for n in range(instances)
        for _ in range(2)
    ]  # fmt: skip


def found(connections: list[dict[str, Any]], pushes: list[dict[str, Any]] | None = None) -> list[tuple[Any, ...]]:
    rows = answer("findings", {"broker_connections": connections, "pushes": pushes or []})
    return [
        (row["scope"], row["subject"], row["measure"], row["instances"], without_hour(row["evidence"]))
        for row in rows
        if row["finding"] == "silent_software"
    ]


def test_twenty_connections_of_clients_that_push_nothing() -> None:
    evidence = (
        "at least 20 of 20 connections of confluent-kafka-python 2.16.1-rdkafka-2.16.0 are of clients that push nothing"
    )
    assert found(reports(PYTHON, 20)) == [
        ("software", " ".join(PYTHON), 20.0, 0, f"{evidence}; 0 client instances of it pushed")
    ]
    assert found(reports(PYTHON, 19)) == []
    assert found([]) == []


def test_pushing_instances_may_have_a_connection_to_each_broker_and_three_more() -> None:
    """Two brokers: at most 5 each, so 11 of 41 are theirs, and more than half must be left."""
    rows = reports(PYTHON, 40) + reports(PYTHON, 1, broker=2)
    assert [row[2:4] for row in found(rows, pushed(PYTHON, 4))] == [(21.0, 4)]
    assert found(reports(PYTHON, 39) + reports(PYTHON, 1, broker=2), pushed(PYTHON, 4)) == []  # exactly half
    assert found(rows, pushed(PYTHON, 5)) == []
    assert [row[2:4] for row in found(rows, pushed(JAVA, 50))] == [(41.0, 0)]


def test_brokers_own_connections_are_of_java_too() -> None:
    assert [row[2] for row in found(reports(JAVA, 26))] == [20.0]
    assert found(reports(JAVA, 25)) == []


def test_the_mean_of_the_hours_reports_counts() -> None:
    """Of three reports two had 30 connections, and one that landed after the others none."""
    rows = reports(PYTHON, 30, 1) + reports(PYTHON, 30, 2) + reports(PYTHON, 0, 3)
    assert [row[2] for row in found(rows)] == [20.0]
    assert found(rows + reports(PYTHON, 0, 4)) == []
