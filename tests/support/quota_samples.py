"""Samples of brokers' quota sensors in a lake, as the receiver lands them, and rows of the tables about quotas."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from kafka_telemetry_lake.pipelines.tables.operator import QUOTA_SAMPLES

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """So long after noon."""
    return NOON + timedelta(seconds=seconds)


def usage_window(second: float, **fields: Any) -> dict[str, Any]:
    """A row of quota_usage: ten seconds in which a client id used half of its limit."""
    place = {"cluster_id": "c", "broker_id": 1, "quota_type": "produce", "user": "", "client_id": "app"}
    window = {"window_start": at(second), "window_end": at(second + 10), "window_seconds": 10}
    used = {"observed_rate": 50.0, "quota_limit": 100.0, "used_percent": 50.0, "usage_ratio": 0.5, "throttled": False}
    return place | window | used | {"source": "broker", "status": "ok"} | fields


def quota(
    user: str, client_id: str, limit: float, begun: float = -7200, ended: float | None = None, **fields: Any
) -> dict[str, Any]:
    """A row of quotas: a limit that was in force from `begun` to `ended`, in seconds after noon."""
    times = {"valid_from": at(begun), "valid_to": None if ended is None else at(ended)}
    entity = {"cluster_id": "c", "user": user, "client_id": client_id, "ip": "", "quota_type": "produce"}
    return entity | times | {"quota_limit": limit} | fields


def sample(lake: Path, client_id: str, rate: float, begin: int = 10, end: int = 610, **fields: Any) -> None:
    """Samples of an entity, one each ten seconds from `begin` to `end` after noon."""
    rows = [
        {
            "source": "s", "cluster_id": "c", "topic": "client-quotas", "partition": 0, "offset": at, "landed_at": NOON,
            "broker_id": 1, "time": NOON + timedelta(seconds=at), "quota_type": "produce", "user": "",
            "client_id": client_id, "observed_rate": rate, "landed_date": NOON.date(),
        } | fields
        for at in range(begin, end, 10)
    ]  # fmt: skip
    write_deltalake(QUOTA_SAMPLES.create(str(lake)), pa.Table.from_pylist(rows, QUOTA_SAMPLES.stored), mode="append")
