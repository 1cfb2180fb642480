"""What a proposed quota would have done to the load that a lake has recorded: its samples, by `udfs.quotas.what_if`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.udfs.errors import CannotRunError
from kafka_telemetry_lake.udfs.kernels.arrays import Doubles
from kafka_telemetry_lake.udfs.quotas.limits import effective_quota
from kafka_telemetry_lake.udfs.quotas.what_if import rates_by_second, replay, smallest_limits
from kafka_telemetry_lake.udfs.rows import TIMESTAMP

MOST_GAP_S = 35.0  # between samples, at least; or three of their usual intervals
BEFORE_S = 60  # of samples before the range: what they say fills the broker's window
MOST_SECONDS = 31 * 86_400
CELLS = 4_000_000  # rates in memory at once, 8 bytes each
PROPOSED = -1.0  # the limit of the proposal while its entities are looked for: no other is negative
ANSWER = pa.schema(
    [
        ("cluster_id", pa.string()),
        ("broker_id", pa.int32()),
        ("user", pa.string()),
        ("client_id", pa.string()),
        ("quota_limit", pa.float64()),
        ("mean_rate", pa.float64()),
        ("peak_rate", pa.float64()),
        ("used_percent", pa.float64()),
        ("throttled_percent", pa.float64()),
        ("throttled_s", pa.float64()),
        ("longest_wait_s", pa.float64()),
        ("first_throttled", TIMESTAMP),
        ("last_throttled", TIMESTAMP),
        ("recorded_s", pa.int64()),
        ("source", pa.string()),
        ("status", pa.string()),
    ]
)
STEPS = pa.schema(
    [
        ("cluster_id", pa.string()),
        ("broker_id", pa.int32()),
        ("user", pa.string()),
        ("client_id", pa.string()),
        ("at", TIMESTAMP),
        ("ratio_percent", pa.float64()),
    ]
)
MOST_LISTED = 1000
KNOWN_SHARE = 0.9  # of the time; with less recorded a remark says so
RECORDED = """
    SELECT DISTINCT "user", client_id FROM quota_samples
    WHERE quota_type = '{quota_type}' AND landed_date {days} AND time {between}
    ORDER BY ALL LIMIT {most}"""
# The samples of brokers; where a broker has none of an entity, what clients' own byte counters say.
SAMPLES = """
    WITH sampled AS (
        SELECT cluster_id, broker_id, "user", client_id, 'broker' AS source, time AS at, observed_rate AS rate,
               coalesce(throttle_time_ms, 0) > 0 AS throttled
        FROM quota_samples
        WHERE quota_type = '{quota_type}' AND observed_rate IS NOT NULL AND landed_date {days} AND time {between}
    ), estimated AS (
        SELECT cluster_id, broker_id, "user", client_id, 'client' AS source, window_end AS at, observed_rate AS rate,
               throttled
        FROM quota_usage
        WHERE quota_type = '{quota_type}' AND source = 'client' AND window_seconds = 10 AND observed_rate IS NOT NULL
            AND landed_date {days} AND window_end {between}
    )
    FROM sampled UNION ALL
    FROM estimated WHERE (cluster_id, broker_id, "user", client_id) NOT IN (
        SELECT (cluster_id, broker_id, "user", client_id) FROM sampled
    )
    ORDER BY cluster_id, broker_id, "user", client_id, at"""
LIMITS = """
    SELECT cluster_id, "user", client_id, quota_limit FROM quotas
    WHERE quota_type = '{quota_type}' AND ip = '' AND valid_from < TIMESTAMPTZ '{end}'
        AND (valid_to IS NULL OR valid_to >= TIMESTAMPTZ '{end}')"""


class NothingRecordedError(CannotRunError):
    """The lake has no rates that the proposal would apply to."""


class Proposal(NamedTuple):
    """A limit for an entity as `udfs.quotas.limits` names it; `limit` per second, or None: the smallest that does."""

    quota_type: str
    user: str
    client_id: str
    limit: float | None
    throttled_percent: float = 0.0
    """without a limit: of its recorded seconds an entity may be throttled for so many percent"""


class Prediction(NamedTuple):
    """What a proposal would have done."""

    rows: pa.Table
    """schema `ANSWER`, the most throttled first"""
    together: int
    """recorded entities left out, as brokers counted those together that the proposal would separate"""
    steps: pa.Table = STEPS.empty_table()
    """schema `STEPS`: the greatest recorded rate of each step by the limit, in percent; above 100 something waits"""


class _Entity(NamedTuple):
    """What a broker counts as one."""

    cluster_id: str | None
    broker_id: int | None
    user: str
    client_id: str


def what_if(lake: str, proposal: Proposal, start: datetime, end: datetime, step_s: int = 0) -> Prediction:
    """What the proposal would have done between two times.

    A row is what a broker would have counted as one (Q17). The other quotas are those in force at the end. `status`:
    ``throttled_then``: it was throttled while it was recorded, so it may have wanted more than its rates say;
    ``gaps``: seconds between samples that are far apart are left out, they aren't in `recorded_s`.

    Args:
        step_s: of `steps`, seconds; 0: none.

    Raises:
        NothingRecordedError: no rate was recorded, or none to which the proposal would apply; it says why.
    """
    seconds = int((end - start).total_seconds())
    if not 0 < seconds <= MOST_SECONDS:
        raise CannotRunError(
            f"from, to: {seconds:,} s between them; allowed: above 0, up to {MOST_SECONDS // 86_400} days"
        )
    entities, together = _entities(lake, proposal, start, end)
    size, steps = max(1, CELLS // seconds), list[pa.Table]()
    rows = [
        row
        for first in range(0, len(entities), size)
        for row in _rows(entities[first : first + size], proposal, start, seconds, step_s, steps)
    ]
    order = [("throttled_percent", "descending"), ("used_percent", "descending")]
    order += [(name, "ascending") for name in ("cluster_id", "user", "client_id", "broker_id")]
    return Prediction(
        pa.Table.from_pylist(rows, ANSWER).sort_by(order), together, pa.concat_tables([STEPS.empty_table(), *steps])
    )


def remarks(predicted: Prediction, start: datetime, end: datetime) -> Iterator[str]:
    """What isn't known of a prediction between two times, each a sentence."""
    rows, seconds = predicted.rows.to_pylist(), (end - start).total_seconds()
    if predicted.together:
        yield f"{predicted.together:,} more were recorded together with others, which this quota would separate"
    short = [row["recorded_s"] for row in rows if row["recorded_s"] < KNOWN_SHARE * seconds]
    if short:
        yield (
            f"{len(short):,} of {len(rows):,} weren't recorded for the whole time, one for {min(short):,} of "
            f"{seconds:,.0f} s: what is missing is left out, not interpolated"
        )
    if estimated := sum(row["source"] != "broker" for row in rows):
        yield (
            f"{estimated:,} of {len(rows):,} have no samples of brokers: they are estimated from byte counters that "
            "clients pushed, so bursts within a push interval aren't seen"
        )
    if throttled := sum(row["status"] == "throttled_then" for row in rows):
        yield (
            f"{throttled:,} of {len(rows):,} were throttled while they were recorded: they may have wanted more than "
            "their rates say"
        )


