"""Tables of consumer groups."""

from __future__ import annotations

import pyarrow as pa

from kafka_telemetry_lake.pipelines.tables.table import Table, history_table
from kafka_telemetry_lake.udfs.rows import TEXT_LIST, TIMESTAMP, column

GROUP_STATES = history_table(
    "group_states",
    "One version of a consumer group's state, for as long as polls of the cluster returned it.",
    keys=(column("group_id", pa.string(), "group.id"),),
    values=(
        column("group_type", pa.string(), "classic, or consumer (KIP-848)"),
        column("state", pa.string(), "Stable, Empty, PreparingRebalance, Assigning, ... as Admin calls them"),
        column("protocol", pa.string(), "assignor that distributes the partitions; empty: no members"),
        column("coordinator_id", pa.int32(), "broker that coordinates the group"),
        column("coordinator", pa.string(), "its host:port"),
        column(
            "problem",
            pa.string(),
            "why nothing more is known of the group: Kafka's exception, such as GroupAuthorizationException (it may be "
            "listed but not described); NULL: it was described",
        ),
    ),
)
GROUP_MEMBERS = history_table(
    "group_members",
    "One version of a consumer group's member and its assignment, for as long as polls of the cluster returned it.",
    keys=(
        column("group_id", pa.string(), "group.id"),
        column("member_id", pa.string(), "member id, assigned by the coordinator or (KIP-848) by the member"),
    ),
    values=(
        column("client_id", pa.string(), "client.id of the member"),
        column("host", pa.string(), "address of the member, treated as `personal_data` says"),
        column("group_instance_id", pa.string(), "group.instance.id of a static member; NULL: dynamic"),
        column("assignment", TEXT_LIST, "assigned partitions as topic-partition, sorted"),
    ),
)
GROUP_OFFSETS = Table(
    "group_offsets",
    "A consumer group's committed offset of a partition, as of the last poll that could read it.",
    pa.schema(
        [
            column("cluster_id", pa.string(), "Kafka cluster of the group"),
            column("group_id", pa.string(), "group.id"),
            column("topic", pa.string(), "topic that is read"),
            column("partition", pa.int32(), "its partition"),
            column("committed_offset", pa.int64(), "committed offset: that of the next record to read"),
            column("seen_at", TIMESTAMP, "first poll that returned this offset"),
            column("rewound_from", pa.int64(), "greater offset of the previous poll; NULL: it increased, or is new"),
            column("step", pa.int64(), "number of the first poll that returned this offset"),
        ]
    ),
    by_day=False,
)
GROUP_LAG_SAMPLES = Table(
    "group_lag_samples",
    "How far a consumer group was in a partition at one poll. landed_date is the UTC date of sampled_at.",
    pa.schema(
        [
            column("cluster_id", pa.string(), "Kafka cluster of the group"),
            column("group_id", pa.string(), "group.id"),
            column("topic", pa.string(), "topic that is read; NULL: the group's offsets could not be read"),
            column("partition", pa.int32(), "its partition"),
            column("sampled_at", TIMESTAMP, "when the brokers had told the ends of all logs, by the clock of sync"),
            column("committed_offset", pa.int64(), "committed offset: that of the next record to read"),
            column(
                "log_start_offset", pa.int64(), "offset of the first record that the partition still has; NULL: no log"
            ),
            column(
                "end_offset", pa.int64(), "offset of the next record to be written; NULL: no log, or no right to see it"
            ),
            column(
                "retention_ms", pa.int64(), "retention.ms of the topic, -1: unlimited; NULL: compacted, or not readable"
            ),
            column(
                "stable_offset",
                pa.int64(),
                "last stable offset: up to it no transaction is open, and read_committed consumers read",
            ),
            column(
                "next_record_offset",
                pa.int64(),
                "offset of the first record at or after the committed offset (or the start of the log) that a "
                "read_committed consumer gets; stable_offset or more: there was none before it; NULL: nothing is left "
                "up to stable_offset, or nobody looked",
            ),
            column("topic_id", pa.string(), "id of the topic (KIP-516): one that is made again has another"),
            column(
                "problem",
                pa.string(),
                "why the group's offsets, or the partition's, are unknown: Kafka's exception, or no leader",
            ),
        ]
    ),
    ("cluster_id", "topic", "sampled_at"),
    dated_by="sampled_at",
)
