"""How the dashboard shows things: gaps stay gaps, numbers are short, text of clients is text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest

from kafka_telemetry_lake.dashboards.plots import bars, lines, with_gaps
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.selection import Selection
from kafka_telemetry_lake.dashboards.show import plain, short

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
    scene = Scene(nothing, (), Selection(), NOON, stop, NOON, stop, nothing, nothing, 300)
    rows = pd.DataFrame({"at_ms": [(NOON.timestamp() + s) * 1000 for s in (0, 300, 600)], "n": [300, 600, 90]})
    assert scene.covered_s(rows["at_ms"]).tolist() == [300, 300, 60]
    assert scene.per_second(rows, "n")["n"].tolist() == [1.0, 2.0]
    assert scene.per_second(rows.tail(1), "n")["n"].tolist() == [1.5]  # rather than nothing
    assert scene.whole(rows, 0.1)["n"].tolist() == [300, 600, 90]


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
