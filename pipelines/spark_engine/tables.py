"""The tables that the Spark engine writes, by name in a catalog."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type

from kafka_telemetry_lake.pipelines.lake.errors import CatalogError, OtherTableError
from kafka_telemetry_lake.pipelines.runtime.causes import cause
from kafka_telemetry_lake.pipelines.sql_text import quoted
from kafka_telemetry_lake.pipelines.tables.names import Names
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.pipelines.tables.table import (
    DELETION_VECTORS,
    FORMAT_PROPERTY,
    LANDED_DATE,
    Table,
    lacking_columns,
)

COMMITS = 100  # of a table, in which the last one of a batch is looked for; others are those of upkeep


class TablesByName:
    """Tables of a schema in a catalog of Spark. Nothing here knows, or lists, the folders of their files."""

    def __init__(self, spark: SparkSession, names: Names) -> None:
        self._spark, self._names = spark, names
        self.lake = str(names)

    def has_pushes(self) -> bool:
        """Whether the lake has any landing records."""
        return not self._spark.table(self._names.of(PUSHES.name)).isEmpty()

    def append(self, table: Table, rows: DataFrame, app_id: str, batch_id: int) -> None:
        """Append rows in one commit, unless the table has this commit: the batch of the application.

        The table's history has the batch, since SQL can't ask for Delta's ``txn``.
        """
        writer = rows.writeTo(self._names.of(table.name))
        writer = writer.option("txnAppId", app_id).option("txnVersion", str(batch_id))
        writer.option("userMetadata", json.dumps({"app": app_id, "batch": batch_id})).append()

    def insert(self, table: Table, rows: pa.Table) -> None:
        """Append rows of this process."""
        self.frame(table, rows).writeTo(self._names.of(table.name)).append()

    def replace(self, table: Table, rows: DataFrame) -> None:
        """Replace all rows in one commit."""
        rows.writeTo(self._names.of(table.name)).overwrite(F.lit(True))

    def frame(self, table: Table, rows: pa.Table) -> DataFrame:
        """Rows of this process, with the columns of the table's schema, as Spark writes them."""
        return self._spark.createDataFrame(table.with_partition(rows))

    def rows(self, table: Table, condition: str) -> pa.Table:
        """The rows that satisfy a condition of SQL, in this process."""
        rows = self._spark.table(self._names.of(table.name)).where(condition).select(*table.schema.names)
        return rows.toArrow().cast(table.schema)

    def create(self, tables: Sequence[Table]) -> None:
        """Create the schema and the tables that are missing, and columns that an earlier release didn't have.

        All tables that exist are looked at before one is created or changed.

        Raises:
            CatalogError: there is no such catalog, or the schema can't be created.
            OtherTableError: another program's tables have these names.
            OtherFormatError: a table has another format.
        """
        self._create_schema()
        existing = [table for table in tables if self._spark.catalog.tableExists(self._names.of(table.name))]
        for table in existing:
            self._check_kind(table)
        if existing and PUSHES not in existing:
            raise OtherTableError(
                f"{self.lake}.{existing[0].name} exists, but {PUSHES.name} doesn't: name another schema with --schema"
            )
        added = [(table, fields) for table in existing if (fields := self._lacking_columns(table))]
        try:
            for table, fields in added:
                self._spark.sql(f"ALTER TABLE {self._names.of(table.name)} ADD COLUMNS ({_columns(fields)})")
            for table in tables:
                if table not in existing:
                    self._spark.sql(_create(self._names.of(table.name), table))
        except (Py4JError, PySparkException) as error:  # a catalog's own errors are not Spark's
            raise CatalogError(f"the tables of {self.lake} can't be created or changed: {cause(str(error))}") from error

    def table_id(self) -> str:
        """The id of table `pushes`; another one when it was dropped and created again."""
        return str(self._detail(PUSHES.name)["id"])

    def last_batch(self, app_id: str) -> int:
        """The last batch of an application that table `pushes` has; -1: none that its history knows."""
        entries = self._spark.sql(f"DESCRIBE HISTORY {self._names.of(PUSHES.name)} LIMIT {COMMITS}")
        notes = [_note(row["userMetadata"]) for row in entries.select("userMetadata").collect()]
        return max((int(note["batch"]) for note in notes if note.get("app") == app_id), default=-1)

    def _create_schema(self) -> None:
        try:
            if not self._spark.catalog.databaseExists(self._names.quoted):
                self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {self._names.quoted}")
        except (Py4JError, PySparkException) as error:  # a catalog's own errors are not Spark's
            raise CatalogError(
                f"schema {self.lake} doesn't exist and can't be created: {cause(str(error))}; name a catalog of this "
                "Spark session with --catalog, or let its owner create the schema"
            ) from error

    def _check_kind(self, table: Table) -> None:
        name = f"{self.lake}.{table.name}"
        if self._spark.catalog.getTable(self._names.of(table.name)).tableType == "VIEW":
            raise OtherTableError(f"{name} is a view, not a table: drop it, or name another schema with --schema")
        detail = self._detail(table.name)
        if (kind := str(detail["format"]).lower()) != "delta":
            raise OtherTableError(f"{name} is a table of {kind}, not of Delta: name another schema with --schema")
        partition = [LANDED_DATE.name] if table.by_day else []
        if detail["partitionColumns"] != partition:
            raise OtherTableError(
                f"{name} is partitioned by {', '.join(detail['partitionColumns']) or 'nothing'}, not by "
                f"{', '.join(partition) or 'nothing'}: name another schema with --schema"
            )

    def _lacking_columns(self, table: Table) -> list[pa.Field]:
        found = self._detail(table.name)["properties"].get(FORMAT_PROPERTY)
        stored = {
            field.name: field.dataType.simpleString() for field in self._spark.table(self._names.of(table.name)).schema
        }
        wanted = {field.name: _type(field) for field in table.stored}
        if differ := [f"{name} ({kind})" for name, kind in stored.items() if wanted.get(name) != kind]:
            raise OtherTableError(
                f"{self.lake}.{table.name} exists with other columns: {', '.join(differ[:3])}"
                f"{' and more' if len(differ) > 3 else ''}: name another schema with --schema"
            )
        return lacking_columns(f"{self.lake}.{table.name}", found, stored, table.stored)

    def _detail(self, table: str) -> Mapping[str, Any]:
        (row,) = self._spark.sql(f"DESCRIBE DETAIL {self._names.of(table)}").collect()
        return row.asDict()


def _create(name: str, table: Table) -> str:
    # Whether a table has deletion vectors is up to its catalog: Unity Catalog demands them of managed tables.
    properties = {key: value for key, value in table.configuration().items() if key != DELETION_VECTORS}
    partition = f" PARTITIONED BY ({LANDED_DATE.name})" if table.by_day else ""
    listed = ", ".join(f"{quoted(key)} = {quoted(value)}" for key, value in properties.items())
    return (
        f"CREATE TABLE {name} ({_columns(table.stored)}) USING DELTA{partition} COMMENT {quoted(table.meaning)} "
        f"TBLPROPERTIES ({listed})"
    )


def _columns(fields: Iterable[pa.Field]) -> str:
    return ", ".join(f"`{field.name}` {_type(field)}{_comment(field)}" for field in fields)


def _type(field: pa.Field) -> str:
    """A column's type in Spark."""
    return from_arrow_type(field.type).simpleString()


def _comment(field: pa.Field) -> str:
    meaning = (field.metadata or {}).get(b"comment")
    return f" COMMENT {quoted(meaning.decode())}" if meaning else ""


def _note(text: str | None) -> dict[str, Any]:
    """What `append` has noted of a commit; empty: another's commit."""
    try:
        note = json.loads(text or "")
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}
