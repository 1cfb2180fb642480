"""When a finding opens, changes and is resolved: the states of udfs.findings.states, hour by hour."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_telemetry_lake.udfs.findings.states import (
    DEFAULT,
    HOUR_US,
    OPENED,
    RESOLVED,
    FindingRow,
    FindingState,
    Hysteresis,
    Identity,
    advance,
    finding_id,
)

KEY: Identity = {"cluster_id": "c", "finding": "buffer_full", "scope": "client_id", "subject": "orders"}
# What an hour shows of the subject, by one letter: the severity of its finding, seen without it, or not seen.
SEVERITIES = {"i": "info", "w": "warning", "e": "error"}
Said = tuple[str, str | None, float, int]
SEEN, UNSEEN, LINGERS = ".", "-", "~"


def row(letter: str, **more: Any) -> FindingRow:
    return cast(FindingRow, {**KEY, "severity": SEVERITIES[letter], "evidence": letter, **more})


def play(letters: str, rules: Hysteresis = DEFAULT) -> list[Said]:
    """Change, severity, time and hour of opening; times in hours. In parentheses: an hour that isn't finished."""
    states: dict[str, FindingState] = {}
    said = []
    hour, finished = 0, True
    letter = ""

    def was_seen(_: FindingState) -> bool:
        return letter != UNSEEN

    def lingers(_: FindingState) -> bool:
        return letter == LINGERS

    for letter in letters:
        if letter in "()":
            finished = letter == ")"
            continue
        found = [row(letter)] if letter in SEVERITIES else []
        for each in advance(states, hour, found, was_seen, finished, lambda _: rules, lingers):
            said.append((each.change, each.state.severity, each.at / HOUR_US, each.state.first))
        hour += finished
    return said


@pytest.mark.parametrize(
    ("letters", "said"),
    [
        ("..", []),
        (".w", [("opened", "warning", 1, 1)]),
        ("www", [("opened", "warning", 0, 0)]),
        ("w.", [("opened", "warning", 0, 0)]),
        ("w..", [("opened", "warning", 0, 0), ("resolved", "warning", 3, 0)]),
        # no flapping: one clean hour resolves nothing
        ("w.w.w.", [("opened", "warning", 0, 0)]),
        ("w..w", [("opened", "warning", 0, 0), ("resolved", "warning", 3, 0), ("opened", "warning", 3, 3)]),
        # hours in which it isn't seen are no clean hours, and don't interrupt them
        ("w---w", [("opened", "warning", 0, 0)]),
        ("w.-.", [("opened", "warning", 0, 0), ("resolved", "warning", 4, 0)]),
        ("w" + "-" * 23, [("opened", "warning", 0, 0)]),
        ("w" + "-" * 24, [("opened", "warning", 0, 0), ("resolved", "warning", 25, 0)]),
        ("w" + "-" * 23 + "." + "-" * 23, [("opened", "warning", 0, 0)]),
        # a severity rises at once, and falls after as many hours as a finding is resolved after
        ("we", [("opened", "warning", 0, 0), ("changed", "error", 1, 0)]),
        ("ew", [("opened", "error", 0, 0)]),
        ("eww", [("opened", "error", 0, 0), ("changed", "warning", 3, 0)]),
        ("ewewew", [("opened", "error", 0, 0)]),
        ("eiw", [("opened", "error", 0, 0), ("changed", "warning", 3, 0)]),
        ("ewwii", [("opened", "error", 0, 0), ("changed", "warning", 3, 0), ("changed", "info", 5, 0)]),
        ("ewi", [("opened", "error", 0, 0), ("changed", "warning", 3, 0)]),
        # an hour that isn't finished opens and raises, and does nothing else
        ("(w", [("opened", "warning", 0, 0)]),
        ("(.", []),
        ("w(....", [("opened", "warning", 0, 0)]),
        ("w(-" + "-" * 30, [("opened", "warning", 0, 0)]),
        ("(i(w)w", [("opened", "info", 0, 0), ("changed", "warning", 0, 0)]),
        ("e(wwwwww", [("opened", "error", 0, 0)]),
        # it was found in the hour's first half only: the whole hour is clean
        ("(w).", [("opened", "warning", 0, 0)]),
        ("(w)..", [("opened", "warning", 0, 0), ("resolved", "warning", 2, 0)]),
        # an hour between the two bounds opens nothing, ends a row of clean ones, and is one in which it was seen
        ("w~~~~~~", [("opened", "warning", 0, 0)]),
        ("w.~.~.~", [("opened", "warning", 0, 0)]),
        ("w~..", [("opened", "warning", 0, 0), ("resolved", "warning", 4, 0)]),
        ("~~~~", []),
        ("w" + "-" * 23 + "~" + "-" * 23, [("opened", "warning", 0, 0)]),
        ("w..~w", [("opened", "warning", 0, 0), ("resolved", "warning", 3, 0), ("opened", "warning", 4, 4)]),
    ],
)
def test_changes(letters: str, said: list[Said]) -> None:
    assert play(letters) == said


