"""What changed at a moment, beyond its noise: by numbers alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from kafka_telemetry_lake.pipelines.applications.compared_windows import HOURS, MINUTES, windows_of
from kafka_telemetry_lake.udfs.before_after import (
    APPEARED,
    CHANGED,
    LEAST_DIFFERENCES,
    LEAST_EARLIER,
    UNCHANGED,
    UNKNOWN,
    VANISHED,
    Judged,
    counting_error,
    judge,
    missing_bins,
    order,
)
from kafka_telemetry_lake.udfs.kernels.arrays import Doubles

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MEASURES, WINDOWS = 20_000, 50


def noise(kind: str, windows: int) -> Doubles:
    """Values of measures to which nothing happens, shape (measures, windows)."""
    random = np.random.default_rng(48)
    shape = MEASURES, windows
    steps = random.normal(size=shape)
    if kind == "drift":
        return np.asarray(1000 + 10 * steps.cumsum(axis=1))
    if kind == "swings":  # each window is like the one before it
        values = np.zeros(shape)
        for window in range(1, windows):
            values[:, window] = 0.8 * values[:, window - 1] + steps[:, window]
        return 500 + 10 * values
    if kind == "outliers":
        return np.asarray(100 + 10 * random.standard_t(2, size=shape), np.float64)
    if kind == "rare events":
        return random.poisson(0.5, size=shape).astype(float)
    return 100 + 10 * steps


def judged(values: Doubles, errors: Doubles | None = None) -> Judged:
    none = np.zeros_like(values) if errors is None else errors
    return judge(values, none, np.ones(values.shape[1], bool))


def alternating(before: float, after: float, spread: float = 1.0, windows: int = 30) -> Doubles:
    """One measure that differs by so much from window to window, and changes at the moment."""
    row = before + spread * (np.arange(windows) % 2.0)
    row[0] = after
    return np.asarray(row[None], np.float64)


@pytest.mark.parametrize("windows", [15, WINDOWS, 98])
@pytest.mark.parametrize("kind", ["even", "swings", "drift", "outliers", "rare events"])
def test_b3_no_more_are_beyond_their_noise_by_chance_than_is_said(kind: str, windows: int) -> None:
    values = noise(kind, windows)
    found = judged(values, np.sqrt(values) if kind == "rare events" else None)
    share = found.status.count(CHANGED) / MEASURES
    assert found.status.count(CHANGED) + found.status.count(UNCHANGED) == MEASURES
    assert share <= found.chance[0] <= 0.1
    assert share < (0.08 if kind == "outliers" else 0.03)


def test_b2_the_spread_of_single_values_would_take_swings_for_changes() -> None:
    """Why noise isn't that of the minutes before: of how windows differ they know too little."""
    minutes = np.random.default_rng(48).normal(size=(1000, 30 * 60)).cumsum(axis=1)  # the last hour is after the moment
    hours = minutes.reshape(1000, 30, 60)
    after, before = hours[:, -1], hours[:, -2]
    middle = np.median(before, axis=1)
    spread = 1.4826 * np.median(np.abs(before - middle[:, None]), axis=1)
    by_minutes = np.mean(np.abs(np.median(after, axis=1) - middle) > 3 * spread)
    found = judged(1000 + hours.mean(axis=2)[:, ::-1])
    assert by_minutes > 0.15
    assert found.status.count(CHANGED) / 1000 < 0.02


def test_b3_a_doubled_measure_is_beyond_its_noise_and_the_size_is_in_units_of_it() -> None:
    found = judged(alternating(100, 200))
    assert found.status == [CHANGED]
    assert found.differences[0] == 28
    assert found.noise[0] == pytest.approx(2.0)  # 1 % of 200 is more than 1.4826 * 1
    assert found.effect[0] == pytest.approx((200 - 101) / 2)
    assert judged(alternating(100, 0)).effect[0] < -50