def recorded_entities(lake: str, quota_type: str, start: datetime, end: datetime) -> list[tuple[str, str]]:
    """User and client id of the first `MOST_LISTED` entities that brokers sampled between two times."""
    days, between = _times(start, end)
    sql = RECORDED.format(quota_type=quota_type, days=days, between=between, most=MOST_LISTED)
    return [(row["user"], row["client_id"]) for row in run_query(lake, sql).read_all().to_pylist()]


def _times(start: datetime, end: datetime) -> tuple[str, str]:
    """Conditions on the landed date, and on the time of a sample."""
    days = f"BETWEEN DATE '{start:%Y-%m-%d}' - 1 AND DATE '{end:%Y-%m-%d}' + 1"
    return days, f"BETWEEN TIMESTAMPTZ '{start.isoformat()}' AND TIMESTAMPTZ '{end.isoformat()}'"


def _entities(
    lake: str, proposal: Proposal, start: datetime, end: datetime
) -> tuple[list[tuple[_Entity, pa.Table]], int]:
    """Each entity that the proposal limits, with the samples of those that it unites; and how many can't be split."""
    days, between = _times(start - timedelta(seconds=BEFORE_S), end)
    samples = run_query(lake, SAMPLES.format(quota_type=proposal.quota_type, days=days, between=between)).read_all()
    if not len(samples):
        raise NothingRecordedError(
            f"no rates of {proposal.quota_type} were recorded between {start:%Y-%m-%d %H:%M} and {end:%Y-%m-%d %H:%M} "
            "UTC: brokers' receivers sample them (docs/quotas.md), and only where a quota of this type is set"
        )
    limits: dict[str | None, dict[tuple[str, str], float]] = defaultdict(dict)
    for row in (
        run_query(lake, LIMITS.format(quota_type=proposal.quota_type, end=end.isoformat())).read_all().to_pylist()
    ):
        limits[row["cluster_id"]][row["user"], row["client_id"]] = row["quota_limit"]
    united: dict[_Entity, list[pa.Table]] = defaultdict(list)
    together = 0
    for of_one in _by_entity(samples):
        was = _Entity(*(of_one[name][0].as_py() for name in _Entity._fields))
        if (proposal.user and not was.user) or (proposal.client_id and not was.client_id):
            together += 1
            continue
        proposed = {**limits[was.cluster_id], (proposal.user, proposal.client_id): PROPOSED}
        quota = effective_quota(proposed, was.user, was.client_id)
        if quota.limit == PROPOSED:
            united[was._replace(user=quota.user, client_id=quota.client_id)].append(of_one)
    if not united:
        raise NothingRecordedError(_why_none(together))
    return [(entity, pa.concat_tables(tables)) for entity, tables in united.items()], together