@pytest.mark.parametrize(
    ("letters", "said"),
    [
        ("ww", []),
        ("www", [("opened", "warning", 2, 0)]),
        ("ww.www", [("opened", "warning", 5, 3)]),  # seen without it: counted anew
        ("ww-w", [("opened", "warning", 3, 0)]),  # not seen: no reason to
        ("ww----w", [("opened", "warning", 6, 0)]),
        ("ww-----w", []),  # gone
        ("ww(www)w", [("opened", "warning", 2, 0)]),  # an hour counts once
        ("w(wwww", []),
        ("ww~w", []),  # nor does one between the bounds count as one with the finding
    ],
)
def test_a_rule_that_waits_three_hours(letters: str, said: list[Said]) -> None:
    assert play(letters, Hysteresis(open_after=3, gone_after=5)) == said


@settings(max_examples=300)
@given(
    measures=st.lists(st.one_of(st.none(), st.integers(60, 140)), max_size=60),
    closes=st.integers(70, 100),
    rules=st.builds(Hysteresis, st.integers(1, 3), st.integers(1, 4), st.integers(1, 5)),
)
def test_a_measure_that_oscillates_makes_few_changes(
    measures: list[int | None], closes: int, rules: Hysteresis
) -> None:
    """The finding opens at 100. Each end takes the hours below the lower bound, or unseen, that the rule waits for."""
    said = [change for change, *_ in measured(measures, closes, rules)]
    assert said == [OPENED, RESOLVED] * (len(said) // 2) + [OPENED] * (len(said) % 2)
    below = sum(measure is not None and measure < closes for measure in measures)
    unseen = sum(measure is None for measure in measures)
    assert said.count(RESOLVED) <= below // rules.resolve_after + unseen // rules.gone_after
    if said and all(measure is not None and measure >= closes for measure in measures):
        assert said == [OPENED]
    # Without a lower bound: as if nobody asked for it.
    letters = "".join(UNSEEN if each is None else "w" if each >= 100 else SEEN for each in measures)
    assert measured(measures, 100, rules) == play(letters, rules)


def measured(measures: list[int | None], closes: int, rules: Hysteresis) -> list[Said]:
    """`play` of a measure by hour. None: not seen."""
    letters = "".join(
        UNSEEN if each is None else "w" if each >= 100 else LINGERS if each >= closes else SEEN for each in measures
    )
    return play(letters, rules)


def test_the_reason_of_an_end() -> None:
    states: dict[str, FindingState] = {}
    advance(states, 0, [row("w")], lambda _: True, True)
    advance(states, 1, [], lambda _: True, True)
    (clean,) = advance(states, 2, [], lambda _: True, True)
    assert clean.reason == "seen in 2 hours without this finding"
    assert states == {}
    advance(states, 3, [row("w")], lambda _: True, True)
    (gone,) = advance(states, 4, [], lambda _: False, True, lambda _: Hysteresis(gone_after=1))
    assert gone.reason == "not seen in 1 hour in which its cluster was"


def test_two_rows_of_one_finding_are_one() -> None:
    """The worst, whatever their order."""
    for rows in ([row("i"), row("e")], [row("e"), row("i")]):
        states: dict[str, FindingState] = {}
        (opened,) = advance(states, 0, rows, lambda _: True, True)
        assert (opened.state.severity, opened.state.latest["evidence"]) == ("error", "e")


def test_an_unknown_severity_is_the_lowest() -> None:
    states: dict[str, FindingState] = {}
    for hour, (severity, change) in enumerate((("odd", "opened"), ("info", "changed"))):
        (said,) = advance(states, hour, [row("i") | {"severity": severity}], lambda _: True, True)
        assert said.change == change


def test_the_id() -> None:
    """Stable for ever: it is in tables and in other people's systems."""
    assert finding_id(KEY) == "9913acc31de99650d0c5ecb25bbe02bd"
    different: dict[str, list[str | None]] = {
        "cluster_id": ["d", None, "null"],
        "finding": ["x"],
        "scope": ["principal"],
        "subject": [None, "", "null", "orders\u0000", "é", "\x1b" * 1024],
    }
    others = [cast(Identity, {**KEY, name: value}) for name, values in different.items() for value in values]
    ids = {finding_id(each) for each in [KEY, *others]}
    assert len(ids) == 1 + len(others)
    assert all(len(each) == 32 and set(each) <= set("0123456789abcdef") for each in ids)
