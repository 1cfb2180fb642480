"""The page about versions: what it says about each, and how old its knowledge is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from kafka_telemetry_lake.dashboards.screens import version as screen
from kafka_telemetry_lake.pipelines.libraries.versions import versions
from tests.support.shown_tables import note_tables
from tests.support.sql_views import answer


def test_the_page_names_libraries_bugs_and_the_date_of_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = [
        ("confluent-kafka-go", "2.15.0"), ("apache-kafka-java", "4.3.1"), ("apache-kafka-java", "3.6.0"),
        ("krafka", "0.27.0"), ("my-service", "1"),
    ]  # fmt: skip
    clients = [
        {"cluster_id": "c", "client_instance_id": str(n), "client_id": "a", "step": 1, "state": "active",
         "client_software_name": name, "client_software_version": number}
        for n, (name, number) in enumerate(sent)
    ]  # fmt: skip
    members = [{"cluster_id": "c", "group_id": "g", "member_id": "m", "client_id": "old", "assignment": []}]

    def rows(view: str) -> pd.DataFrame:
        tables = {"client_changes": clients} | ({"group_members": members} if view == "client_versions" else {})
        return pd.DataFrame(answer(view, tables))

    shown = note_tables(monkeypatch, screen)
    scene: Any = SimpleNamespace(rows=rows, selection=SimpleNamespace(chosen=lambda _: ()))
    screen.page(scene)
    assert list(shown) == [
        "Versions, and what to do about them",
        "Ready for a change of the brokers' addresses (KIP-1102)?",
    ]
    assert all(f"known on {versions().as_of}" in note for _, _, note, _ in shown.values())
    said = shown["Versions, and what to do about them"].rows
    assert said is not None
    advice = dict(zip(said["software"], said["advice"], strict=True))
    assert advice == {
        "confluent-kafka-go 2.15.0": "",
        "apache-kafka-java 4.3.1": "Update to 4.4.0: it has known bugs.",
        "apache-kafka-java 3.6.0": "Update to 3.9.2: it has known bugs.",
        "krafka 0.27.0": "It has known bugs, and no version without them is known.",
        "my-service 1": "No library is known for this name: docs/applications.md says how to add it.",
        "unknown unknown": "Members that push nothing: look at the brokers' DeprecatedRequestsPerSec before an "
        "upgrade.",
    }
    libraries = dict(zip(said["software"], said["library"], strict=True))
    assert (libraries["confluent-kafka-go 2.15.0"], libraries["my-service 1"]) == ("librdkafka", "unknown")