def _why_none(together: int) -> str:
    if together:
        return (
            f"brokers counted {together} entities together that this quota would separate: they count users only where "
            "a user has a quota, and client ids only where a client id has one. Set one that limits nobody, and record"
        )
    return (
        "nobody to whom this quota would apply was recorded: others have a quota that comes before it, "
        "or the name is another"
    )


def _by_entity(samples: pa.Table) -> Iterator[pa.Table]:
    """Consecutive rows of one entity and source."""
    keys = samples.select([*_Entity._fields, "source"]).to_pylist()
    first = 0
    for row in range(1, len(keys) + 1):
        if row == len(keys) or keys[row] != keys[first]:
            yield samples.slice(first, row - first)
            first = row


def _rows(
    entities: list[tuple[_Entity, pa.Table]],
    proposal: Proposal,
    start: datetime,
    seconds: int,
    step_s: int,
    steps: list[pa.Table],
) -> Iterator[dict[str, object]]:
    origin = start.timestamp() - BEFORE_S
    rates, gaps = np.full((len(entities), BEFORE_S + seconds), np.nan), []
    for number, (_, samples) in enumerate(entities):
        parts = [_rates(part, origin, BEFORE_S + seconds) for part in _by_entity(samples)]
        rates[number] = np.where(np.isnan(parts).all(axis=0), np.nan, np.nansum(parts, axis=0))
        known = np.flatnonzero(~np.isnan(rates[number, BEFORE_S:]))
        gaps.append(len(known) and known[-1] - known[0] + 1 > len(known))
    share = proposal.throttled_percent / 100
    # A limit of bytes is a whole number.
    whole = np.ceil if proposal.quota_type != "request" else np.positive
    limits = (
        whole(smallest_limits(rates, share, BEFORE_S))
        if proposal.limit is None
        else np.full(len(entities), proposal.limit)
    )
    replayed = replay(rates, limits, BEFORE_S)
    for number, (entity, samples) in enumerate(entities):
        recorded = int((~np.isnan(rates[number, BEFORE_S:])).sum())
        if not recorded:
            continue
        first, last = int(replayed.first[number]), int(replayed.last[number])
        if step_s:
            steps.append(_steps(entity, 100 * rates[number, BEFORE_S:] / limits[number], start, step_s))
        then = any(samples["throttled"].to_pylist())
        yield {
            **entity._asdict(),
            "quota_limit": float(limits[number]),
            "mean_rate": float(replayed.mean[number]),
            "peak_rate": float(np.nanmax(rates[number, BEFORE_S:])),
            "used_percent": 100 * float(replayed.used[number]),
            "throttled_percent": 100 * float(replayed.throttled_s[number]) / recorded,
            "throttled_s": float(replayed.throttled_s[number]),
            "longest_wait_s": float(replayed.longest_wait_s[number]),
            "first_throttled": None if first < 0 else start + timedelta(seconds=first),
            "last_throttled": None if last < 0 else start + timedelta(seconds=last + 1),
            "recorded_s": recorded,
            "source": ", ".join(sorted(set(samples["source"].to_pylist()))),
            "status": "throttled_then" if then else "gaps" if gaps[number] else "ok",
        }


def _steps(entity: _Entity, ratio: Doubles, start: datetime, step_s: int) -> pa.Table:
    """The greatest of each step that has any."""
    padded = np.append(ratio, np.full(-len(ratio) % step_s, np.nan)).reshape(-1, step_s)
    known = np.flatnonzero(~np.isnan(padded).all(axis=1))
    at = [start + timedelta(seconds=step_s * step) for step in known.tolist()]
    columns = [pa.array([value] * len(known), STEPS.field(name).type) for name, value in entity._asdict().items()]
    return pa.table([*columns, pa.array(at, TIMESTAMP), np.nanmax(padded[known], axis=1)], schema=STEPS)


def _rates(samples: pa.Table, origin: float, seconds: int) -> Doubles:
    times = samples["at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy() / 1e6 - origin
    usual = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    return rates_by_second(times, samples["rate"].to_numpy().clip(0), seconds, max(MOST_GAP_S, 3 * usual))
