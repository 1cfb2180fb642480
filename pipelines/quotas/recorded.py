"""What of a lake's rates a proposed quota would apply to: counted, and read one recorded entity after the other."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.sql_text import filled, quoted, sql_file
from kafka_telemetry_lake.udfs.errors import CannotRunError
from kafka_telemetry_lake.udfs.kernels.arrays import Doubles
from kafka_telemetry_lake.udfs.quotas.limits import DEFAULT, effective_quota
from kafka_telemetry_lake.udfs.quotas.what_if import rates_by_second

MOST_GAP_S = 35.0  # between samples, at least; or three of their usual intervals
BEFORE_S = 60  # of samples before the range: what they say fills the broker's window
MOST_SECONDS = 31 * 86_400
MOST_ENTITIES = 100_000  # that a prediction is made of
MOST_SAMPLES = 50_000_000  # their sort takes about 100 bytes of disk space each
BATCH = 10_000  # entities that are dicts at once
PROPOSED = -1.0  # the limit of the proposal while its entities are looked for: no other is negative
MOST_LISTED = 1000
RECORDED = sql_file("quotas", "recorded")
SAMPLES = sql_file("quotas", "_samples")
PARTS = f"{SAMPLES}\n{sql_file('quotas', 'parts')}"
RATES = f"{SAMPLES}\n{sql_file('quotas', 'rates')}"
LIMITS = sql_file("quotas", "limits")


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


class Entity(NamedTuple):
    """What a broker counts as one."""

    cluster_id: str | None
    broker_id: int | None
    user: str
    client_id: str


class Recorded(NamedTuple):
    """What was recorded of those to whom a proposal would apply."""

    entities: Mapping[Entity, Entity]
    """of each recorded one, as which it would be counted"""
    samples: int
    together: int
    """recorded entities left out, as brokers counted those together that the proposal would separate"""
    throttled: frozenset[Entity]
    """of the counted ones, which were throttled then"""
    sources: Mapping[Entity, frozenset[str]]
    """of each counted one"""


def recorded_entities(lake: str, quota_type: str, start: datetime, end: datetime) -> list[tuple[str, str]]:
    """User and client id of the first entities that brokers sampled between two times, by name.

    One more than `MOST_LISTED` says that there are more.
    """
    days, between = _times(start, end)
    sql = filled(RECORDED, {"quota_type": quota_type, "days": days, "between": between, "most": str(MOST_LISTED + 1)})
    return [(row["user"], row["client_id"]) for row in run_query(lake, sql).read_all().to_pylist()]


def _times(start: datetime, end: datetime) -> tuple[str, str]:
    """Conditions on the landed date, and on the time of a sample."""
    days = f"BETWEEN DATE '{start:%Y-%m-%d}' - 1 AND DATE '{end:%Y-%m-%d}' + 1"
    return days, f"BETWEEN TIMESTAMPTZ '{start.isoformat()}' AND TIMESTAMPTZ '{end.isoformat()}'"


def recorded_of(lake: str, proposal: Proposal, start: datetime, end: datetime) -> Recorded:
    """Count what was recorded of those to whom the proposal would apply.

    Raises:
        NothingRecordedError: no rate was recorded, or none to which the proposal would apply; it says why.
        CannotRunError: more than `MOST_SECONDS`, or it would apply to more than `MOST_ENTITIES` or `MOST_SAMPLES`.
    """
    seconds = int((end - start).total_seconds())
    if not 0 < seconds <= MOST_SECONDS:
        raise CannotRunError(
            f"from, to: {seconds:,} s between them; allowed: above 0, up to {MOST_SECONDS // 86_400} days"
        )
    parts = run_query(lake, filled(PARTS, _read(proposal, start, end))).read_all()
    if not len(parts):
        raise nothing_recorded(proposal, start, end)
    proposed: dict[str | None, dict[tuple[str, str], float]] = defaultdict(
        lambda: {(proposal.user, proposal.client_id): PROPOSED}
    )
    limits = run_query(lake, filled(LIMITS, {"quota_type": proposal.quota_type, "end": end.isoformat()})).read_all()
    for row in limits.to_pylist():
        proposed[row["cluster_id"]].setdefault((row["user"], row["client_id"]), row["quota_limit"])
    entities, sources = dict[Entity, Entity](), defaultdict[Entity, set[str]](set)
    together, samples, throttled = 0, 0, set[Entity]()
    for batch in parts.to_batches(max_chunksize=BATCH):
        for row in batch.to_pylist():
            was = Entity(*(row[name] for name in Entity._fields))
            if (proposal.user and not was.user) or (proposal.client_id and not was.client_id):
                together += 1
                continue
            quota = effective_quota(proposed[was.cluster_id], was.user, was.client_id)
            if quota.limit != PROPOSED:
                continue
            counted = was._replace(user=quota.user, client_id=quota.client_id)
            if len(entities) == MOST_ENTITIES:
                raise _too_many(f"more than {MOST_ENTITIES:,} recorded entities")
            entities[was] = counted
            sources[counted].add(row["source"])
            samples += row["samples"]
            if row["throttled"]:
                throttled.add(counted)
    if not entities:
        raise NothingRecordedError(_why_none(together))
    if samples > MOST_SAMPLES:
        raise _too_many(f"{len(entities):,} recorded entities with {samples:,} samples")
    of = {entity: frozenset(names) for entity, names in sources.items()}
    return Recorded(entities, samples, together, frozenset(throttled), of)


def _too_many(what: str) -> CannotRunError:
    return CannotRunError(
        f"this quota would apply to {what}; allowed: {MOST_ENTITIES:,} entities, {MOST_SAMPLES:,} samples. Ask for "
        "less time, or for one user or client id"
    )


def _read(proposal: Proposal, start: datetime, end: datetime) -> dict[str, str]:
    """What the SQL reads; the samples of `BEFORE_S` before the start, too."""
    days, between = _times(start - timedelta(seconds=BEFORE_S), end)
    return {"quota_type": proposal.quota_type, "days": days, "between": between}


def nothing_recorded(proposal: Proposal, start: datetime, end: datetime) -> NothingRecordedError:
    return NothingRecordedError(
        f"no rates of {proposal.quota_type} were recorded between {start:%Y-%m-%d %H:%M} and {end:%Y-%m-%d %H:%M} "
        "UTC: brokers' receivers sample them (docs/quotas.md), and only where a quota of this type is set"
    )


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


def rates_of_entities(
    lake: str, proposal: Proposal, recorded: Recorded, start: datetime, end: datetime
) -> Iterator[tuple[Entity, Doubles]]:
    """Each entity that the proposal limits, with its rate of each second: the sum of those that it unites."""
    origin, seconds = start.timestamp() - BEFORE_S, BEFORE_S + int((end - start).total_seconds())
    whole, rates = None, np.full(seconds, np.nan)
    for was, times, values in _samples(lake, proposal, start, end):
        counted = recorded.entities.get(was)
        if counted is None:
            continue
        if counted != whole:
            if whole is not None:
                yield whole, rates
            whole, rates = counted, np.full(seconds, np.nan)
        own = _rates(times - origin, values, seconds)
        rates = np.where(np.isnan(own), rates, np.where(np.isnan(rates), own, rates + own))
    if whole is not None:
        yield whole, rates


def _samples(
    lake: str, proposal: Proposal, start: datetime, end: datetime
) -> Iterator[tuple[Entity, Doubles, Doubles]]:
    """Times (seconds since 1970) and rates of each recorded entity, those next to each other that are united."""
    sides = {'"user"': proposal.user, "client_id": proposal.client_id}
    named = [
        f"{name} <> ''" if value == DEFAULT else f"{name} = {quoted(value, 'duckdb')}"
        for name, value in sides.items()
        if value
    ]
    united = [name for name, value in sides.items() if value]
    read = _read(proposal, start, end) | {"named": " AND ".join(named), "united": ", ".join(united)}
    was: Entity | None = None
    parts: list[tuple[Doubles, Doubles]] = []
    for batch in run_query(lake, filled(RATES, read)):
        times = batch["at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy() / 1e6
        rates = batch["rate"].to_numpy().clip(0)
        begins = _begins(batch)
        for first, end_ in itertools.pairwise([*begins, len(rates)]):
            own = Entity(*(batch[name][first].as_py() for name in Entity._fields))
            if own != was:
                if was is not None:
                    yield was, *_joined(parts)
                was, parts = own, []
            parts.append((times[first:end_], rates[first:end_]))
    if was is not None:
        yield was, *_joined(parts)


def _begins(batch: pa.RecordBatch) -> list[int]:
    """The first row of each run of rows of one entity."""
    changes = np.zeros(max(len(batch) - 1, 0), np.bool_)
    for name in Entity._fields:
        changes |= np.diff(batch[name].dictionary_encode("encode").indices.to_numpy()) != 0
    return [0, *(np.flatnonzero(changes) + 1).tolist()] if len(batch) else []


def _joined(parts: list[tuple[Doubles, Doubles]]) -> tuple[Doubles, Doubles]:
    times, rates = zip(*parts, strict=True)
    return np.concatenate(times), np.concatenate(rates)


def _rates(times: Doubles, rates: Doubles, seconds: int) -> Doubles:
    usual = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    return rates_by_second(times, rates, seconds, max(MOST_GAP_S, 3 * usual))