@pytest.mark.parametrize(("after", "status"), [(100 + 4.4, UNCHANGED), (101 + 4.6, CHANGED)])
def test_b3_three_times_the_noise_is_the_bound(after: float, status: str) -> None:
    assert judged(alternating(100, after)).status == [status]


def test_b3_an_earlier_change_as_great_is_noise_unless_differences_are_many() -> None:
    few, many = alternating(100, 200), alternating(100, 200, windows=98)
    for values in (few, many):
        values[0, 10:] += 500
    assert judged(few).status == [UNCHANGED]
    assert judged(many).status == [CHANGED]


def test_b2_a_constant_measure_has_one_percent_of_noise() -> None:
    found = judged(np.concatenate([alternating(100, after, 0) for after in (100, 102.9, 103.2, 0)]))
    assert found.status == [UNCHANGED, UNCHANGED, CHANGED, CHANGED]
    assert found.effect[3] == pytest.approx(-100)
    assert judged(alternating(0, 0, 0)).effect == [0]


def test_b2_single_events_are_no_change() -> None:
    hour = np.array([[1.0], [9.0], [10.0], [400.0]])
    counts = np.concatenate([hour, np.zeros((4, 29))], axis=1)
    errors = counting_error(counts, np.full_like(counts, 3600.0))
    assert judged(counts / 3600, errors).status == [UNCHANGED, CHANGED, CHANGED, CHANGED]
    assert judged(counts / 3600, errors).effect == pytest.approx([1, 3, np.sqrt(10), 20])
    assert counting_error(np.array([np.nan, 4.0]), np.array([1.0, 0.0])).tolist() == [0.0, 0.0]


def test_b4_measures_that_appear_or_vanish_are_said_and_those_that_come_and_go_are_not() -> None:
    nothing, always = np.full(30, np.nan), np.ones(30)
    appeared, vanished = nothing.copy(), always.copy()
    appeared[0], vanished[0] = 1, np.nan
    sporadic, came_before = nothing.copy(), nothing.copy()
    sporadic[[1, 5, 9]] = 1
    came_before[[0, 7]] = 1
    found = judged(np.array([appeared, vanished, sporadic, came_before]))
    assert found.status == [APPEARED, VANISHED, UNKNOWN, UNKNOWN]
    assert found.why == ["", "", "no value after, as in other windows", "no value before, as in other windows"]


def test_b4_a_measure_without_a_value_has_not_appeared() -> None:
    values, known = np.full((2, 30), np.nan), np.ones(30, bool)
    values[1, 4], known[4] = 7, False  # a value in a window that is left out is none
    found = judge(values, np.zeros_like(values), known)
    assert found.status == [UNKNOWN, UNKNOWN]
    assert found.why == ["no value in any window of which enough was pushed"] * 2


def test_b4_with_too_few_windows_nothing_is_said_to_appear_or_vanish() -> None:
    def of(windows: int, unknown: int = 0) -> Judged:
        values, known = np.full((2, windows), np.nan), np.ones(windows, bool)
        values[0, 0], values[1, 1:] = 1, 1
        known[windows - unknown :] = False
        return judge(values, np.zeros_like(values), known)

    assert of(2).status == [UNKNOWN, UNKNOWN]
    assert of(2).why == ["1 earlier windows; at least 14 are needed"] * 2
    assert of(LEAST_EARLIER).status == [UNKNOWN, UNKNOWN]
    assert of(LEAST_EARLIER + 1).status == [APPEARED, VANISHED]
    assert of(LEAST_EARLIER + 1, unknown=1).why == ["13 earlier windows; at least 14 are needed"] * 2
    assert of(LEAST_EARLIER + 2, unknown=1).status == [APPEARED, VANISHED]


def test_b1_with_too_few_windows_nothing_is_said() -> None:
    few = alternating(100, 200, windows=LEAST_DIFFERENCES + 1)
    assert (judged(few).status, judged(few).why) == (
        [UNKNOWN], ["12 earlier differences between windows; at least 13 are needed"],
    )  # fmt: skip
    assert judged(alternating(100, 200, windows=LEAST_DIFFERENCES + 2)).status == [CHANGED]
    assert judged(alternating(100, 200, windows=2)).status == [UNKNOWN]
    assert judged(np.empty((0, 2))).status == []


