"""Records how far consumer groups are behind the ends of the logs (table `group_lag_samples`, view `group_lag`)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kafka_telemetry_lake.pipelines.groups.members import ConsumerGroups
from kafka_telemetry_lake.pipelines.lake.transactions import append_once
from kafka_telemetry_lake.pipelines.tables.groups import GROUP_LAG_SAMPLES

APP_ID = "kafka-telemetry-lake:group-lag"


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
            "topic": each.topic, "partition": each.partition, "committed_offset": each.offset,
        }  # fmt: skip
        if log is not None:
            row |= {
                "log_start_offset": log.start, "end_offset": log.end, "stable_offset": log.stable,
                "retention_ms": log.retention_ms, "problem": log.problem, "topic_id": log.topic_id or None,
            }  # fmt: skip
        if (place := groups.place(each)) is not None:
            row["next_record_offset"] = groups.next_records.get(place)
        rows.append(row)
    rows += [_row(groups, group_id) | {"problem": problem} for group_id, problem in groups.without_offsets.items()]
    if rows:
        table = GROUP_LAG_SAMPLES.create(lake)
        polled = int(groups.read_at.timestamp() * 1000)
        samples = pa.Table.from_pylist(rows, GROUP_LAG_SAMPLES.schema)
        append_once(GROUP_LAG_SAMPLES, table, samples, f"{APP_ID}:{groups.cluster_id}", polled)


def _row(groups: ConsumerGroups, group_id: str) -> dict[str, Any]:
    return {"cluster_id": groups.cluster_id, "group_id": group_id, "sampled_at": groups.read_at}
