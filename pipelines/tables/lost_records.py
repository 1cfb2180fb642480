"""Table `lost_records`: landing records that the job could not read, because they were gone."""

from __future__ import annotations

import pyarrow as pa

from kafka_telemetry_lake.pipelines.tables.table import CLUSTER, Table
from kafka_telemetry_lake.udfs.rows import TIMESTAMP, column

EXPIRED, SKIPPED = "expired", "skipped"

LOST_RECORDS = Table(
    "lost_records",
    "Offsets of a landing topic that were gone before the job read them, or that it was told to skip. landed_date is "
    "the UTC date of noticed_at.",
    pa.schema(
        [
            CLUSTER,
            column("source", pa.string(), "name of the source"),
            column("topic", pa.string(), "landing topic"),
            column("partition", pa.int32(), "partition of the topic"),
            column("first_offset", pa.int64(), "first offset that was not read"),
            column("last_offset", pa.int64(), "last offset that was not read"),
            column("records", pa.int64(), "number of these offsets; of a compacted topic, fewer were records"),
            column(
                "reason",
                pa.string(),
                f"{EXPIRED}: deleted before they were read; {SKIPPED}: a new checkpoint began after them, as "
                "starting_offsets said",
            ),
            column("noticed_at", TIMESTAMP, "when the job noticed it"),
        ]
    ),
    ("noticed_at",),
    dated_by="noticed_at",
)
