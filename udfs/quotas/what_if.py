"""What a quota would have done to a recorded load: a broker's own arithmetic, replayed second by second (Q16; KIP-13).

A broker keeps the amounts of the last whole seconds and the current one (``quota.window.num`` 11,
``quota.window.size.seconds`` 1) and delays a client whose rate over them exceeds the bound until the rate is the bound
again (``QuotaUtils.throttleTime``). So in each second an entity sends at most what its bound of the whole window still
leaves. What it couldn't send waits and is sent later, as a producer's buffer and a consumer's lag do.

A recorded rate is the mean of the ten seconds before its sample. The load of single seconds follows from two rates that
are ten seconds apart: their difference is what came in minus what left the window. Sums over ten seconds, which decide
about delays, are those that were recorded; how a load is distributed between two samples isn't.

Not modelled: a client that gives up (``delivery.timeout.ms``) or that offers less because it waits. Delays of the
request quota end after ``quota.window.size.seconds`` each, so a client of few, very long requests is delayed less.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafka_telemetry_lake.udfs.kernels.arrays import Doubles, Int64s

WINDOWS = 11  # seconds over which a broker has the rate, the current one included
BEFORE = WINDOWS - 1
RECORDED = WINDOWS - 0.5  # seconds that a sampled rate is the mean of: 10 to 11, by when in its second it is taken
STEPS = 17  # of the search for a limit: to 1 / 65,536 of the largest rate


class Replayed(NamedTuple):
    """One value per entity, of its recorded seconds. `first` and `last` are numbers of seconds; -1: never throttled."""

    mean: Doubles
    """recorded rate per second"""
    throttled_s: Doubles
    """seconds for which it would have been delayed"""
    used: Doubles
    """mean of rate / limit, each at most 1"""
    longest_wait_s: Doubles
    """the longest that its newest bytes, or requests, would have waited"""
    first: Int64s
    last: Int64s


def rates_by_second(times: Doubles, rates: Doubles, seconds: int, most_gap: float) -> Doubles:
    """Rates of one entity at the end of each second of a range, NaN where none is recorded, shape (seconds,).

    Args:
        times: of its samples, seconds from the start of the range, ascending.
        rates: per second, 0 or more.
        most_gap: between samples further apart than so many seconds the rate isn't known.
    """
    ends = np.arange(1, seconds + 1, dtype=np.float64)
    if not len(times):
        return np.full(seconds, np.nan)
    begins = times[0] - min(RECORDED, float(np.median(np.diff(times))) + 0.5 if len(times) > 1 else RECORDED)
    times, rates = np.append(begins, times), np.append(0.0, rates)  # its first sample is the end of its first bytes
    after = np.minimum(np.searchsorted(times, ends), len(times) - 1)
    gap = times[after] - times[np.maximum(after - 1, 0)]
    known = (ends > times[0]) & (ends < times[-1] + 1) & (gap <= most_gap)
    found: Doubles = np.where(known, np.interp(ends, times, rates), np.nan)
    return found


def replay(rates: Doubles, limits: Doubles, before: int = 0) -> Replayed:
    """Replay recorded rates against limits.

    Args:
        rates: as of `rates_by_second`, shape (entities, seconds). A rate that isn't known ends what waits.
        limits: per second, above 0, shape (entities,).
        before: of the seconds, so many come before those that are asked for. They fill the window.
    """
    entities, seconds = rates.shape
    loads = np.zeros((BEFORE, entities))  # of the last seconds, as recorded; a ring
    sent = np.zeros((BEFORE, entities))  # what of them the limit would have let through
    loads_sum, sent_sum, waiting = np.zeros(entities), np.zeros(entities), np.zeros(entities)
    total, throttled, used, longest = (np.zeros(entities) for _ in range(4))
    first, last = np.full(entities, -1), np.full(entities, -1)
    for second in range(seconds):
        at, rate = second % BEFORE, rates[:, second]
        known = ~np.isnan(rate)
        loads_sum -= loads[at]
        load = np.where(known, np.maximum(rate * RECORDED - loads_sum - loads[at] * (RECORDED - BEFORE), 0.0), 0.0)
        loads[at] = load
        loads_sum += load
        waiting = np.where(known, waiting, 0.0)
        delayed = _delayed(waiting, load, limits * BEFORE - sent_sum, limits)
        through = np.minimum(waiting + load, np.maximum(limits * WINDOWS - sent_sum, 0.0))
        sent_sum += through - sent[at]
        sent[at] = through
        waiting += load - through
        if second < before:
            continue
        total += load if second else np.where(known, rate, 0.0)  # the first has those before it, too
        throttled += delayed
        np.maximum(longest, waiting / limits, out=longest)
        is_delayed = delayed > 0
        share = np.where(is_delayed, 1.0, np.minimum(sent_sum / (limits * BEFORE), 1.0))
        used += np.where(known, share, 0.0)
        first[is_delayed & (first < 0)] = second - before
        last[is_delayed] = second - before
    recorded = np.maximum((~np.isnan(rates[:, before:])).sum(axis=1), 1)
    return Replayed(total / recorded, throttled, used / recorded, longest, first, last)


def _delayed(waiting: Doubles, load: Doubles, free: Doubles, limits: Doubles) -> Doubles:
    """The part of a second for which an entity is delayed: from reaching the bound until nothing waits any more.

    At the second's start it may send at once what the bound leaves (`free`, negative above it), and then as much as the
    limit, while its load comes in evenly. At the bound each request is delayed until the next may be sent.
    """
    grows = load - limits
    with np.errstate(divide="ignore", invalid="ignore"):
        reached = np.where(grows > 0, (free - waiting) / grows, np.inf)
        drained = np.where(grows < 0, (waiting - free) / -grows, np.inf)
    delayed: Doubles = np.where(waiting > free, np.minimum(drained, 1.0), 1.0 - np.minimum(reached, 1.0))
    return delayed


def smallest_limits(rates: Doubles, throttled_share: float, before: int = 0) -> Doubles:
    """The smallest limit by which each entity is delayed for at most this share of its recorded seconds.

    Args:
        rates, before: as of `replay`.
        throttled_share: 0 to 1. 0: never.
    """
    recorded = (~np.isnan(rates[:, before:])).sum(axis=1)
    largest = np.nanmax(np.where(np.isnan(rates), 0.0, rates), axis=1)
    high: Doubles = np.maximum(2 * largest, np.finfo(np.float64).tiny)  # no sum of eleven seconds reaches 22 such rates
    low = np.zeros_like(high)
    for _ in range(STEPS):
        middle = (low + high) / 2
        enough = replay(rates, middle, before).throttled_s <= throttled_share * recorded
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high
