"""Which landed days of a large table a query reads, so that the files of other days aren't even listed.

DuckDB looks for each file that it is given, before it leaves out those of other days: more than a minute for 300,000.
So the query is first planned over a stand-in of the table, which has a small table for each day, and the day as a
constant. The optimizer drops days that a condition on `landed_date` excludes, also below views and with `current_date`,
and the plan names those that are left. It knows nothing of the other columns: they are computed by a function whose
results it can't foresee. The plan is never run.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.stored_files import files_table
from kafka_telemetry_lake.pipelines.query.duckdb_engine import NotAQueryError, check_reads
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE

MANY_FILES = 2_000
STAND_IN = "_stand_in"


def days_of(table: DeltaTable) -> frozenset[str] | None:
    """The landed days that a large table has; None: it has few files, or isn't partitioned by them."""
    if table.metadata().partition_columns != [LANDED_DATE.name]:
        return None
    files = files_table(table)
    return None if files.num_rows < MANY_FILES else frozenset(pc.unique(files["day"]).to_pylist())


def stand_in(connection: duckdb.DuckDBPyConnection, name: str, schema: pa.Schema, days: Collection[str]) -> None:
    """Create a view with the table's columns, over a table for each day."""
    empty = connection.from_arrow(schema.empty_table())
    columns = ", ".join(
        f'"{column}"' if column == LANDED_DATE.name else f'TRY_CAST(md5(number) AS {kind}) AS "{column}"'
        for column, kind in zip(empty.columns, empty.types, strict=True)
    )
    selects = []
    for day in sorted(days):
        own = f'"{STAND_IN}/{name}/{day}"'
        connection.execute(f"CREATE TEMP TABLE {own} AS SELECT CAST(range AS VARCHAR) AS number FROM range(2)")
        selects.append(f"SELECT number, DATE '{day}' AS {LANDED_DATE.name} FROM {own}")
    connection.execute(f'CREATE OR REPLACE TEMP VIEW "{name}" AS SELECT {columns} FROM ({" UNION ALL ".join(selects)})')


def needed_days(
    connection: duckdb.DuckDBPyConnection, sql: str, days: Mapping[str, Collection[str]]
) -> Mapping[str, Collection[str]]:
    """The days of each table that a query reads; all of them if it can't be planned, or would read none.

    Args:
        days: all days of each table that has a stand-in.
    """
    try:
        check_reads(connection, sql)
        ((_, plan),) = connection.execute(f"EXPLAIN (FORMAT json) {sql}").fetchall()
    except (duckdb.Error, NotAQueryError):  # the query itself says what is wrong
        return days
    left = set(re.findall(rf"{STAND_IN}/(\w+)/([\d-]+)", plan))
    return {name: {day for day in own if (name, day) in left} or own for name, own in days.items()}
