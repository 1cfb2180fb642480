"""Table `pipeline_metrics`: one row for each micro-batch of each stream."""

from __future__ import annotations

import pyarrow as pa

from kafka_telemetry_lake.pipelines.tables.table import Table
from kafka_telemetry_lake.udfs.rows import TIMESTAMP, column

PIPELINE_METRICS = Table(
    "pipeline_metrics",
    "One micro-batch of one stream of the job.",
    pa.schema(
        [
            column("cluster_id", pa.string(), "the job's setting; NULL when it has none"),
            column("stream", pa.string(), "pushes, points"),
            column("run_id", pa.string(), "Spark's id of the stream since its start"),
            column("batch_id", pa.int64(), "number of the batch in the stream's checkpoint"),
            column("started_at", TIMESTAMP, "when the batch began"),
            column("ended_at", TIMESTAMP, "when it was done; the partition's date is its date"),
            column("seconds", pa.float64(), "how long it took"),
            column("records", pa.int64(), "records read: landing records, pushes or points"),
            column("records_per_s", pa.float64(), "records / seconds; NULL for a batch of less than 0.1 s"),
            column("waiting", pa.int64(), "available pushes or points that were not read yet: the lag"),
            column("landed_at", TIMESTAMP, "latest landing time of the pushes processed; NULL for other streams"),
            column("freshness_s", pa.float64(), "ended_at - landed_at: how old the newest rows were when visible"),
            column("points", pa.int64(), "data points written"),
            column("quarantined", pa.int64(), "rows of quarantine written"),
            column("statuses", pa.map_(pa.string(), pa.int64()), "data points by delta_status"),
            column("state_bytes", pa.int64(), "size of the operator's state files"),
            column("broken", pa.map_(pa.string(), pa.int64()), "rows that break a rule of docs/quality.md, by rule"),
            column("set_aside", pa.int64(), "pushes that could not be processed: quarantine, PROCESSING_FAILED"),
        ]
    ),
    ("ended_at",),
    dated_by="ended_at",
)
