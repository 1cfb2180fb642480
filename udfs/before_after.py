"""What changed at a moment, beyond its noise: windows after and before it, beside windows further back (B1 to B5).

A measure has one value in each window. The change is the value of the window after the moment minus that of the window
before. What such a difference is when nothing happens is known from the windows further back, each minus the one before
it. So a slow drift, or a load that swings from window to window, is noise; the spread of single minutes would not know.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Doubles, Int64s

MOST_BY_CHANCE = 0.05  # of measures that did not change, beyond their noise
EDGE = 1.5
LEAST_DIFFERENCES = 13  # with fewer, one in ten measures would be beyond its noise by chance
LEAST_EARLIER = LEAST_DIFFERENCES + 1  # windows: as many differences lie between them
LEAST_NOISES = 3.0
LEAST_SHARE = 0.01  # of the greater value: less is no noise that matters
OF_NORMAL = 1.4826  # standard deviation of normal values by the median of their absolutes

CHANGED, APPEARED, VANISHED, UNKNOWN, UNCHANGED = "changed", "appeared", "vanished", "unknown", "unchanged"
RANKS = {status: rank for rank, status in enumerate((CHANGED, APPEARED, VANISHED, UNKNOWN, UNCHANGED))}


class Judged(NamedTuple):
    """One value per measure; NaN where there is none."""

    noise: Doubles
    """what a difference between two windows usually is, as a standard deviation"""
    effect: Doubles
    """change / noise"""
    differences: Int64s
    """differences further back that it was compared with"""
    chance: Doubles
    """at most this share of such measures is beyond its noise though nothing happened"""
    status: list[str]
    why: list[str]
    """why the status is `UNKNOWN`, else empty"""


def judge(values: Doubles, errors: Doubles, known: Bools) -> Judged:
    """Judge measures by their values in windows.

    Args:
        values: per measure and window, shape (measures, windows), NaN without a point. Window 0 is after the moment,
            window 1 before it, the others further back.
        errors: what counting alone makes of each value (`counting_error`), the same shape.
        known: of which windows enough was pushed, shape (windows,). The others are left out (B5).
    """
    there = ~np.isnan(values) & known
    usable = np.where(there, values, np.nan)
    differences = np.abs(usable[:, :-1] - usable[:, 1:])
    change, others = differences[:, 0], differences[:, 1:]
    count = np.count_nonzero(~np.isnan(others), axis=1)
    noise = OF_NORMAL * _medians(others)
    counting = np.hypot(errors[:, 0], errors[:, 1])
    size = LEAST_SHARE * np.maximum(np.abs(values[:, 0]), np.abs(values[:, 1]))
    noise = np.fmax(np.fmax(noise, counting), size)
    noise[(count == 0) | np.isnan(change)] = np.nan
    with np.errstate(divide="ignore", invalid="ignore"):
        effect = np.where(change == 0, 0.0, (usable[:, 0] - usable[:, 1]) / noise)
    effect[np.isnan(noise)] = np.nan
    allowed = np.maximum(1, np.floor(MOST_BY_CHANCE * (count + 2) / EDGE)).astype(np.int64)
    chance = np.minimum(1.0, EDGE * allowed / (count + 2))
    greater = np.count_nonzero(others >= change[:, None], axis=1)
    beyond = (greater < allowed) & (np.abs(effect) >= LEAST_NOISES)
    status, why = _said(there, known, beyond, count)
    return Judged(noise, effect, count, chance, status, why)


def _said(there: Bools, known: Bools, beyond: Bools, count: Int64s) -> tuple[list[str], list[str]]:
    """Status of each measure, and why it is unknown."""
    reason = "nobody pushed for most of the time after" if not known[0] else ""
    reason = reason or ("nobody pushed for most of the time before" if not known[1] else "")
    earlier = np.count_nonzero(known[1:])
    few = f"{earlier} earlier windows; at least {LEAST_EARLIER} are needed" if earlier < LEAST_EARLIER else ""
    status, why = [], []
    for row in range(len(there)):
        after, before = there[row, 0], there[row, 1:]
        said = ""
        if reason:
            found, said = UNKNOWN, reason
        elif not there[row].any():
            found, said = UNKNOWN, "no value in any window of which enough was pushed"
        elif after and not before.any():  # B4
            found, said = (UNKNOWN, few) if few else (APPEARED, "")
        elif not after and before[known[1:]].all():
            found, said = (UNKNOWN, few) if few else (VANISHED, "")
        elif not after or not before[0]:
            found, said = UNKNOWN, f"no value {'before' if after else 'after'}, as in other windows"
        elif count[row] < LEAST_DIFFERENCES:
            found = UNKNOWN
            said = f"{count[row]} earlier differences between windows; at least {LEAST_DIFFERENCES} are needed"
        else:
            found = CHANGED if beyond[row] else UNCHANGED
        status.append(found)
        why.append(said)
    return status, why


def counting_error(counted: Doubles, divisor: Doubles) -> Doubles:
    """The standard deviation of `counted / divisor` that comes from counting: of n events it is their root (B2).

    Args:
        counted: events, or NaN where the value is no count.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(np.abs(counted)) / divisor
    return np.where(np.isfinite(error), error, 0.0)


def order(judged: Judged) -> Int64s:
    """The measures' numbers: those beyond their noise first, in each status those with the greatest effect."""
    ranks = np.array([RANKS[status] for status in judged.status], np.int64)
    sizes = np.where(np.isnan(judged.effect), 0.0, np.abs(judged.effect))
    return np.lexsort((-sizes, ranks))


def missing_bins(present: Int64s, first: int, end: int) -> Int64s:
    """Bins of time in which something should have been pushed and wasn't (B5).

    Clients push at intervals, so not every bin has a push. Missing are those between two bins with a push that are more
    than twice as far apart as such bins usually are, but for the last, which the second push tells of.

    Args:
        present: numbers of the bins with a push, ascending.
        first, end: the bins that are asked about.
    """
    if not len(present):
        return np.arange(first, end)
    usual = int(np.median(np.diff(present))) if len(present) > 1 else 1
    ends = np.concatenate([[first - 1], present, [end + usual - 1]])
    gaps = np.flatnonzero(np.diff(ends) > 2 * usual)
    found = [np.arange(ends[gap] + 1, ends[gap + 1] - usual + 1) for gap in gaps]
    return np.concatenate([*found, np.empty(0, np.int64)]).astype(np.int64)


def _medians(rows: Doubles) -> Doubles:
    """The median of each row without its NaN; NaN if it has nothing else."""
    found = np.full(len(rows), np.nan)
    some = ~np.isnan(rows).all(axis=1)
    if rows.shape[1] and some.any():
        found[some] = np.nanmedian(rows[some], axis=1)
    return found
