"""Which quotas were configured when (Q10), and which applies to a client: Kafka's eight levels (Q8; KIP-13, KIP-55).

An entity is a user, a client id or both. Empty text means that it lacks that part; ``<default>`` is the entity of all
users, or client ids, without a quota of their own. Kafka's source: ``DefaultQuotaCallback`` in ClientQuotaManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

DEFAULT = "<default>"
UNLIMITED = float(2**63 - 1)  # ClientQuotaManager's bound for no limit, Long.MaxValue

# The limits of one quota type on one cluster: (user, client_id) to the limit per second, or to percent.
QuotaLimits = Mapping[tuple[str, str], float]

EFFECTIVE = pa.schema(
    [
        ("quota_limit", pa.float64()),
        ("level", pa.int8()),
        ("bucket_user", pa.string()),
        ("bucket_client_id", pa.string()),
    ]
)


class EffectiveQuota(NamedTuple):
    """The quota that applies to a client.

    `level` counts from 1, the most specific; 0 when no quota matches. `user` and `client_id` name the bucket that
    brokers count in and tag their sensors with: all clients of a bucket share the limit on each broker.
    """

    limit: float | None
    level: int
    user: str
    client_id: str


def effective_quota(limits: QuotaLimits, user: str, client_id: str) -> EffectiveQuota:
    """The quota in force for a client with this user name and client id.

    A limit of infinity, or of Kafka's own number for it, exempts (Q9): `limit` is None and `level` says what exempts.
    """
    levels = (
        ((user, client_id), (user, client_id)),
        ((user, DEFAULT), (user, client_id)),
        ((user, ""), (user, "")),
        ((DEFAULT, client_id), (user, client_id)),
        ((DEFAULT, DEFAULT), (user, client_id)),
        ((DEFAULT, ""), (user, "")),
        (("", client_id), ("", client_id)),
        (("", DEFAULT), ("", client_id)),
    )
    for level, (entity, bucket) in enumerate(levels, 1):
        if entity in limits:
            limit = limits[entity]
            return EffectiveQuota(limit if limit < UNLIMITED else None, level, *bucket)
    return EffectiveQuota(None, 0, user, client_id)


def effective_quotas(limits: QuotaLimits, users: pa.ChunkedArray, client_ids: pa.ChunkedArray) -> pa.Table:
    """`effective_quota` of each pair, columns of `EFFECTIVE`. NULL reads as empty; a distinct pair is resolved once."""
    pairs = pa.table({"user": pc.fill_null(users, ""), "client_id": pc.fill_null(client_ids, "")})
    distinct = pairs.group_by(["user", "client_id"]).aggregate([])
    effective = [effective_quota(limits, row["user"], row["client_id"]) for row in distinct.to_pylist()]
    columns = zip(*effective, strict=True) if effective else ((),) * len(EFFECTIVE)
    for field, column in zip(EFFECTIVE, columns, strict=True):
        distinct = distinct.append_column(field, pa.array(column, field.type))
    numbered = pairs.append_column("row", pa.array(range(len(pairs)), pa.int64()))
    return numbered.join(distinct, ["user", "client_id"]).sort_by("row").select(EFFECTIVE.names)


Version = Mapping[str, Any]  # a row of table quotas


class Span(NamedTuple):
    """The windows that start in [start, end), Unix seconds, and their limits; None: before the first poll."""

    start: int
    end: int
    limits: QuotaLimits | None


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


def _limits(versions: Iterable[Version], until: float, linger_seconds: int) -> QuotaLimits:
    """The limits in force just before `until`, the newest of each entity."""
    return {
        (each["user"], each["client_id"]): each["quota_limit"]
        for each in sorted(versions, key=lambda each: _seconds(each["valid_from"]))
        if _seconds(each["valid_from"]) < until
        and (each["valid_to"] is None or _seconds(each["valid_to"]) + linger_seconds >= until)
    }


def _seconds(time: datetime) -> float:
    return time.timestamp()
