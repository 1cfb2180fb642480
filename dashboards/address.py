"""What an address says and where links lead: a page's whole state is its address, a time range, filters and a subject.

Every name that a page shows has a page of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pandas as pd

from kafka_telemetry_lake.dashboards.pages import OF_COLUMN
from kafka_telemetry_lake.pipelines.applications.compared_windows import WINDOWS_S

RANGES = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
    "all": timedelta(days=36_500),
}
RANGE_NAMES = {
    "15m": "latest 15 minutes",
    "1h": "latest hour",
    "6h": "latest 6 hours",
    "24h": "latest 24 hours",
    "7d": "latest 7 days",
    "30d": "latest 30 days",
    "all": "everything",
}
DEFAULT_RANGE = "24h"
REFRESH_SECONDS = (0, 10, 30, 60, 300)
COMPARISONS = {"": "nothing", "previous": "the period before", "week": "the week before"}
# Key in the link's query: column of question `instances`, and of view `clients` for the two that are about owners.
FILTERS = {
    "client": "client_id",
    "principal": "principal",
    "group": "group_id",
    "version": "software",
    "application": "application",
    "owner": "owner",
}
LABELS = {
    "client": "Client id",
    "principal": "Principal",
    "group": "Consumer group",
    "version": "Software version",
    "application": "Application",
    "owner": "Owner",
}
OWNED = ("application", "owner")
# Those of the page of open findings: column of question `open_findings`, and label.
FINDING_FILTERS = {"severity": "Severity", "state": "State", "finding": "Finding"}
# What a page is about, and what it shows of it.
SUBJECTS = ("instance", "metric", "topic", "broker", "finding_id", "q", "quota", "for", "limit", "moment", "window")
KEYS = ("range", "from", "to", *FILTERS, "refresh", "compare", *FINDING_FILTERS, *SUBJECTS)

STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 604_800)
MOST_WINDOWS = 120
DEFAULT_WINDOW = "1h"  # of those that are compared before and after a moment


@dataclass(frozen=True)
class Selection:
    """A time range and filters. The range is `start` to `stop` if set, else the last `span` before the newest push."""

    span: str = DEFAULT_RANGE
    start: datetime | None = None
    stop: datetime | None = None
    filters: tuple[tuple[str, tuple[str, ...]], ...] = ()
    refresh: int = 0
    compare: str = ""

    def chosen(self, key: str) -> tuple[str, ...]:
        """Values of a filter; if empty, everything passes."""
        return dict(self.filters).get(key, ())

    def fixed(self, start: datetime, stop: datetime) -> Selection:
        """The selection with a fixed time range: a link to it shows the same rows tomorrow."""
        return replace(self, start=start, stop=stop, refresh=0)

    def bounds(self, first: datetime, last: datetime) -> tuple[datetime, datetime]:
        """Start (inclusive) and end (exclusive) of the range, for a lake whose pushes landed from `first` to `last`."""
        if self.start and self.stop:
            return self.start, self.stop
        stop = last + timedelta(milliseconds=1)
        return max(first, stop - RANGES[self.span]), stop

    def query(self) -> dict[str, str | list[str]]:
        """The query of a link to this selection."""
        query: dict[str, str | list[str]] = {}
        if self.start and self.stop:
            query |= {"from": time_text(self.start), "to": time_text(self.stop)}
        elif self.span != DEFAULT_RANGE:
            query["range"] = self.span
        query |= {key: list(values) for key, values in self.filters if values}
        if self.refresh:
            query["refresh"] = str(self.refresh)
        if self.compare:
            query["compare"] = self.compare
        return query

    def without(self, key: str) -> Selection:
        """The selection without one of its filters."""
        return replace(self, filters=tuple(each for each in self.filters if each[0] != key))


def parse(query: Mapping[str, Sequence[str]]) -> tuple[Selection, list[str]]:
    """The selection of a link's query, and a sentence for each invalid part, which is ignored."""
    problems = [
        f"The link's {key}=... is unknown and was ignored; known: {', '.join(KEYS)}."
        for key in query
        if key not in KEYS
    ]
    span = _one(query, "range") or DEFAULT_RANGE
    if span not in RANGES:
        problems.append(f"The link's range={span} is unknown; known: {', '.join(RANGES)}. Showing {DEFAULT_RANGE}.")
        span = DEFAULT_RANGE
    start, stop = (_time(query, key, problems) for key in ("from", "to"))
    if (start is None) != (stop is None) and not problems:
        problems.append(f"The link needs both from=... and to=...; showing the {RANGE_NAMES[span]}.")
    elif start and stop and start >= stop:
        problem = f"The link's from={time_text(start)} is not before to={time_text(stop)}"
        problems.append(f"{problem}; showing the {RANGE_NAMES[span]}.")
        start = stop = None
    refresh = _one(query, "refresh") or "0"
    if refresh not in map(str, REFRESH_SECONDS):
        allowed = ", ".join(map(str, REFRESH_SECONDS))
        problems.append(f"The link's refresh={refresh} is not one of {allowed} seconds; not refreshing.")
        refresh = "0"
    compare = _one(query, "compare") or ""
    if compare not in COMPARISONS:
        allowed = ", ".join(filter(None, COMPARISONS))
        problems.append(f"The link's compare={compare} is unknown; known: {allowed}. Comparing with nothing.")
        compare = ""
    _time(query, "moment", problems)
    if (window := _one(query, "window")) is not None and window not in WINDOWS_S:
        problems.append(
            f"The link's window={window} is unknown; known: {', '.join(WINDOWS_S)}. Comparing {DEFAULT_WINDOW}."
        )
    filters = tuple((key, tuple(dict.fromkeys(query[key]))) for key in FILTERS if query.get(key))
    both = bool(start and stop)
    times = (start, stop) if both else (None, None)
    return Selection(span, *times, filters, int(refresh), compare), problems


