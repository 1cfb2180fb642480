"""Calendars: an hour of which nothing is known has no cell, and the words say what the colours show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from kafka_telemetry_lake.dashboards.calendars import AROUND_PX, CELL_PX, HOUR_MS, calendar, in_words
from kafka_telemetry_lake.dashboards.screens.lifecycle import by_hour, calendars

DAY = datetime(2026, 11, 21, tzinfo=UTC)


def ms(hours: float) -> int:
    return int((DAY + timedelta(hours=hours)).timestamp() * 1000)


def test_hours_across_days_down_and_none_is_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[pd.DataFrame, dict[str, Any]]] = []
    said: list[str] = []
    monkeypatch.setattr("streamlit.vega_lite_chart", lambda rows, spec, **_: drawn.append((rows, spec)))
    monkeypatch.setattr("streamlit.caption", said.append)
    rows = pd.DataFrame({"at_ms": [ms(3), ms(5), ms(27)], "n": [2, 0, 7]})
    calendar(rows, "n", "clients", "Fell silent")
    calendar(rows.assign(n=0), "n", "clients", "Fell silent", none="None.")
    calendar(rows.head(0), "n", "clients", "Fell silent", none="None.")
    ((cells, spec),) = drawn
    assert cells[["day", "hour", "n"]].values.tolist() == [
        ["2026-11-21", 3, 2], ["2026-11-21", 5, 0], ["2026-11-22", 3, 7],
    ]  # fmt: skip
    encoding = spec["encoding"]
    assert encoding["x"]["scale"]["domain"] == list(range(24))
    assert (encoding["x"]["axis"]["title"], encoding["color"]["legend"]["title"]) == (
        "hour of the day (UTC)", "clients",
    )  # fmt: skip
    assert said == ["None.", "None."]


def test_a_day_without_any_row_between_two_days_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[dict[str, Any], int]] = []
    monkeypatch.setattr(
        "kafka_telemetry_lake.dashboards.calendars.draw", lambda _, spec, height: drawn.append((spec, height))
    )
    monkeypatch.setattr("kafka_telemetry_lake.dashboards.calendars.table_foot", lambda *_: None)
    rows = pd.DataFrame({"at_ms": [ms(75), ms(23)], "n": [7, 2]})  # an outage of two days between them
    calendar(rows, "n", "clients", "Fell silent")
    ((spec, height),) = drawn
    assert spec["encoding"]["y"]["scale"]["domain"] == ["2026-11-21", "2026-11-22", "2026-11-23", "2026-11-24"]
    assert height == 4 * CELL_PX + AROUND_PX


def test_words_name_the_greatest_hour_and_the_hour_of_the_day() -> None:
    few = pd.DataFrame({"at_ms": [ms(3), ms(5)], "n": [2, 0]})
    assert in_words(few, "n", "clients") == (
        "Most: 2 clients in the hour from 2026-11-21 03:00 UTC. 2 hours, 1 of them with any."
    )
    nightly = pd.DataFrame(
        {"at_ms": [ms(hour) for hour in range(72)], "n": [4 * (hour % 24 == 2) for hour in range(72)]}
    )
    nightly.loc[30, "n"] = 9
    assert in_words(nightly, "n", "clients") == (
        "Most: 9 clients in the hour from 2026-11-22 06:00 UTC. By hour of the day: most from 02:00, 4 on average. "
        "72 hours, 4 of them with any."
    )


def test_an_hour_with_pushes_alone_is_0_and_one_with_nothing_is_missing() -> None:
    events = pd.DataFrame({"at_ms": [ms(1), ms(1), ms(4)], "events": [1, 2, 5]})
    hours = pd.DataFrame({"at_ms": [ms(0), ms(1), ms(1)], "pushes": [9, 9, 1]})
    summed = by_hour(events, hours, "events")
    assert summed.to_dict("list") == {"at_ms": [ms(0), ms(1), ms(4)], "events": [0, 3, 5]}


def test_each_calendar_shows_its_kind_by_the_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of events only the two kinds; entities that brokers throttled are of the hours that have quota samples."""
    answers: dict[str, dict[str, list[Any]]] = {
        "activity": {"at_ms": [ms(0), ms(1), ms(1)], "lost_intervals": [0, 2, 1]},
        "events_over_time": {
            "at_ms": [ms(0), ms(0), ms(1)], "event": ["went_silent", "first_seen", "rebootstrap"], "events": [3, 8, 1],
        },
        "quota_use": {"at_ms": [ms(7), ms(7)], "throttled": [1, 4]},
    }  # fmt: skip
    shown: dict[str, dict[int, int]] = {}

    def ask(name: str, step_ms: int) -> pd.DataFrame:
        assert step_ms == HOUR_MS
        return pd.DataFrame(answers[name])

    def drawn(rows: pd.DataFrame, amount: str, unit: str, title: str, *_: str) -> None:
        assert unit
        shown[title] = dict(zip(rows["at_ms"], rows[amount], strict=True))

    monkeypatch.setattr("kafka_telemetry_lake.dashboards.screens.lifecycle.calendar", drawn)
    scene: Any = SimpleNamespace(ask=ask)
    calendars(scene)
    assert shown == {
        "Fell silent, by hour": {ms(0): 3, ms(1): 0},
        "Lost the cluster, by hour": {ms(0): 0, ms(1): 1},
        "Throttled, by hour": {ms(7): 5},
        "Lost telemetry, by hour": {ms(0): 0, ms(1): 3},
    }
