"""A counter with few series out of many: the busiest have one each, all others one together, and none ever falls.

What a series counts stays in it. A label set that gets a series of its own begins at what that series had before (0 if
it never had one), and the rest keeps what it has counted: each increment is in exactly one series. So rates add up to
the fleet's, whoever comes and goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

HALF_LIFE_S = 600.0  # of what counts as recent
PROMOTED_AT = 2.0  # times the pace of the slowest that has a series
RETIRED = 2  # times the series that are kept, for label sets that come back

Labels = tuple[str, ...]


@dataclass
class Series:
    """A counter's series.

    Attributes:
        value: exact sum of its increments. Java's windowed counts may have negative ones.
        shown: the greatest value it ever had, which is what is exported.
        seen: landing of its newest point, Unix seconds.
        pace: its increments, of which half are forgotten every `HALF_LIFE_S`.
    """

    value: float = 0.0
    shown: float = 0.0
    seen: float = 0.0
    pace: float = 0.0

    def add(self, increase: float, seen: float) -> None:
        self.value += increase
        self.shown = max(self.shown, self.value)
        self.seen = max(self.seen, seen)
        self.pace += increase


class Family:
    """The series of one counter by one dimension.

    Args:
        top: most label sets with a series of their own.
        stale_s: a series without new points for so long is exported no more.
    """

    def __init__(self, labels: tuple[str, ...], top: int, stale_s: float, started: float) -> None:
        self.labels = labels
        self.own: dict[Labels, Series] = {}
        self.other: Series | None = None
        self._top, self._stale_s = top, stale_s
        self._retired: dict[Labels, Series] = {}  # the one that was retired last is last
        self._near: dict[Labels, float] = {}  # pace of the busiest of those without a series
        self._started = self._aged = started

    def add(self, rows: Iterable[tuple[Labels, float, float]], rest: tuple[float, float] | None) -> None:
        """Count increments: label set, increase and landing of its newest point.

        Args:
            rows: of those that have a series, and the greatest of the others, in falling order.
            rest: the sum of all others, and the landing of their newest point.
        """
        for labels, increase, seen in rows:
            series = self.own.get(labels)
            if series is None and len(self.own) < self._top:
                series = self.own[labels] = self._retired.pop(labels, Series())
                self._near.pop(labels, None)  # promoted, it would lose this series for a new one
            if series is None:
                self._near[labels] = self._near.get(labels, 0.0) + increase
                self._add_other(increase, seen)
            else:
                series.add(increase, seen)
        if rest is not None:
            self._add_other(*rest)

    def age(self, now: float) -> None:
        """Retire series that are stale, and give the busiest label sets the series of slower ones."""
        remains = 0.5 ** (max(now - self._aged, 0) / HALF_LIFE_S)
        self._aged = now
        for series in self.own.values():
            series.pace *= remains
        self._near = dict(sorted(self._near.items(), key=lambda item: -item[1])[: self._top])
        for labels in self._near:
            self._near[labels] *= remains
        for labels in [labels for labels, series in self.own.items() if series.seen < now - self._stale_s]:
            self._retire(labels)
        if now - self._started >= HALF_LIFE_S:  # before that it isn't known who is busy
            self._promote(now)
        for labels in list(self._retired)[: max(0, len(self._retired) - RETIRED * self._top)]:
            del self._retired[labels]

    def _promote(self, now: float) -> None:
        slowest = sorted(self.own, key=lambda labels: self.own[labels].pace, reverse=True)
        for labels, pace in list(self._near.items()):
            if len(self.own) >= self._top:
                if not slowest or pace <= PROMOTED_AT * self.own[slowest[-1]].pace:
                    return
                self._retire(slowest.pop())
            series = self.own[labels] = self._retired.pop(labels, Series())
            series.pace, series.seen = self._near.pop(labels), now

    def _retire(self, labels: Labels) -> None:
        self._retired[labels] = self.own.pop(labels)

    def _add_other(self, increase: float, seen: float) -> None:
        self.other = self.other or Series()
        self.other.add(increase, seen)

    def stored(self) -> dict[str, Any]:
        """What a note has of it. A series is an object with its labels, as `forget` looks for them."""
        rows = [
            self._row(labels, series, is_own)
            for part, is_own in ((self.own, True), (self._retired, False))
            for labels, series in part.items()
        ]
        return {"series": rows, "other": None if self.other is None else asdict(self.other)}

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Take over what a note has; series beyond `top` are retired, the slowest first."""
        for row in stored["series"]:
            labels = tuple(row[label] for label in self.labels)
            part = self.own if row["own"] else self._retired
            part[labels] = Series(row["value"], row["shown"], row["seen"], row["pace"])
        for labels in sorted(self.own, key=lambda labels: self.own[labels].pace)[: max(0, len(self.own) - self._top)]:
            self._retire(labels)
        self.other = stored["other"] and Series(**stored["other"])

    def _row(self, labels: Labels, series: Series, is_own: bool) -> dict[str, Any]:
        return dict(zip(self.labels, labels, strict=True)) | asdict(series) | {"own": is_own}

    def exported(self) -> Iterator[tuple[Labels | None, float]]:
        """Label sets and values; None: all others together."""
        for labels, series in self.own.items():
            yield labels, series.shown
        if self.other is not None and self.other.seen >= self._aged - self._stale_s:
            yield None, self.other.shown
