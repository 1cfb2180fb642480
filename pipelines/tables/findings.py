"""Table `finding_changes`: when findings opened, changed and were resolved, and what people said about them."""

from __future__ import annotations

import pyarrow as pa

from kafka_telemetry_lake.pipelines.tables.table import Table
from kafka_telemetry_lake.udfs.rows import TIMESTAMP, column

FINDING_CHANGES = Table(
    "finding_changes",
    "One change of a finding's state; rows are only added. landed_date is the UTC date of recorded_at.",
    pa.schema(
        [
            column("cluster_id", pa.string(), "Kafka cluster of the subject"),
            column("finding_id", pa.string(), "32 hex digits, a digest of finding, cluster_id, scope and subject"),
            column("finding", pa.string(), "id of the rule"),
            column("severity", pa.string(), "error, warning or info, after the change"),
            column("scope", pa.string(), "what the subject is: client_id, principal, ..."),
            column("subject", pa.string(), "name of what has the finding"),
            column("client_id", pa.string(), "client.id; NULL if the subject isn't one"),
            column("principal", pa.string(), "principal that has the finding; of a client id the latest of the hour"),
            column("application", pa.string(), "application of the client id, by its alias"),
            column("owner", pa.string(), "owner of the client id, by its alias"),
            column("change", pa.string(), "opened, changed (severity), resolved, acknowledged, muted, unmuted"),
            column("at", TIMESTAMP, "when the state changed, by landing times; of a person's change: recorded_at"),
            column("opened_at", TIMESTAMP, "start of the first hour with the finding"),
            column("recorded_at", TIMESTAMP, "when the row was written"),
            column("window_start", TIMESTAMP, "latest hour with the finding, which measure to advice are about"),
            column("measure", pa.float64(), "what the rule compares"),
            column("instances", pa.int64(), "client instances of the subject"),
            column("instances_affected", pa.int64(), "those of them that have the finding"),
            column("worst_instance", pa.string(), "client instance with the worst measure"),
            column("evidence", pa.string(), "what was measured; of resolved: why it is resolved"),
            column("advice", pa.string(), "what helps"),
            column("until", TIMESTAMP, "muted: when the mute ends"),
            column("by", pa.string(), "acknowledged, muted, unmuted: who did it"),
            column("why", pa.string(), "acknowledged, muted, unmuted: the reason given"),
        ]
    ),
    ("recorded_at", "at", "finding_id"),
    dated_by="recorded_at",
)
