"""What changed of an application at a moment: the measures of its clients before and after it, by `udfs.before_after`.

A measure is a metric of the rollups, without attributes where clients push it so. Its value in a window is the increase
per second that the deltas cover, the mean of a gauge, or the mean of what a histogram observed (B1).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.pipelines.applications.compared_windows import (
    HOURS,
    LEAST_BINS,
    MINUTES,
    Bins,
    Windows,
    read_from,
    windows_of,
)
from kafka_telemetry_lake.pipelines.applications.measured import Measured, divided, measured, unit_of
from kafka_telemetry_lake.pipelines.applications.remarks_of_windows import (
    of_chance,
    of_changes,
    of_clients,
    of_missing,
    of_valueless,
    time_text,
    what_was_compared,
)
from kafka_telemetry_lake.pipelines.lake.moments import Moment, newest_moment
from kafka_telemetry_lake.pipelines.query.lake_query import Check, run_query
from kafka_telemetry_lake.pipelines.sql_text import filled, quoted, sql_file
from kafka_telemetry_lake.udfs.before_after import CHANGED, Judged, judge, missing_bins, order
from kafka_telemetry_lake.udfs.errors import CannotRunError
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Doubles, Int64s
from kafka_telemetry_lake.udfs.nearest import did_you_mean
from kafka_telemetry_lake.udfs.rows import TIMESTAMP

LONG_S = 6 * 3600  # windows of so many seconds are made of hours
MOST_MEASURES = 2000
MOST_STEPPED = 6
KNOWN_SHARE = 0.5  # of a window: with less pushed, it is left out
ANSWER = pa.schema(
    [
        ("status", pa.string()),
        ("metric", pa.string()),
        ("attribute_keys", pa.string()),
        ("unit", pa.string()),
        ("before", pa.float64()),
        ("after", pa.float64()),
        ("ratio", pa.float64()),
        ("effect", pa.float64()),
        ("noise", pa.float64()),
        ("differences", pa.int64()),
        ("why", pa.string()),
    ]
)
STEPS = pa.schema(
    [("metric", pa.string()), ("attribute_keys", pa.string()), ("at", TIMESTAMP), ("amount", pa.float64())]
)
FIRST, LAST = datetime(1971, 1, 1, tzinfo=UTC), datetime(9998, 1, 1, tzinfo=UTC)


class _Lake(NamedTuple):
    """A lake at one moment, so that all queries of a comparison read the same rows."""

    uri: str
    moment: Moment
    check: Check | None


class Comparison(NamedTuple):
    """What changed of an application at a moment."""

    rows: pa.Table
    """schema `ANSWER`, a row per measure that has a value in some window: those beyond their noise first"""
    steps: pa.Table
    """schema `STEPS`: the first `MOST_STEPPED` changed measures, in the windows before and after"""
    step_s: int
    """seconds of a step"""
    remarks: list[str]
    """sentences: what was compared, how many would be named by chance, and what isn't known"""
    start: datetime
    stop: datetime
    """begin of the window before, end of the one after"""


