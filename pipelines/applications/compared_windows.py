"""Which windows before a moment the one after it is compared with: as long as what is recorded after it allows (B1)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
WINDOWS_S = {"15m": 900, "1h": HOUR_S, "6h": 6 * HOUR_S, "24h": DAY_S}  # that one may ask for, by name
LEAST_BINS = 5  # of a window
MOST_STEPS = 30  # of a window
MOST_EARLIER = 50  # windows before the moment, unless a day has more: of yesterday's same time, what was usual then
EPOCH = datetime.fromtimestamp(0, UTC)


class Bins(NamedTuple):
    """A table of rollups, and how many seconds its windows have: bins, counted from 1970."""

    rollups: str
    bin_s: int

    def at(self, number: int) -> datetime:
        return EPOCH + timedelta(seconds=number * self.bin_s)

    def number(self, at: datetime) -> int:
        """The bin that contains a moment."""
        return (at - EPOCH) // timedelta(seconds=self.bin_s)


MINUTES, HOURS = Bins("metric_rollups_1m", MINUTE_S), Bins("metric_rollups_1h", HOUR_S)


class Windows(NamedTuple):
    """Windows of `steps` steps of `bins` bins each: one after the moment, `earlier` before it, without gaps.

    The bin that contains the moment is in none of them, unless the moment is its start.
    """

    of: Bins
    before: int
    """number of the bin at which the windows before the moment end"""
    after: int
    """number of the bin at which the window after it begins"""
    bins: int
    steps: int
    earlier: int

    @property
    def length(self) -> int:
        """Bins of a window."""
        return self.bins * self.steps

    @property
    def seconds(self) -> int:
        return self.length * self.of.bin_s

    @property
    def first(self) -> int:
        """Number of the first bin."""
        return self.before - self.earlier * self.length

    @property
    def end(self) -> int:
        """Number of the bin after the last."""
        return self.after + self.length

    def starts(self) -> list[int]:
        """The first bin of each window: that after the moment, that before it, those further back."""
        return [self.after, *(self.before - (number + 1) * self.length for number in range(self.earlier))]


def most_earlier(seconds: int) -> int:
    """How many windows of so many seconds are read before the moment, at most."""
    return max(MOST_EARLIER, -(-DAY_S // seconds) + 1)


def read_from(of: Bins, at: datetime, window_s: int) -> datetime:
    """The earliest that windows before a moment can begin; a shorter window has no longer history."""
    return of.at(of.number(at)) - timedelta(seconds=most_earlier(window_s) * window_s)


def windows_of(of: Bins, at: datetime, window_s: int, first: datetime, last: datetime) -> Windows | None:
    """The windows to compare; None if fewer than `LEAST_BINS` bins are recorded before the moment or after it.

    Args:
        at: the moment.
        window_s: seconds that a window may have at most.
        first, last: the first and the last bin that is recorded, by its start.
    """
    before = of.number(at)
    after = before if of.at(before) == at else before + 1
    recorded = min(before - of.number(first), of.number(last) + 1 - after)
    length = min(window_s // of.bin_s, recorded)
    if length < LEAST_BINS:
        return None
    bins = -(-length // MOST_STEPS)
    steps = length // bins
    fit = (before - of.number(first)) // (bins * steps)
    return Windows(of, before, after, bins, steps, min(fit, most_earlier(bins * steps * of.bin_s)))