def test_b5_a_window_in_which_most_is_missing_is_left_out() -> None:
    values, known = alternating(100, 200), np.ones(30, bool)
    values[0, 4], known[4] = 0, False
    assert judge(values, np.zeros_like(values), known).differences[0] == 26
    known[4], known[1] = True, False
    found = judge(values, np.zeros_like(values), known)
    assert (found.status, found.why) == ([UNKNOWN], ["nobody pushed for most of the time before"])
    known[0] = False
    assert judge(values, np.zeros_like(values), known).why == ["nobody pushed for most of the time after"]


def test_b5_missing_are_bins_between_pushes_that_are_twice_as_far_apart_as_usual() -> None:
    assert missing_bins(np.arange(0, 60, 5), 0, 60).tolist() == []
    one_lost = np.array([0, 5, 10, 20, 25, 30, 35])
    assert missing_bins(one_lost, 0, 36).tolist() == []  # twice as far, not more
    outage = np.array([0, 5, 10, 30, 35, 40])
    assert missing_bins(outage, 0, 41).tolist() == list(range(11, 26))  # the push at 30 tells of 26 to 30
    assert missing_bins(np.arange(0, 30), 0, 60).tolist() == list(range(30, 60))
    assert missing_bins(np.empty(0, np.int64), 3, 6).tolist() == [3, 4, 5]


def test_b3_those_beyond_their_noise_come_first_by_the_size_of_the_change() -> None:
    nothing = np.full(30, np.nan)
    appeared = nothing.copy()
    appeared[0] = 1
    rows = [*(alternating(100, after)[0] for after in (101, 120, 150)), appeared]
    assert order(judged(np.array(rows))).tolist() == [2, 1, 3, 0]


def test_b1_windows_are_as_long_as_is_asked_for_or_as_is_recorded() -> None:
    first, last = NOON - timedelta(days=2), NOON + timedelta(minutes=90)
    hour = windows_of(MINUTES, NOON, 3600, first, last)
    assert hour is not None
    assert (hour.length, hour.bins, hour.steps, hour.earlier) == (60, 2, 30, 48)
    assert hour.of.at(hour.first) == first
    assert [hour.of.at(start) for start in hour.starts()[:3]] == [
        NOON,
        NOON - timedelta(hours=1),
        NOON - timedelta(hours=2),
    ]
    short = windows_of(MINUTES, NOON + timedelta(minutes=53), 3600, first, last)
    assert short is not None
    assert (short.seconds, short.earlier) == (38 * 60, 50)  # 12:53 to 13:30 and its minute
    quarter = windows_of(MINUTES, NOON, 900, first, last)
    assert quarter is not None
    assert quarter.earlier == 97  # a day of them: of yesterday's same time, too
    assert windows_of(MINUTES, last - timedelta(minutes=3), 3600, first, last) is None
    assert windows_of(MINUTES, first + timedelta(minutes=4), 3600, first, last) is None
    assert windows_of(MINUTES, NOON + timedelta(days=9), 3600, first, last) is None


def test_b1_the_minute_or_hour_of_the_moment_counts_for_neither() -> None:
    first, last = NOON - timedelta(days=9), NOON + timedelta(days=1)
    found = windows_of(MINUTES, NOON + timedelta(seconds=1), 3600, first, last)
    assert found is not None
    assert (found.of.at(found.before), found.of.at(found.after)) == (NOON, NOON + timedelta(minutes=1))
    found = windows_of(HOURS, NOON + timedelta(minutes=5), 6 * 3600, first, last)
    assert found is not None
    assert (found.of.at(found.before), found.of.at(found.after)) == (NOON, NOON + timedelta(hours=1))
    assert (found.steps, found.earlier) == (6, 36)
