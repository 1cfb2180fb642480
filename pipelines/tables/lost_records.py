"""Table `lost_records`: landing records, or rows of the lake's tables, that were gone before they were read."""

from __future__ import annotations

import pyarrow as pa

from kafka_telemetry_lake.pipelines.tables.table import CLUSTER, Table
from kafka_telemetry_lake.udfs.rows import TIMESTAMP, column

EXPIRED, SKIPPED, DROPPED = "expired", "skipped", "dropped"

LOST_RECORDS = Table(
    "lost_records",
    "Offsets of a landing topic that were gone before the job read them, or that it was told to skip; and days of a "
    "table that retention dropped before what follows the table had read them. landed_date is the UTC date of "
    "noticed_at.",
    pa.schema(
        [
            CLUSTER,
            column("source", pa.string(), "name of the source; of dropped days, what follows the table"),
            column("topic", pa.string(), "landing topic; of dropped days, the table"),
            column("partition", pa.int32(), "partition of the topic; NULL: days of a table"),
            column("first_offset", pa.int64(), "first offset that was not read"),
            column("last_offset", pa.int64(), "last offset that was not read"),
            column(
                "records",
                pa.int64(),
                "number of these offsets, at most so many records: markers of transactions, and what was aborted or "
                "compacted, take up offsets too; NULL: not known",
            ),
            column(
                "reason",
                pa.string(),
                f"{EXPIRED}: deleted before they were read; {SKIPPED}: a new checkpoint began after them, as "
                f"starting_offsets said; {DROPPED}: retention deleted landed dates of a table before they were read",
            ),
            column("noticed_at", TIMESTAMP, "when the job noticed it"),
            column(
                "first_date",
                pa.date32(),
                "first landed date that was dropped; its earlier rows may have been read; NULL: not known",
            ),
            column("last_date", pa.date32(), "last landed date that was dropped"),
        ]
    ),
    ("noticed_at",),
    dated_by="noticed_at",
)
