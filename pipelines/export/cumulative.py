"""Totals of sums since the first increment that was sent, for backends that take cumulative points only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Any

MOST_SERIES = 200_000


@dataclass(slots=True)
class Total:
    """A series' total.

    Attributes:
        start, time: of its first and newest increment, ns since 1970.
        number: the sum.
        whole: the exact sum, as long as all increments are whole numbers.
    """

    start: int
    time: int
    number: float = 0.0
    whole: int | None = 0


class Totals:
    """The totals of the series that were added to last. A series that is forgotten begins anew, with another start."""

    def __init__(self, most: int = MOST_SERIES) -> None:
        self._most = most
        self._series: dict[int, Total] = {}

    def add(self, series_id: int, start: int, time: int, delta: float, delta_int: int | None) -> Total:
        """Add an increment over (start, time], and return the total. A late increment moves no time back."""
        total = self._series.pop(series_id, None) or Total(start or time, time)
        self._series[series_id] = total  # now the newest
        total.time = max(total.time, time)
        total.number += delta
        total.whole = None if total.whole is None or delta_int is None else total.whole + delta_int
        if len(self._series) > self._most:
            del self._series[next(iter(self._series))]
        return total

    def stored(self) -> list[tuple[Any, ...]]:
        """All totals, the one that was added to last at the end."""
        return [(series_id, *astuple(total)) for series_id, total in self._series.items()]

    def restore(self, stored: Iterable[tuple[Any, ...]]) -> None:
        """Take over what was stored."""
        self._series = {int(series_id): Total(*parts) for series_id, *parts in stored}
