"""The page about who pushes: shares in percent, the most silent software first."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from kafka_telemetry_lake.dashboards.clients import NONE
from kafka_telemetry_lake.dashboards.screens import coverage as screen
from tests.support.shown_tables import note_tables
from tests.support.sql_views import answer

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def scene_of(rows: Callable[[str], pd.DataFrame | None], instances: int = 1) -> Any:
    clients = SimpleNamespace(known=NONE._replace(instances=instances))
    return SimpleNamespace(rows=rows, clients=clients)


def test_the_points_of_many_instances_are_read_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, offered, answers = list[str](), list[tuple[str, str]](), iter([True, False])

    def rows(view: str) -> None:
        asked.append(view)

    def on_demand(title: str, note: str) -> bool:
        offered.append((title, note))
        return next(answers)

    monkeypatch.setattr(screen, "on_demand", on_demand)
    monkeypatch.setattr(screen, "table", lambda *_: None)
    monkeypatch.setattr(screen, "every_column", lambda *_: None)
    for more, views in ((0, 2), (1, 2), (1, 0)):
        asked.clear()
        screen.page(scene_of(rows, screen.MOST_AT_ONCE + more))
        assert len(asked) == views
    assert offered == 2 * [(screen.TITLE, "This reads every data point of the lake and may take a while.")]


@pytest.mark.parametrize("known", [True, False])
def test_the_page_shows_what_the_views_say(monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    counted = [("kafka-python", "3.0.12", 4), ("librdkafka", "2.10.1", 9), (None, None, 1)]
    reports = [
        {"cluster_id": "c", "broker_id": 1, "reported_at": NOON, "listener": "L", "client_software_name": name,
         "client_software_version": version, "connections": connections}
        for name, version, connections in counted
    ]  # fmt: skip
    samples = [{"cluster_id": "c", "client_id": "quiet", "user": "", "time": NOON}]

    def rows(view: str) -> pd.DataFrame | None:
        tables = {"broker_connections": reports} | ({"quota_samples": samples} if view == "silent_clients" else {})
        return pd.DataFrame(answer(view, tables)) if known else None

    shown = note_tables(monkeypatch, screen)
    screen.page(scene_of(rows))
    assert all(each.note and each.none for each in shown.values())
    of_software, of_clients = shown.values()
    if of_software.rows is None or of_clients.rows is None:
        assert not known
        return
    names = ["software", "connections", "share_at_least", "share_at_most", "likely_reason"]
    assert set(names) <= set(of_software.columns)
    software = list(of_software.rows[names].itertuples(index=False, name=None))
    clients = list(of_clients.rows[["client_id", "seen_in"]].itertuples(index=False, name=None))
    assert software[:2] == [
        ("librdkafka 2.10.1", 9, 0.0, 0.0, "switched_off"), ("kafka-python 3.0.12", 4, 0.0, 0.0, "no_support"),
    ]  # fmt: skip
    assert pd.isna(software[2][0])
    assert software[2][1:] == (1, 0.0, 0.0, "unknown")
    assert clients == [("quiet", "quotas")]
