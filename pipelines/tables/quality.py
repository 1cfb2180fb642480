"""Table `quality_results`: results of the data quality checks, and the versions that they covered."""

from __future__ import annotations

import pyarrow as pa

from kafka_telemetry_lake.pipelines.tables.table import Table
from kafka_telemetry_lake.udfs.rows import TEXT_LIST, TIMESTAMP, column

QUALITY_RESULTS = Table(
    "quality_results",
    "Result of one rule of `telemetry-lake quality`. landed_date is the UTC date of checked_at.",
    pa.schema(
        [
            column("cluster_id", pa.string(), "NULL: a rule checks the pushes of all clusters"),
            column("checked_at", TIMESTAMP, "when the check began; the same for all its rules"),
            column("table_name", pa.string(), "table that the rule is about"),
            column("rule", pa.string(), "the rule's name"),
            column("says", pa.string(), "the rule in words"),
            column("status", pa.string(), "passed, failed; no_table: the lake doesn't have the table yet"),
            column("rows_checked", pa.int64(), "rows of the table that are new since the previous check"),
            column("broken", pa.int64(), "rows that break the rule"),
            column("examples", TEXT_LIST, "a few rows that break the rule"),
            column("from_version", pa.int64(), "version of the table at the last check before; NULL: all rows checked"),
            column("to_version", pa.int64(), "version of the table that was checked"),
            column("open_from", pa.date32(), "first landed date that the next check includes again"),
            column("seconds", pa.float64(), "how long the rule took"),
        ]
    ),
    ("checked_at",),
    dated_by="checked_at",
)
