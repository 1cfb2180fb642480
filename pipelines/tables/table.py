"""Classes for the definition of a Delta table: its columns, partition and settings, and how it is created."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from kafka_telemetry_lake.udfs.errors import OTHER_LAKE, OtherFormatError, check_format
from kafka_telemetry_lake.udfs.rows import TIMESTAMP

LANDED_DATE = pa.field("landed_date", pa.date32(), metadata={"comment": "UTC date of landed_at; the partition"})

Row = Mapping[str, Any]
Opened = Mapping[str, DeltaTable]  # tables of a lake that are open already, by name
NOT_OPENED: Opened = MappingProxyType({})
FORMAT, FORMAT_PROPERTY = 2, "kafka_telemetry_lake.format"
DELETION_VECTORS = "delta.enableDeletionVectors"
# A log has a commit every few seconds, and whoever opens the table lists it. Nothing needs its old entries.
LOG_SETTINGS = {
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
    "delta.checkpointInterval": "500",
}


@dataclass(frozen=True)
class Table:
    """A Delta table in the lake's folder.

    Attributes:
        meaning: what a row is.
        schema: columns without the partition.
        statistics: columns with bounds in each file's commit, since queries and retention filter by them; empty:
            Delta's default.
        by_day: the table is partitioned by landed date, so that retention can drop whole days.
        dated_by: column with the time whose UTC date is the landed date.
        zstd_level: of the files.
    """

    name: str
    meaning: str
    schema: pa.Schema
    statistics: tuple[str, ...] = ()
    by_day: bool = True
    dated_by: str = "landed_at"
    zstd_level: int = 1

    @property
    def stored(self) -> pa.Schema:
        """The columns as stored, including the partition."""
        return self.schema.append(LANDED_DATE) if self.by_day else self.schema

    def with_partition(self, rows: pa.Table) -> pa.Table:
        """Convert rows with the columns of `schema` to the columns as stored."""
        if self.by_day:
            rows = rows.append_column(LANDED_DATE, pc.cast(rows[self.dated_by], LANDED_DATE.type))
        return rows.cast(self.stored)

    def uri(self, lake: str) -> str:
        return table_uri(lake, self.name)

    def create(self, lake: str) -> DeltaTable:
        """Open the table, or create it empty. Raises ``OtherFormatError`` as `open` does."""
        return self.open(lake) or DeltaTable.create(
            self.uri(lake),
            mode="ignore",
            schema=self.stored,
            name=self.name,
            description=self.meaning,
            partition_by=[LANDED_DATE.name] if self.by_day else None,
            configuration={**self.configuration()},  # its type is that of a dict with NULLs
            raise_if_key_not_exists=False,  # it isn't Delta's
        )

    def open(self, lake: str) -> DeltaTable | None:
        """Open the table; None: it doesn't exist.

        Raises:
            OtherFormatError: it has another format, or lacks columns.
        """
        try:
            table = DeltaTable(self.uri(lake))
        except TableNotFoundError:
            return None
        check_table(table, self.name, self.stored)
        return table

    def configuration(self) -> dict[str, str]:
        """The table's properties."""
        properties = {FORMAT_PROPERTY: str(FORMAT), **LOG_SETTINGS}
        if not self.statistics:
            return properties
        return {
            **properties,
            "delta.dataSkippingStatsColumns": ",".join(self.statistics),
            # Deletion vectors and column mapping would make delta-rs' readers refuse or misread the table.
            DELETION_VECTORS: "false",
        }


def check_table(table: DeltaTable, name: str, columns: pa.Schema) -> None:
    """Raise ``OtherFormatError`` if an open table has another format, or lacks columns that this build reads."""
    found = table.metadata().configuration.get(FORMAT_PROPERTY)
    check_columns(
        f"{name} at {unquote(table.table_uri)}", found, [field.name for field in table.schema().fields], columns
    )


def check_columns(name: str, found: str | None, stored: Collection[str], columns: pa.Schema) -> None:
    """Raise ``OtherFormatError`` if a table's format is another, or its columns lack some that this build reads.

    Args:
        found: its property `FORMAT_PROPERTY`; None: another program has made the table, and its columns count.
    """
    check_format(f"table {name}", found or str(FORMAT), str(FORMAT), OTHER_LAKE)
    if lacking := [column for column in columns.names if column not in stored]:
        raise OtherFormatError(f"table {name} lacks column {lacking[0]}, which this build reads: {OTHER_LAKE}")


def table_uri(lake: str, name: str) -> str:
    """Path or URI of a table's folder."""
    return f"{lake.rstrip('/')}/{name}"


CLUSTER = pa.field("cluster_id", pa.string(), metadata={"comment": "Kafka cluster that has the entry"})
VERSION_TIMES = tuple(
    pa.field(name, TIMESTAMP, metadata={"comment": meaning})
    for name, meaning in (
        ("valid_from", "first poll that returned this version"),
        ("valid_to", "first poll that no longer returned it; NULL: in force"),
        ("not_seen_at", "last poll that did not return it yet; NULL: the first poll of the cluster returned it"),
        ("last_seen_at", "last poll that returned it; set when the version has ended"),
    )
)


@dataclass(frozen=True)
class HistoryTable(Table):
    """A table with a row for each version of a configured entry: cluster, key columns, value columns, version times.

    Attributes:
        keys: names of the columns that identify an entry. They may be NULL.
    """

    keys: tuple[str, ...] = ()

    @property
    def values(self) -> tuple[str, ...]:
        """Names of the columns that are configured for an entry."""
        known = {CLUSTER.name, *self.keys, *(field.name for field in VERSION_TIMES)}
        return tuple(name for name in self.schema.names if name not in known)

    def key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.keys)

    def value(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.values)


def history_table(name: str, meaning: str, keys: tuple[pa.Field, ...], values: tuple[pa.Field, ...]) -> HistoryTable:
    """Define a table of versions of configured entries; see `pipelines.lake.config_history`."""
    schema = pa.schema([CLUSTER, *keys, *values, *VERSION_TIMES])
    return HistoryTable(name, meaning, schema, by_day=False, keys=tuple(field.name for field in keys))
