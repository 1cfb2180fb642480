"""Records the committed offsets of each poll, and what follows: lag, and event offset_rewound when one moved backwards.

Tables `group_lag_samples` and `group_offsets`. A poll's offsets and its events are two commits. The rows of a poll
contain its number and the rewound offsets, so events are written exactly once: before each poll, events of the last one
that `client_events` lacks are added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from kafka_telemetry_lake.pipelines.groups.members import Committed, ConsumerGroups
from kafka_telemetry_lake.pipelines.lake.transactions import append_once, transaction
from kafka_telemetry_lake.pipelines.tables.groups import GROUP_LAG_SAMPLES, GROUP_OFFSETS
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS

LAG_APP_ID = "kafka-telemetry-lake:group-lag"
APP_ID = "kafka-telemetry-lake:group-offsets"
SOURCE = "sync"

Row = dict[str, Any]


def record_lag(lake: str, groups: ConsumerGroups) -> None:
    """Append a row for each committed offset of a poll, and for each group whose offsets can't be read, in one commit.

    Without groups nothing is written.

    Raises:
        deltalake.exceptions.CommitFailedError: another process recorded a poll of the cluster at the same time.
    """
    rows = []
    for each in groups.committed:
        log = groups.logs.get((each.topic, each.partition))
        row = _row(groups, each.group_id) | {
            "topic": each.topic,
            "partition": each.partition,
            "committed_offset": each.offset,
        }
        if log is not None:
            row |= {
                "log_start_offset": log.start,
                "end_offset": log.end,
                "stable_offset": log.stable,
                "retention_ms": log.retention_ms,
                "problem": log.problem,
                "topic_id": log.topic_id or None,
            }
        if (place := groups.place(each)) is not None:
            row["next_record_offset"] = groups.next_records.get(place)
        rows.append(row)
    rows += [_row(groups, group_id) | {"problem": problem} for group_id, problem in groups.without_offsets.items()]
    if rows:
        table = GROUP_LAG_SAMPLES.create(lake)
        polled = int(groups.read_at.timestamp() * 1000)
        samples = pa.Table.from_pylist(rows, GROUP_LAG_SAMPLES.schema)
        append_once(GROUP_LAG_SAMPLES, table, samples, f"{LAG_APP_ID}:{groups.cluster_id}", polled)


def _row(groups: ConsumerGroups, group_id: str) -> dict[str, Any]:
    return {"cluster_id": groups.cluster_id, "group_id": group_id, "sampled_at": groups.read_at}


def record_offsets(
    lake: str,
    cluster_id: str,
    committed: Iterable[Committed],
    now: datetime,
    is_unknown: Callable[[str], bool] = lambda _: False,
) -> int:
    """Update `group_offsets` with a poll of a cluster at `now`. Returns the number of rewound offsets.

    Args:
        is_unknown: whether the poll says nothing about the offsets of a group; those of the poll before stay.

    Raises:
        deltalake.exceptions.CommitFailedError: another process recorded a poll at the same time.
    """
    table = GROUP_OFFSETS.create(lake)
    done = table.transaction_version(APP_ID) or 0
    stored: list[Row] = table.to_pyarrow_table(columns=GROUP_OFFSETS.schema.names).to_pylist()
    _add_events(lake, [row for row in stored if row["step"] == done], done)
    others = [row for row in stored if row["cluster_id"] != cluster_id]
    before = {_key(row): row for row in stored if row["cluster_id"] == cluster_id}
    rows = _updated_rows(before, cluster_id, committed, now, done + 1)
    known = {row["group_id"] for row in rows}
    rows += [row for row in before.values() if row["group_id"] not in known and is_unknown(row["group_id"])]
    if len(rows) == len(before) and all(row["step"] <= done for row in rows):
        return 0
    write_deltalake(
        table,
        GROUP_OFFSETS.with_partition(pa.Table.from_pylist([*others, *rows], GROUP_OFFSETS.schema)),
        mode="overwrite",
        commit_properties=transaction({APP_ID: done + 1}),
    )
    return _add_events(lake, [row for row in rows if row["step"] == done + 1], done + 1)


def _key(row: Row) -> tuple[str, str, int]:
    return row["group_id"], row["topic"], row["partition"]


def _updated_rows(
    before: dict[tuple[str, str, int], Row], cluster_id: str, committed: Iterable[Committed], now: datetime, step: int
) -> list[Row]:
    rows = []
    for each in sorted(committed, key=lambda each: (each.group_id, each.topic, each.partition)):
        last = before.get((each.group_id, each.topic, each.partition))
        if last is not None and last["committed_offset"] == each.offset:
            rows.append(last)
            continue
        rewound = last is not None and last["committed_offset"] > each.offset
        row = {
            "cluster_id": cluster_id,
            "group_id": each.group_id,
            "topic": each.topic,
            "partition": each.partition,
            "committed_offset": each.offset,
            "seen_at": now,
            "rewound_from": last["committed_offset"] if last is not None and rewound else None,
            "step": step,
        }
        rows.append(row)
    return rows


def _add_events(lake: str, rows: Iterable[Row], step: int) -> int:
    """Add the events of a poll, unless they were added before. Returns their number."""
    rewound = [row for row in rows if row["rewound_from"] is not None]
    if not rewound:
        return 0
    events = pa.Table.from_pylist([_event(row) for row in rewound], CLIENT_EVENTS.schema)
    return len(rewound) if append_once(CLIENT_EVENTS, CLIENT_EVENTS.create(lake), events, APP_ID, step) else 0


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
