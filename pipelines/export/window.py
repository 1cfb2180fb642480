"""What was pushed within the last minutes: means and maxima by label set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kafka_telemetry_lake.pipelines.export.families import Labels
from kafka_telemetry_lake.pipelines.export.measures import LEVELS
from kafka_telemetry_lake.pipelines.export.sums import Value

_IS_MEAN = {each.measure: each.is_mean for each in LEVELS}

Values = Mapping[tuple[str, str], Mapping[Labels | None, Value]]


@dataclass(frozen=True)
class _Part:
    version: int
    newest: float
    values: Values


class Window:
    """Values of some commits, of which old ones are dropped."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []

    def add(self, version: int, newest: float, values: Values) -> None:
        """Add the values of a commit, or of several that were read together.

        Args:
            version: of the first of them.
            newest: landing of their newest point, Unix seconds.
        """
        if values:
            self._parts.append(_Part(version, newest, values))

    def drop(self, before: float) -> None:
        """Drop the values of commits whose newest point landed before a time."""
        self._parts = [part for part in self._parts if part.newest >= before]

    def oldest(self, otherwise: int) -> int:
        """The version of the oldest commit with values; `otherwise` if there is none."""
        return min((part.version for part in self._parts), default=otherwise)

    def values(self, since: float, top: int) -> Iterator[tuple[tuple[str, str], dict[Labels | None, float]]]:
        """The gauges of the commits since a time: the `top` greatest of each, and one of all others (None)."""
        self.drop(since)
        merged: dict[tuple[str, str], dict[Labels | None, Value]] = {}
        for part in self._parts:
            for key, rows in part.values.items():
                known = merged.setdefault(key, {})
                for labels, value in rows.items():
                    known[labels] = _both(known[labels], value) if labels in known else value
        for (dimension, measure), rows in merged.items():
            number = _mean if _IS_MEAN[measure] else _most
            greatest = sorted((labels for labels in rows if labels is not None), key=lambda each: -number(rows[each]))
            result: dict[Labels | None, float] = {labels: number(rows[labels]) for labels in greatest[:top]}
            rest = rows.get(None)
            for labels in greatest[top:]:
                rest = rows[labels] if rest is None else _both(rest, rows[labels])
            if rest is not None:
                result[None] = number(rest)
            yield (dimension, measure), result


def _both(one: Value, other: Value) -> Value:
    return one[0] + other[0], one[1] + other[1], max(one[2], other[2])


def _mean(value: Value) -> float:
    return value[0] / value[1]


def _most(value: Value) -> float:
    return value[2]
