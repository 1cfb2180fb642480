"""How the dashboard shows things: gaps stay gaps, numbers are short, text of clients is text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest

from kafka_telemetry_lake.dashboards.address import Selection
from kafka_telemetry_lake.dashboards.plot_style import legend_columns, time_ticks
from kafka_telemetry_lake.dashboards.plots import bars, heat, lines, with_gaps
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.screens.problems import EVENTS
from kafka_telemetry_lake.dashboards.show import PageState, plain, short
from kafka_telemetry_lake.pipelines.replay.replay import OPERATOR_EVENTS
from kafka_telemetry_lake.udfs.lifecycle.events import EVENT_NAMES

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_a_line_breaks_where_a_window_is_missing() -> None:
    rows = pd.DataFrame(
        {"at_ms": [0, 1000, 4000, 0, 1000], "y": [1.0, 2.0, 3.0, 4.0, 5.0], "by": ["a", "a", "a", "b", "b"]}
    )
    shown = with_gaps(rows, "y", "by", 1)
    assert shown["at_ms"].tolist() == [0, 1000, 2000, 4000, 0, 1000]
    assert shown["y"].fillna(-1).tolist() == [1.0, 2.0, -1.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (9999, "9,999"),
        (98_000, "98,000"),
        (123_456, "123 k"),
        (1_540_000, "1.54 M"),
        (2e9, "2 G"),
        (0.1234, "0.123"),
        (None, "–"),
    ],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert short(value) == text


def test_text_of_clients_has_no_meaning_for_markdown() -> None:
    assert plain("[a](b) <i> $x$ :red[b] *c*\nd") == r"\[a\]\(b\) \<i\> \$x\$ \:red\[b\] \*c\* d"


def test_windows_that_the_range_cuts_count_by_their_part() -> None:
    """Windows of 5 minutes in a range from 12:00 to 12:11:00, of which the last holds a fifth."""
    stop = NOON + timedelta(minutes=11)
    nothing: Any = None
    scene = Scene(nothing, (), Selection(), NOON, stop, NOON, stop, nothing, 300)
    rows = pd.DataFrame({"at_ms": [(NOON.timestamp() + s) * 1000 for s in (0, 300, 600)], "n": [300, 600, 90]})
    assert scene.covered_s(rows["at_ms"]).tolist() == [300, 300, 60]
    assert scene.per_second(rows, "n")["n"].tolist() == [1.0, 2.0]
    assert scene.per_second(rows.tail(1), "n")["n"].tolist() == [1.5]  # rather than nothing
    assert scene.whole(rows, 0.1)["n"].tolist() == [300, 600, 90]
    for last_s, rates in ((150, [1.0, 2.0, 0.6]), (149, [1.0, 2.0])):  # half of the last window, and less
        stop = NOON + timedelta(seconds=600 + last_s)
        cut = Scene(nothing, (), Selection(), NOON, stop, NOON, stop, nothing, 300)
        assert cut.per_second(rows, "n")["n"].tolist() == rates


def test_every_axis_has_its_unit_and_lines_differ_in_colour_and_dashes(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[dict[str, Any]] = []
    monkeypatch.setattr("streamlit.vega_lite_chart", lambda rows, spec, **_: drawn.append({"rows": rows, **spec}))
    rows = pd.DataFrame({"at_ms": [0, 0, 0], "y": [1.0, 2.0, float("nan")], "who": ["b", "a", "c"], "more": 1})
    lines(rows, "y", "ms", "Latency", "who", order=["a", "b"])
    bars(rows, "y", "who", "client instances", "Versions")
    line, bar = drawn
    encoding = line["layer"][0]["encoding"]
    assert encoding["x"]["axis"]["title"] == "time (UTC)"
    assert encoding["y"]["axis"]["title"] == "time"  # its labels have the units
    assert bar["encoding"]["x"]["axis"]["title"] == "client instances"
    color, dash = encoding["color"]["scale"], encoding["strokeDash"]["scale"]
    assert color["domain"] == dash["domain"] == ["a", "b"]
    assert len({*color["range"]}) == len({*map(tuple, dash["range"])}) == 2
    assert line["rows"].to_dict("list") == {"at_ms": [0, 0], "y": [2.0, 1.0], "who": ["a", "b"]}


@pytest.mark.parametrize(
    ("most", "unit", "ticks"),
    [
        (59_999, "ms", None),
        (60_000, "ms", [0, 15_000, 30_000, 45_000, 60_000, 75_000]),
        (408, "s", [0, 120, 240, 360, 480]),
        (10 * 3_600_000, "ms", [hours * 3_600_000 for hours in (0, 2, 4, 6, 8, 10, 12)]),
        (11 * 86_400, "s", [days * 86_400 for days in (0, 3, 6, 9, 12)]),
        (1e9, "records", None),
    ],
)
def test_long_durations_have_ticks_at_whole_minutes_hours_and_days(
    most: float, unit: str, ticks: list[float] | None
) -> None:
    assert time_ticks(most, unit).get("values") == ticks


def test_a_legend_has_as_many_columns_as_fit() -> None:
    assert legend_columns(["median", "largest"], 2) == "width + 8 >= 154 ? 2 : 1"
    names = ["apache-kafka-java", "confluent-kafka-python", "kgo"]
    assert legend_columns(names, 3) == "width + 8 >= 383 ? 3 : width + 8 >= 318 ? 2 : 1"


def test_an_empty_plot_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("streamlit.caption", said.append)
    nothing = pd.DataFrame({"at_ms": [], "y": [], "who": []})
    lines(nothing, "y", "ms", "Latency", none="No samples.")
    heat(nothing, "who", "y", "ms", "Latency", 10, none="No samples.")
    lines(nothing, "y", "ms", "Latency")
    assert said == ["No samples.", "No samples.", "No rows in this time range for these filters."]


def test_each_kind_of_event_has_words() -> None:
    """For the heading "clients that ..."."""
    assert {*EVENT_NAMES.to_pylist(), *OPERATOR_EVENTS, "mass_restart", "mass_silence"} <= EVENTS.keys()


def test_marks_are_drawn_from_the_window_before_the_first_line_to_the_one_after_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Windows of 10 s from 0 to 20 s; those before and after it aren't drawn while they are less than half covered."""
    marks = pd.DataFrame({"mark_ms": [-10_001, -10_000, 0, 19_999, 29_999, 30_000]})
    shown = PageState(marks=marks.assign(what=marks["mark_ms"].astype(str)))
    monkeypatch.setattr("streamlit.session_state", {"page state": shown})
    drawn: list[dict[str, Any]] = []
    monkeypatch.setattr("streamlit.vega_lite_chart", lambda _, spec, **__: drawn.append(spec))
    lines(pd.DataFrame({"at_ms": [0, 10_000], "y": [1.0, 2.0]}), "y", "ms", "Latency", step_s=10)
    lines(pd.DataFrame({"at_ms": [-50_000], "y": [1.0]}), "y", "ms", "Latency", step_s=10)
    with_marks, without = drawn
    assert [mark["what"] for mark in with_marks["layer"][2]["data"]["values"]] == ["-10000", "0", "19999", "29999"]
    assert len(without["layer"]) == 2
