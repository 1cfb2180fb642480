"""What a proposed subscription would bring, from what a lake has recorded (M13 to M15)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.pipelines.lake.stored_files import files_table
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.subscriptions.metric_readers import metric_readers
from kafka_telemetry_lake.pipelines.subscriptions.recorded import NoFleetError, RecordedFleet, read_fleet
from kafka_telemetry_lake.pipelines.tables.operator import (
    METRIC_POINTS,
    METRIC_ROLLUPS_1H,
    METRIC_ROLLUPS_1M,
    PUSH_OUTCOMES,
    PUSHES,
)
from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS
from kafka_telemetry_lake.pipelines.tables.table import Table
from kafka_telemetry_lake.udfs.errors import CannotRunError
from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int64s
from kafka_telemetry_lake.udfs.subscriptions.history import subscription_of
from kafka_telemetry_lake.udfs.subscriptions.matching import (
    DEFAULT_INTERVAL_MS,
    INTERVAL_MS,
    MATCH,
    METRICS,
    Subscription,
    from_config,
)
from kafka_telemetry_lake.udfs.subscriptions.needs import AskedAlike, ChangedNeed, changed_needs
from kafka_telemetry_lake.udfs.subscriptions.what_if import ExpectedPushes, RecordedPushes, expected

MOST_DAYS = 31
# Of a job that runs beside its fleet: the line through sustained_10k and sustained_1000k of benchmarks/results.json.
FIXED_CORES, CORE_US_A_POINT = 0.279, 3.57
ROLLUPS = {METRIC_ROLLUPS_1M: 60, METRIC_ROLLUPS_1H: 3600}
CLIENTS = pa.schema(
    [
        ("cluster_id", pa.string()),
        ("client_instance_id", pa.string()),
        ("client_id", pa.string()),
        ("client_software_name", pa.string()),
        ("client_software_version", pa.string()),
        ("interval_s_before", pa.float64()),
        ("interval_s_after", pa.float64()),
        ("pushes_s_before", pa.float64()),
        ("pushes_s_after", pa.float64()),
        ("bytes_s_before", pa.float64()),
        ("bytes_s_after", pa.float64()),
        ("points_s_before", pa.float64()),
        ("points_s_after", pa.float64()),
        ("estimated_points_s", pa.float64()),
        ("unknown", pa.list_(pa.string())),
    ]
)
TOTALS = pa.schema([("what", pa.string()), ("before", pa.float64()), ("after", pa.float64())])
NEEDS = pa.schema(
    [
        ("what", pa.string()),
        ("name", pa.string()),
        ("change", pa.string()),
        ("clients", pa.int64()),
        ("of_clients", pa.int64()),
        ("metrics", pa.list_(pa.string())),
    ]
)


class SubscriptionChange(NamedTuple):
    """One subscription as it would be; None: as it is, and of a new one the broker's default."""

    name: str
    metrics: Sequence[str] | None = None
    interval_ms: int | None = None
    match: Mapping[str, str] | None = None


class SubscriptionProposal(NamedTuple):
    """A change of one subscription, or all that there would be."""

    proposed: SubscriptionChange | Sequence[Subscription]
    cluster_id: str | None = None
    """None: the only cluster that the lake has subscriptions of"""


class SubscriptionPrediction(NamedTuple):
    """What a proposal would bring."""

    clients: pa.Table
    """schema `CLIENTS`, those of whom other things would be asked, by their change in points"""
    totals: pa.Table
    """schema `TOTALS`, of the whole cluster"""
    needs: pa.Table
    """schema `NEEDS`, the losses first"""
    remarks: Sequence[str]
    """what isn't known, and what was estimated, each a sentence"""


