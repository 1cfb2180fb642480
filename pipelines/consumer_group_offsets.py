"""Committed offsets as last seen (table `group_offsets`), and event offset_rewound where they went back.

A look and its events are two commits. The rows of a look carry its number and what went back, so that the events are
written exactly once: those of the last look that `client_events` lacks are made up for before the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from pipelines.consumer_groups import Committed
from pipelines.tables import CLIENT_EVENTS, LANDED_DATE, open_or_create
from udfs.rows import TIMESTAMP, column

APP_ID = "kafka-telemetry-lake:group-offsets"
SOURCE = "sync"

Row = dict[str, Any]


@dataclass(frozen=True)
class SnapshotTable:
    """A Delta table that is written anew as a whole."""

    name: str
    meaning: str
    schema: pa.Schema

    def uri(self, lake: str) -> str:
        return f"{lake.rstrip('/')}/{self.name}"

    def create(self, lake: str) -> DeltaTable:
        return open_or_create(self.uri(lake), schema=self.schema, name=self.name, description=self.meaning)


GROUP_OFFSETS = SnapshotTable(
    "group_offsets",
    "A consumer group's committed offset of a partition, as the last look found it.",
    pa.schema(
        [
            column("cluster_id", pa.string(), "Kafka cluster of the group"),
            column("group_id", pa.string(), "group.id"),
            column("topic", pa.string(), "topic that is read"),
            column("partition", pa.int32(), "its partition"),
            column("committed_offset", pa.int64(), "committed offset: of the next record to read"),
            column("seen_at", TIMESTAMP, "first look that found this offset"),
            column("rewound_from", pa.int64(), "greater offset of the look before; NULL: it went ahead, or is new"),
            column("step", pa.int64(), "number of the look that first found this offset"),
        ]
    ),
)


def record_offsets(lake: str, cluster_id: str, committed: Iterable[Committed], now: datetime) -> int:
    """Bring `group_offsets` up to a look at a cluster at `now`; gives how many offsets have gone back.

    Raises:
        deltalake.exceptions.CommitFailedError: another process recorded a look meanwhile.
    """
    table = GROUP_OFFSETS.create(lake)
    done = table.transaction_version(APP_ID) or 0
    held: list[Row] = table.to_pyarrow_table().cast(GROUP_OFFSETS.schema).to_pylist()
    _tell(lake, [row for row in held if row["step"] == done], done)
    others = [row for row in held if row["cluster_id"] != cluster_id]
    before = {_key(row): row for row in held if row["cluster_id"] == cluster_id}
    rows = _look(before, cluster_id, committed, now, done + 1)
    if len(rows) == len(before) and all(row["step"] <= done for row in rows):
        return 0
    write_deltalake(
        table,
        pa.Table.from_pylist([*others, *rows], GROUP_OFFSETS.schema),
        mode="overwrite",
        commit_properties=CommitProperties(app_transactions=[Transaction(APP_ID, done + 1)]),
    )
    return _tell(lake, [row for row in rows if row["step"] == done + 1], done + 1)


def _key(row: Row) -> tuple[str, str, int]:
    return row["group_id"], row["topic"], row["partition"]


def _look(
    before: dict[tuple[str, str, int], Row], cluster_id: str, committed: Iterable[Committed], now: datetime, step: int
) -> list[Row]:
    rows = []
    for each in sorted(committed, key=lambda each: (each.group_id, each.topic, each.partition)):
        last = before.get((each.group_id, each.topic, each.partition))
        if last is not None and last["committed_offset"] == each.offset:
            rows.append(last)
            continue
        back = last is not None and last["committed_offset"] > each.offset
        row = {
            "cluster_id": cluster_id,
            "group_id": each.group_id,
            "topic": each.topic,
            "partition": each.partition,
            "committed_offset": each.offset,
            "seen_at": now,
            "rewound_from": last["committed_offset"] if last is not None and back else None,
            "step": step,
        }
        rows.append(row)
    return rows


def _tell(lake: str, rows: Iterable[Row], step: int) -> int:
    """The events of a look, once."""
    rewound = [row for row in rows if row["rewound_from"] is not None]
    if not rewound:
        return 0
    events = CLIENT_EVENTS.create(lake)
    told = events.transaction_version(APP_ID)
    if told is not None and told >= step:
        return 0
    found = pa.Table.from_pylist([_event(row) for row in rewound], CLIENT_EVENTS.schema)
    dates = pc.cast(found["landed_at"], LANDED_DATE.type)
    properties = CommitProperties(app_transactions=[Transaction(APP_ID, step)])
    stored = found.append_column(LANDED_DATE, dates).cast(CLIENT_EVENTS.stored)
    write_deltalake(events, stored, mode="append", commit_properties=properties)
    return len(rewound)


def _event(row: Row) -> Row:
    detail = {
        "group_id": row["group_id"],
        "topic": row["topic"],
        "partition": str(row["partition"]),
        "from": str(row["rewound_from"]),
        "to": str(row["committed_offset"]),
    }
    return {
        "source": SOURCE,
        "cluster_id": row["cluster_id"],
        "landed_at": row["seen_at"],
        "at": row["seen_at"],
        "event": "offset_rewound",
        "detail": list(detail.items()),
    }
