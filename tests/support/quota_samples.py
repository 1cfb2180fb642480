"""Samples of brokers' quota sensors in a lake, as the receiver lands them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from kafka_telemetry_lake.pipelines.tables.operator import QUOTA_SAMPLES

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


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
