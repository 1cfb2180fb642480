"""The page about KIP-714: each version with its rules, broken ones with their evidence, and what they mean."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from kafka_telemetry_lake.dashboards.screens import conformance as screen
from tests.support.shown_tables import note_tables
from tests.support.sql_views import answer
from tests.unit.sql.test_sql_conformance import tables as tables_of

Shown = dict[str, list[tuple[Any, ...]]]


def shown(monkeypatch: pytest.MonkeyPatch, rows: pd.DataFrame, instances: int = 3, asked: bool = True) -> Shown:
    """What the page shows: by the title of a table its headings and its rows."""
    drawn: Shown = {}
    demanded: list[str] = []
    tables = note_tables(monkeypatch, screen)

    def on_demand(title: str, _note: str) -> bool:
        demanded.append(title)
        return asked

    monkeypatch.setattr(screen, "on_demand", on_demand)
    scene: Any = SimpleNamespace(
        rows={"client_conformance": rows}.get, clients=SimpleNamespace(known=SimpleNamespace(instances=instances))
    )
    screen.page(scene)
    assert len(demanded) == (instances > screen.MOST_AT_ONCE)
    for title, (found, columns, note, none) in tables.items():
        assert note or none
        assert found is not None
        values = found[list(columns)].astype(object)
        drawn[title] = [tuple(columns.values()), *values.where(values.notna(), None).itertuples(index=False, name=None)]
    return drawn


@cache
def view() -> pd.DataFrame:
    """A library that obeys, and one that breaks three rules."""
    pushes: list[tuple[float, str, dict[str, Any]]] = [
        (0, "good1", {}), (10, "good1", {}), (20, "good1", {"terminating": True, "points": 1}),
        (0, "bad1", {}), (1, "bad1", {}), (2, "bad1", {"temporality": "cumulative"}),
    ]  # fmt: skip
    return pd.DataFrame(answer("client_conformance", tables_of(pushes, {"good1": "terminated", "bad1": "silent"})))


def test_versions_and_rules_with_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = shown(monkeypatch, view())
    assert drawn["Libraries and rules"] == [
        ("version", "library", *(words for words, *_ in screen.RULES.values())),
        ("bad 1", "unknown", "no: 2 of 2", "yes, 2", None, "no: 1 of 3", "yes, 3",
         "no: 1 of 1"),
        ("good 1", "unknown", "yes, 2", "yes, 2", None, "yes, 3", "yes, 3", "yes, 1"),
    ]  # fmt: skip
    assert drawn["Rules that are broken"] == [
        ("version", "rule", "against it (%)", "evidence", "most often", "section of KIP-714"),
        ("bad 1", "interval kept", 100.0, "2 of 2, in 1 instance", "bad1", "Throttling and rate-limiting"),
        ("bad 1", "goodbye", 100.0, "1 of 1, in 1 instance", "bad1", "Client termination"),
        ("bad 1", "deltas", pytest.approx(100 / 3), "1 of 3, in 1 instance", "bad1", "Metric aggregation temporality"),
    ]


def test_software_without_a_name_and_of_the_name_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of each is in the view; they are shown as one, with the sums of both."""
    named = view()[view()["software_name"] == "bad"]
    both = pd.concat(
        [named.assign(software_name=name, software_version=None) for name in (None, "unknown")], ignore_index=True
    )
    assert shown(monkeypatch, both)["Libraries and rules"][1:] == [
        ("unknown unknown", "unknown", "no: 4 of 4", "yes, 4", None, "no: 2 of 6", "yes, 6", "no: 2 of 2")
    ]


def test_every_rule_of_the_view_has_words(monkeypatch: pytest.MonkeyPatch) -> None:
    sql = (files("kafka_telemetry_lake.sql") / "client_conformance.sql").read_text("utf-8")
    of_the_view = re.findall(r"WHEN '(\w+)' THEN '(.+)'", sql)
    assert of_the_view == [(rule, section) for rule, (_, section, _) in screen.RULES.items()]
    _, *explained = shown(monkeypatch, view())["What the rules mean"]
    assert explained == [(words, meaning, section) for words, section, meaning in screen.RULES.values()]


def test_two_clusters_have_a_row_each(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = pd.concat([view(), view().assign(cluster_id="d")], ignore_index=True)
    headings, *rows = shown(monkeypatch, twice)["Libraries and rules"]
    assert headings[:3] == ("version", "library", "cluster")
    assert [row[:3] for row in rows] == [
        ("bad 1", "unknown", "c"), ("bad 1", "unknown", "d"), ("good 1", "unknown", "c"), ("good 1", "unknown", "d"),
    ]  # fmt: skip


def test_nothing_has_pushed(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = shown(monkeypatch, view().head(0))
    assert list(drawn) == ["Libraries and rules", "What the rules mean"]
    assert len(drawn["Libraries and rules"]) == 1


def test_a_large_lake_is_asked_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, view(), instances=screen.MOST_AT_ONCE + 1, asked=False) == {}