def what_if(lake: str, proposal: SubscriptionProposal, start: datetime, end: datetime) -> SubscriptionPrediction:
    """What a proposal would bring, by the pushes between two times and the subscriptions in force at the end.

    Raises:
        NoFleetError: nobody pushed in this time, no client matches, or no subscription is known.
        SubscriptionError: brokers would refuse what is proposed.
    """
    if not 0 < (end - start).total_seconds() <= MOST_DAYS * 86_400:
        raise CannotRunError(f"from, to: {end - start} between them; allowed: above 0, up to {MOST_DAYS} days")
    cluster_id, versions = _versions(lake, proposal.cluster_id)
    current = _in_force(versions, end)
    after = _applied(proposal.proposed, current)
    fleet = read_fleet(lake, cluster_id, versions, start, end)
    asked_before, recorded, known_before = fleet.requested(current)
    asked_after, recorded, known_after = replace(fleet, recorded=recorded).requested(after)
    known = known_before & known_after
    asked_before, asked_after = asked_before * known, asked_after * known
    affected = asked_before != asked_after
    if not affected.any():
        raise NoFleetError(_why_nobody(proposal, current, after, int((~known).sum()), len(known)))
    was, would_be = expected(recorded, asked_before), expected(recorded, asked_after)
    needs = list(_needs(fleet, recorded, asked_before, asked_after, affected))
    return SubscriptionPrediction(
        _rows(cluster_id, fleet, was, would_be, affected),
        _totals(lake, start, end, was, would_be),
        pa.Table.from_pylist([need._asdict() for need in needs], NEEDS),
        list(_remarks(fleet, would_be, affected, known, after)),
    )


def _versions(lake: str, cluster_id: str | None) -> tuple[str, pa.Table]:
    table = SUBSCRIPTIONS.open(lake)
    versions = SUBSCRIPTIONS.schema.empty_table() if table is None else table.to_pyarrow_table()
    clusters = sorted(pc.unique(versions["cluster_id"]).to_pylist())
    if not clusters:
        raise NoFleetError(
            "no subscription is recorded, so nobody knows what clients were asked for: run `telemetry-lake sync`"
        )
    if cluster_id is None and len(clusters) > 1:
        raise CannotRunError(f"cluster_id: the lake has several: add --cluster-id, one of {', '.join(clusters)}")
    chosen = clusters[0] if cluster_id is None else cluster_id
    if chosen not in clusters:
        raise CannotRunError(f"cluster_id: no subscription of {chosen} is recorded; recorded: {', '.join(clusters)}")
    return chosen, versions.filter(pc.equal(versions["cluster_id"], chosen))


def _in_force(versions: pa.Table, end: datetime) -> list[Subscription]:
    """Those in force at the end, or at the first poll if that was later."""
    at = max(end, pc.min(versions["valid_from"]).as_py())
    rows = (row for row in versions.to_pylist() if row["valid_from"] <= at)
    return [subscription_of(row) for row in rows if row["valid_to"] is None or row["valid_to"] > at]


def _applied(
    proposed: SubscriptionChange | Sequence[Subscription], current: Sequence[Subscription]
) -> list[Subscription]:
    if not isinstance(proposed, SubscriptionChange):
        return list(proposed)
    by_name = {each.name: each for each in current}
    old = by_name.get(proposed.name)
    if old is None and proposed.metrics is None:
        named = f"; there are {', '.join(sorted(by_name))}" if by_name else ""
        raise CannotRunError(f"metrics: needed: no subscription is called {proposed.name!r}{named}")
    was = old or Subscription(proposed.name)
    config = {
        METRICS: ",".join(was.metrics if proposed.metrics is None else proposed.metrics),
        INTERVAL_MS: str(was.interval_ms if proposed.interval_ms is None else proposed.interval_ms),
        MATCH: ",".join(f"{key}={pattern}" for key, pattern in _match(was, proposed)),
    }
    new = from_config(proposed.name, config)
    unread = was.unread if proposed.match is None else None
    return list({**by_name, proposed.name: replace(new, unread=unread)}.values())


def _match(was: Subscription, proposed: SubscriptionChange) -> Iterable[tuple[str, str]]:
    return was.match if proposed.match is None else proposed.match.items()


