"""Links of the dashboard: valid parts are applied, invalid parts are reported in a sentence, and links read back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kafka_telemetry_lake.dashboards.address import Selection, parse, step_seconds

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_an_empty_link_is_the_latest_day_of_everyone() -> None:
    assert parse({}) == (Selection("24h"), [])


@pytest.mark.parametrize(
    "selection",
    [
        Selection("1h", refresh=30),
        Selection("24h", NOON, NOON + HOUR),
        Selection("all", filters=(("client", ("a&b=c", "ü")), ("group", ("g",)), ("version", ("java 4.3.0",)))),
    ],
)
def test_a_link_reads_back(selection: Selection) -> None:
    query = {key: [text] if isinstance(text, str) else text for key, text in selection.query().items()}
    assert parse(query) == (selection, [])


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"range": ["2w"]}, "The link's range=2w is unknown; known: 15m, 1h, 6h, 24h, 7d, 30d, all. Showing 24h."),
        ({"from": ["soon"], "to": [""]}, "The link's from=soon is not a time such as 2026-11-21T12:00:00Z; ignored."),
        ({"from": ["2026-11-21"]}, "The link needs both from=... and to=...; showing the latest 24 hours."),
        (
            {"from": ["2026-11-21T13:00:00+01:00"], "to": ["2026-11-21T12:00:00Z"]},
            "The link's from=2026-11-21T12:00:00Z is not before to=2026-11-21T12:00:00Z; showing the latest 24 hours.",
        ),
        ({"from": ["0001-01-01T00:00:00+14:00"], "to": ["2026-11-21"]}, "is not a time such as"),
        ({"clint": ["x"]}, "The link's clint=... is unknown and was ignored; known: range, from, to, client,"),
        ({"refresh": ["1"]}, "The link's refresh=1 is not one of 0, 10, 30, 60, 300 seconds; not refreshing."),
    ],
)
def test_invalid_parts_of_a_link_are_reported(query: dict[str, list[str]], said: str) -> None:
    selection, problems = parse(query)
    assert said in problems[0]
    assert selection == Selection()


def test_the_range_counts_back_from_the_newest_push_and_not_beyond_the_first() -> None:
    first, last = NOON - 30 * HOUR, NOON
    assert Selection("1h").bounds(first, last) == (
        last + timedelta(milliseconds=1) - HOUR,
        last + timedelta(milliseconds=1),
    )
    assert Selection("30d").bounds(first, last)[0] == first
    assert Selection("1h", NOON, NOON + HOUR).bounds(first, last) == (NOON, NOON + HOUR)


@pytest.mark.parametrize(
    ("span", "interval_s", "step"),
    [(HOUR, 1, 30), (HOUR, 300, 300), (24 * HOUR, 60, 900), (HOUR / 200, 0, 1), (3650 * 24 * HOUR, 0, 604_800)],
)
def test_windows_are_few_and_hold_a_push_of_every_client(span: timedelta, interval_s: float, step: int) -> None:
    assert step_seconds(NOON, NOON + span, interval_s * 1000) == step
