"""Which limits were configured when (Q10): the history in table `quotas`, divided where a window's limits change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

from kafka_telemetry_lake.udfs.quotas.precedence import Limits

Version = Mapping[str, Any]  # a row of table quotas


class Span(NamedTuple):
    """The windows that start in [start, end), Unix seconds, and their limits; None: before the first poll."""

    start: int
    end: int
    limits: Limits | None


def limits_over_time(
    versions: Iterable[Version], quota_type: str, start: int, end: int, window_seconds: int, linger_seconds: int = 0
) -> Iterator[Span]:
    """The spans from start to end in which all windows have the same limits: those in force last in each window.

    Args:
        versions: rows of one cluster, of any quota type.
        start, end: multiples of `window_seconds`.
        linger_seconds: a removed limit counts for this much longer (Q13), unless another replaced it.
    """
    versions = list(versions)
    first_poll = min((_seconds(each["not_seen_at"] or each["valid_from"]) for each in versions), default=float("inf"))
    of_type = [each for each in versions if each["quota_type"] == quota_type and not each["ip"]]
    ends = {_seconds(each["valid_to"]) + linger_seconds for each in of_type if each["valid_to"] is not None}
    times = {first_poll} | ends | {_seconds(each["valid_from"]) for each in of_type}
    changes = {int(time // window_seconds) * window_seconds for time in times if start < time < end}
    edges = sorted({start, *changes, end})
    for first, last in pairwise(edges):
        until = first + window_seconds
        yield Span(first, last, None if until <= first_poll else _limits(of_type, until, linger_seconds))


def _limits(versions: Iterable[Version], until: float, linger_seconds: int) -> Limits:
    """The limits in force just before `until`, the newest of each entity."""
    return {
        (each["user"], each["client_id"]): each["quota_limit"]
        for each in sorted(versions, key=lambda each: _seconds(each["valid_from"]))
        if _seconds(each["valid_from"]) < until
        and (each["valid_to"] is None or _seconds(each["valid_to"]) + linger_seconds >= until)
    }


def _seconds(time: datetime) -> float:
    return time.timestamp()