def _why_nobody(
    proposal: SubscriptionProposal,
    current: Sequence[Subscription],
    after: Sequence[Subscription],
    undecided: int,
    count: int,
) -> str:
    if set(current) == set(after):
        return "this is what the cluster's subscriptions are already"
    open_ = f"; of {undecided:,} it can't be said whether they match (docs/rules.md, M2)" if undecided else ""
    whom = f" that {proposal.proposed.name} matches" if isinstance(proposal.proposed, SubscriptionChange) else ""
    return (
        f"nobody{whom} would be asked for anything else: {count:,} client instances pushed in this time{open_}. "
        "Clients that pushed nothing aren't in the lake"
    )


def _rows(
    cluster_id: str, fleet: RecordedFleet, was: ExpectedPushes, would_be: ExpectedPushes, affected: Bools
) -> pa.Table:
    columns: dict[str, Any] = {"cluster_id": pa.array([cluster_id] * len(affected))}
    columns |= {name: fleet.clients[name] for name in CLIENTS.names[1:5]}
    for suffix, each in (("before", was), ("after", would_be)):
        columns[f"interval_s_{suffix}"] = pa.array(each.interval_s, mask=np.isinf(each.interval_s))
        columns[f"pushes_s_{suffix}"] = each.pushes_s
        columns[f"bytes_s_{suffix}"] = each.pushes_s * each.payload
        columns[f"points_s_{suffix}"] = each.pushes_s * each.points
    columns["estimated_points_s"] = would_be.pushes_s * would_be.borrowed
    columns["unknown"] = pa.array([list(each) for each in would_be.unknown], pa.list_(pa.string()))
    rows = pa.table({name: columns[name] for name in CLIENTS.names}).cast(CLIENTS).filter(pa.array(affected))
    change = pc.subtract(rows["points_s_after"], rows["points_s_before"])
    order = [("change", "descending"), ("client_id", "ascending"), ("client_instance_id", "ascending")]
    return rows.append_column("change", change).sort_by(order).select(CLIENTS.names)


def _totals(lake: str, start: datetime, end: datetime, was: ExpectedPushes, would_be: ExpectedPushes) -> pa.Table:
    stored = _stored_bytes(lake, start, end)
    of = [_total(each, stored, was) for each in (was, would_be)]
    return pa.table([list(of[0]), list(of[0].values()), list(of[1].values())], schema=TOTALS)


def _total(each: ExpectedPushes, stored: Mapping[str, float], was: ExpectedPushes) -> dict[str, float]:
    points = float((each.pushes_s * each.points).sum())
    payload, pushes = float((each.pushes_s * each.payload).sum()), float(each.pushes_s.sum())
    bytes_s = points * stored[METRIC_POINTS.name] + payload * stored[PUSHES.name] + pushes * stored[PUSH_OUTCOMES.name]
    points_before = float((was.pushes_s * was.points).sum())
    for table, seconds in ROLLUPS.items():
        before = max(float(was.windows_s(seconds).sum()), 1e-9)
        bytes_s += stored[table.name] * points_before * float(each.windows_s(seconds).sum()) / before
    return {
        "clients": float((each.pushes_s > 0).sum()),
        "pushes a second": pushes,
        "payload bytes a second": payload,
        "points a second": points,
        "lake, GB a day": bytes_s * 86_400 / 1e9,
        "ingest, cores": FIXED_CORES + points * CORE_US_A_POINT / 1e6,
    }


def _stored_bytes(lake: str, start: datetime, end: datetime) -> dict[str, float]:
    """Bytes of the tables' files of these days, as they are now.

    Of points and rollups for a point, of `push_outcomes` for a push, of `pushes` for a byte of payload.
    """
    days = f"BETWEEN DATE '{start:%Y-%m-%d}' AND DATE '{end:%Y-%m-%d}'"
    sql = f"SELECT sum(payload_bytes)::DOUBLE AS payload FROM pushes WHERE landed_date {days}"
    payload = run_query(lake, sql).read_all()["payload"][0].as_py() or 0.0
    sizes = {table: _size(lake, table, start, end) for table in (METRIC_POINTS, PUSHES, PUSH_OUTCOMES, *ROLLUPS)}
    points, pushes = sizes[METRIC_POINTS][1], sizes[PUSH_OUTCOMES][1]
    by = {PUSHES: payload, PUSH_OUTCOMES: pushes}
    return {table.name: size / max(by.get(table, points), 1) for table, (size, _) in sizes.items()}