def before_and_after(uri: str, application: str, at: datetime, window_s: int, check: Check | None = None) -> Comparison:
    """Compare each measure of an application after a moment with what it was before.

    Args:
        window_s: one of `compared_windows.WINDOWS_S`; where less is recorded, shorter windows are compared.
        check: is called with each query's connection before it runs; what it raises ends the comparison.

    Raises:
        CannotRunError: there is no such application, or too little is recorded before or after; it says what.
    """
    lake = _Lake(uri, newest_moment(uri), check)
    windows, clients = _windows(lake, application, at, window_s)
    starts, of = windows.starts(), windows.of
    whole = {"application": application, "start": of.at(windows.first), "stop": of.at(windows.end)}
    found = _ask(
        lake,
        "sums",
        **whole,
        rollups=of.rollups,
        bin_us=of.bin_s * 1_000_000,
        before=windows.before,
        after=windows.after,
        bins=windows.bins,
        most=MOST_MEASURES + 1,
    )
    present = np.sort(found.filter(found["bin"].is_valid())["bin"].to_numpy())
    measures = measured(found.filter(found["metric"].is_valid()), windows)
    missing = missing_bins(present, windows.first, windows.end)
    gone = [np.count_nonzero((missing >= start) & (missing < start + windows.length)) for start in starts]
    values, errors = measures.values()
    judged = judge(values, errors, np.array(gone) <= (1 - KNOWN_SHARE) * windows.length)
    is_valued: Bools = np.asarray((~np.isnan(values)).any(axis=1), np.bool_)
    ranked = order(judged)
    ranked = ranked[is_valued[ranked]][:MOST_MEASURES]
    near = whole | {"start": of.at(starts[1])}
    pushed = _ask(lake, "pushed", **near, at=of.at(windows.after)).to_pylist()
    changes = _ask(lake, "changes", **near).to_pylist()
    remarks = [
        *what_was_compared(windows, window_s, at),
        *of_chance(judged),
        *of_valueless(int(np.count_nonzero(~is_valued))),
        *of_missing(windows, missing),
        *of_clients(clients, pushed),
        *of_changes(changes),
    ]
    if len(measures.names) > MOST_MEASURES:
        remarks.append(f"only the {MOST_MEASURES:,} measures with the most points are compared")
    usual = int(np.median(np.diff(present))) if len(present) > 1 else 1
    together = min(windows.steps, -(-usual // windows.bins))  # of a plot's value: some client has pushed in it
    return Comparison(
        _rows(measures, judged, values, ranked),
        _steps(measures, windows, [int(each) for each in ranked if judged.status[each] == CHANGED], together),
        together * windows.bins * of.bin_s,
        remarks,
        of.at(starts[1]),
        of.at(windows.end),
    )


def _windows(lake: _Lake, application: str, at: datetime, window_s: int) -> tuple[Windows, dict[str, Any]]:
    """The windows to compare, and the application's client ids, a row of `sql/before_after/clients.sql`.

    Hours are taken for long windows only, if that many hours are recorded on both sides of the moment.
    """
    if not FIRST <= at <= LAST:
        raise _too_little(lake, application, at, {"first": None})
    clients: dict[str, Any] = {}
    for of, most_s in ((HOURS, window_s), (MINUTES, min(window_s, LONG_S - MINUTES.bin_s))):
        if of is HOURS and window_s < LONG_S:
            continue
        stop = of.at(of.number(at) + 1) + timedelta(seconds=window_s)
        clients = _clients(lake, application, of, read_from(of, at, most_s), stop)
        if clients["first"] is None:
            continue
        last = stop - timedelta(seconds=of.bin_s) if clients["goes_on"] else clients["last"]  # an outage is recorded
        found = windows_of(of, at, most_s, clients["first"], last)
        if found is not None and (of is MINUTES or found.seconds >= LONG_S):
            return found, clients
    raise _too_little(lake, application, at, clients)


def _clients(lake: _Lake, application: str, of: Bins, start: datetime, stop: datetime) -> dict[str, Any]:
    (row,) = _ask(lake, "clients", application=application, rollups=of.rollups, start=start, stop=stop).to_pylist()
    if not row["client_ids"]:
        known = _ask(lake, "known")["application"].to_pylist()
        advice = did_you_mean(application, known) or (
            "; telemetry-lake sync --aliases-file says whose clients are whose" if not known else ""
        )
        raise CannotRunError(f"application: no client belongs to {application!r}{advice}")
    return dict(row)


def _too_little(lake: _Lake, application: str, at: datetime, near: dict[str, Any]) -> CannotRunError:
    """Why nothing can be said of a moment."""
    all_time = _clients(lake, application, HOURS, FIRST, LAST)
    if all_time["first"] is None:
        return CannotRunError(f"no metrics of application {application} are recorded")
    first, last = all_time["first"], all_time["last"] + timedelta(seconds=HOURS.bin_s)
    if near["first"] is not None:
        first = near["first"] if near["first"] > all_time["first"] + timedelta(seconds=HOURS.bin_s) else first
        last = near["last"] + timedelta(seconds=MINUTES.bin_s)
    return CannotRunError(
        f"at: {time_text(at)} has too little beside it: the metrics of application {application} are recorded from "
        f"{time_text(first)} to {time_text(last)}, and {LEAST_BINS} minutes are needed before the moment and after it"
    )


def _ask(lake: _Lake, name: str, **values: object) -> pa.Table:
    """The answer to a file of `sql/before_after/`."""
    text = sql_file("before_after", name)
    if isinstance(start := values.get("start"), datetime):
        values["day"] = start - timedelta(days=1)  # clocks differ
    if isinstance(stop := values.get("stop"), datetime):
        values["last_day"] = stop - timedelta(days=1)
    sql = filled(text, {key: _literal(key, value) for key, value in values.items()})
    return run_query(lake.uri, sql, moment=lake.moment, check=lake.check).read_all()


def _literal(key: str, value: object) -> str:
    if isinstance(value, datetime):
        return f"DATE '{value:%Y-%m-%d}'" if key in ("day", "last_day") else f"TIMESTAMPTZ '{value.isoformat()}'"
    return quoted(value, "duckdb") if isinstance(value, str) and key != "rollups" else str(value)


def _rows(measures: Measured, judged: Judged, values: Doubles, ranked: Int64s) -> pa.Table:
    names = [measures.names[each] for each in ranked]
    after, before = (values[ranked, each] for each in (0, 1))
    columns = {
        "status": [judged.status[each] for each in ranked],
        "metric": [metric for metric, _ in names],
        "attribute_keys": [keys for _, keys in names],
        "unit": [unit_of(measures.names[each][0], measures.kinds[each]) for each in ranked],
        "before": before,
        "after": after,
        "ratio": divided(after, before),
        "effect": judged.effect[ranked],
        "noise": judged.noise[ranked],
        "differences": judged.differences[ranked],
        "why": [judged.why[each] for each in ranked],
    }
    arrays = [pa.array(columns[field.name], field.type, from_pandas=True) for field in ANSWER]  # NaN is NULL
    return pa.table(arrays, schema=ANSWER)


def _steps(measures: Measured, windows: Windows, changed: list[int], together: int) -> pa.Table:
    parts = [STEPS.empty_table()]
    before = windows.starts()[1]
    for each in changed[:MOST_STEPPED]:
        metric, keys = measures.names[each]
        begins, amounts = measures.around(each, together)
        bins = before + begins * windows.bins + (begins >= windows.steps) * (windows.after - windows.before)
        known = np.flatnonzero(~np.isnan(amounts))
        at = [windows.of.at(int(bins[step])) for step in known]
        parts.append(
            pa.table([[metric] * len(at), [keys] * len(at), pa.array(at, TIMESTAMP), amounts[known]], schema=STEPS)
        )
    return pa.concat_tables(parts)
