"""Table `quality_results`: what each check of the lake's quality found, and how far it has looked."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
from deltalake import write_deltalake

from pipelines.tables import LANDED_DATE, Table
from udfs.rows import TEXT_LIST, TIMESTAMP, column

QUALITY_RESULTS = Table(
    "quality_results",
    "What one rule of `telemetry-lake quality` found. landed_date is the UTC date of checked_at.",
    pa.schema(
        [
            column("cluster_id", pa.string(), "NULL: a rule looks at the pushes of all clusters"),
            column("checked_at", TIMESTAMP, "when the check began; the same for all its rules"),
            column("table_name", pa.string(), "table that the rule is about"),
            column("rule", pa.string(), "the rule's name"),
            column("says", pa.string(), "what the rule says, in words"),
            column("status", pa.string(), "passed, failed; no_table: the lake doesn't have the table yet"),
            column("rows_checked", pa.int64(), "rows of the table that are new since the check before"),
            column("broken", pa.int64(), "rows that break the rule"),
            column("examples", TEXT_LIST, "a few of them"),
            column("from_version", pa.int64(), "version of the table that was checked before; NULL: all was looked at"),
            column("to_version", pa.int64(), "version of the table that was checked"),
            column("open_from", pa.date32(), "first landed date that the next check looks at again"),
            column("seconds", pa.float64(), "how long the rule took"),
        ]
    ),
    ("checked_at",),
)


def append_results(lake: str, rows: pa.Table, checked_at: datetime) -> None:
    """Add the rows (columns of the table's schema) of one check in one commit."""
    dates = pa.repeat(pa.scalar(checked_at.date(), LANDED_DATE.type), rows.num_rows)
    write_deltalake(
        QUALITY_RESULTS.create(lake),
        rows.append_column(LANDED_DATE, dates),
        mode="append",
        partition_by=[LANDED_DATE.name],
    )