def _size(lake: str, table: Table, start: datetime, end: datetime) -> tuple[float, float]:
    """Bytes and rows of a table's files of these days."""
    opened = table.open(lake)
    if opened is None:
        return 0.0, 0.0
    files = files_table(opened)
    between = pc.and_(
        pc.greater_equal(files["day"], f"{start:%Y-%m-%d}"), pc.less_equal(files["day"], f"{end:%Y-%m-%d}")
    )
    files = files.filter(between)
    return float(pc.sum(files["size_bytes"]).as_py() or 0), float(pc.sum(files["num_records"]).as_py() or 0)


def _needs(
    fleet: RecordedFleet, recorded: RecordedPushes, before: Int64s, after: Int64s, affected: Bools
) -> Iterator[ChangedNeed]:
    counted = Counter(
        (library, recorded.kinds[group], recorded.requests[was], recorded.requests[new])
        for library, group, was, new, changes in zip(
            fleet.clients["library"].to_pylist(),
            recorded.groups.tolist(),
            before.tolist(),
            after.tolist(),
            affected.tolist(),
            strict=True,
        )
        if changes
    )
    clients = [AskedAlike(number, *each) for each, number in counted.items()]
    return changed_needs(metric_readers(recorded.metrics.to_pylist()), clients)


def _remarks(
    fleet: RecordedFleet, would_be: ExpectedPushes, affected: Bools, known: Bools, after: Sequence[Subscription]
) -> Iterator[str]:
    if fleet.missing:
        shown = ", ".join(f"{each:%Y-%m-%d %H:%M}" for each in fleet.missing[:3])
        more = f" and {len(fleet.missing) - 3} more" if len(fleet.missing) > 3 else ""
        yield f"nobody pushed in the ten minutes from {shown}{more} UTC: left out, not interpolated"
    for why, pushes in fleet.unknown.items():
        yield f"{pushes:,} pushes {why}: what they contain is left out"
    if fleet.untimed:
        yield (
            f"{fleet.untimed:,} pushes say no interval, and none is known of their client instances: the time for "
            "which these ran is left out"
        )
    if not known.all():
        yield f"of {int((~known).sum()):,} client instances it can't be said what they would be asked for: left out"
    unknown = Counter(prefix for row in np.flatnonzero(affected).tolist() for prefix in would_be.unknown[row])
    for prefix, clients in sorted(unknown.items()):
        yield (
            f"how many metrics {prefix} would bring isn't known of {clients:,} client instances: no recorded "
            "subscription requested it of them or of others of their software, version and kind. They aren't counted"
        )
    borrowed = float((would_be.pushes_s * would_be.borrowed).sum())
    if borrowed:
        of = int((would_be.borrowed > 0).sum())
        yield (
            f"{borrowed:.3g} points a second, of {of:,} client instances, are estimated from others of the same "
            "software, version and kind"
        )
    if not fleet.everybody_asked:
        yield (
            "clients that no subscription asked for anything aren't in the lake: how many of them the proposal would "
            "match isn't known"
        )
    longest = [each.name for each in after if each.interval_ms > DEFAULT_INTERVAL_MS]
    if longest:
        yield f"an interval of more than five minutes has no effect: {', '.join(sorted(longest))}"
    yield from _changed_libraries(fleet)


def _changed_libraries(fleet: RecordedFleet) -> Iterator[str]:
    of: dict[str, set[tuple[str, str]]] = defaultdict(set)
    names = ("client_id", "client_software_name", "client_software_version")
    for client_id, *software in zip(*(fleet.clients[name].to_pylist() for name in names), strict=True):
        of[client_id].add((software[0], software[1]))
    several = sorted(name for name, software in of.items() if name and len(software) > 1)
    if several:
        more = f" and {len(several) - 3:,} more" if len(several) > 3 else ""
        yield (
            f"{', '.join(several[:3])}{more} had instances of several libraries or versions in this time: each counts "
            "for as long as it ran"
        )