def step_seconds(start: datetime, stop: datetime, push_interval_ms: float) -> int:
    """Length of a plot's windows, at least the push interval, so that there are at most about `MOST_WINDOWS`."""
    least = max((stop - start).total_seconds() / MOST_WINDOWS, push_interval_ms / 1000)
    return next((step for step in STEPS_S if step >= least), STEPS_S[-1])


def _one(query: Mapping[str, Sequence[str]], key: str) -> str | None:
    values = query.get(key)
    return values[-1] if values else None


def _time(query: Mapping[str, Sequence[str]], key: str, problems: list[str]) -> datetime | None:
    text = _one(query, key)
    if text is None or (time := read_time(text)) is not None:
        return None if text is None else time
    problems.append(f"The link's {key}={text} is not a time such as 2026-11-21T12:00:00Z; ignored.")
    return None


def read_time(text: str) -> datetime | None:
    """A time, without a zone in UTC; None if it is none."""
    try:
        time = datetime.fromisoformat(text.strip())
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def time_text(time: datetime) -> str:
    """A time as an address has it."""
    return time.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


TIMES = ("range", "from", "to", "refresh", "compare")
MANY = ", "  # how views list several names in a text


def address(page: str, selection: Selection, /, **query: str | None) -> str:
    """The address of a page in the same time range, without the filters; parameters that are None are left out."""
    kept = {key: value for key, value in selection.query().items() if key in TIMES}
    return with_query(page, kept | {key: value for key, value in query.items() if value is not None})


def with_query(page: str, query: Mapping[str, object]) -> str:
    """A page with a query."""
    return f"{page or '.'}?{urlencode(query, doseq=True)}" if query else page or "."


def of_value(column: str, value: object, selection: Selection) -> str | None:
    """The address of the page about a value of a column; None: there is no page about it."""
    if column not in OF_COLUMN or not isinstance(value, str | int) or value in ("", "<default>"):
        return None
    text = str(value)
    if column in OWNED and MANY in text:
        return None  # of several: the row's other links lead there
    page, key = OF_COLUMN[column]
    return address(page, selection, **{key: text})


def of_column(rows: pd.DataFrame, column: str, selection: Selection) -> list[str | None] | None:
    """The addresses of a column's values; None: its values have no pages."""
    if f"{column} link" in rows.columns:  # the caller knows better, as for a finding's subject
        return [None if pd.isna(value) else str(value) for value in rows[f"{column} link"]]
    if column not in OF_COLUMN:
        return None
    known = dict[object, str | None]()
    return [_known(known, column, value, selection) for value in rows[column]]


def _known(known: dict[object, str | None], column: str, value: object, selection: Selection) -> str | None:
    """The address of a value, made once: thousands of rows have a few principals, groups and versions."""
    if not isinstance(value, str | int):  # a missing value, or a list
        return None
    if value not in known:
        known[value] = of_value(column, value, selection)
    return known[value]
