"""Classes for the definition of a Delta table: its columns, partition and settings, and how it is created."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from kafka_telemetry_lake.udfs.errors import OTHER_LAKE, OtherFormatError, TelemetryLakeError, check_format
from kafka_telemetry_lake.udfs.rows import TIMESTAMP, column, columns, definition

LANDED_DATE = column("landed_date", pa.date32(), "UTC date of landed_at; the partition")

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
        """Convert rows with the columns of `schema` to the columns as stored, without their meanings.

        delta-rs refuses rows whose columns have other meanings than the table's, which are those of the release that
        has made it.
        """
        if self.by_day:
            rows = rows.append_column(LANDED_DATE, pc.cast(rows[self.dated_by], LANDED_DATE.type))
        return rows.cast(pa.schema([field.remove_metadata() for field in self.stored]))

    def uri(self, lake: str) -> str:
        return table_uri(lake, self.name)

    def create(self, lake: str, opened: DeltaTable | None = None) -> DeltaTable:
        """Open the table, or create it empty. One of an earlier release is given the columns that it lacks.

        Args:
            opened: it, if it is open already.

        Raises:
            OtherFormatError: as `open` does.
        """
        if (table := opened or self.open(lake)) is not None:
            return self._with_all_columns(table)
        return DeltaTable.create(
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
            OtherFormatError: it has another format, or lacks columns that can't be added (`lacking`).
        """
        try:
            table = DeltaTable(self.uri(lake))
        except TableNotFoundError:
            return None
        check_table(table, self.name, self.stored)
        return table

    def _with_all_columns(self, table: DeltaTable) -> DeltaTable:
        """Add the columns that an earlier release didn't have; they are NULL in the rows that there are."""
        if added := lacking(table, self.name, self.stored):
            with suppress(CommitFailedError):  # another process has changed the table at the same time
                table.alter.add_columns(Schema.from_arrow(pa.schema(added)).fields)
            table.update_incremental()
            if left := lacking(table, self.name, self.stored):
                raise TelemetryLakeError(
                    f"column {left[0].name} can't be added to table {self.name}, which others write: stop them, and "
                    "start this again"
                )
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
    """Raise ``OtherFormatError`` as `lacking` does."""
    lacking(table, name, columns)


def lacking(table: DeltaTable, name: str, columns: pa.Schema) -> list[pa.Field]:
    """The columns of this build that an open table lacks, since an earlier release has made it: they are NULL.

    Raises:
        OtherFormatError: it has another format, or another program has made it without these columns.
    """
    found = table.metadata().configuration.get(FORMAT_PROPERTY)
    stored = [field.name for field in table.schema().fields]
    return lacking_columns(f"{name} at {unquote(table.table_uri)}", found, stored, columns)


def lacking_columns(name: str, found: str | None, stored: Collection[str], columns: pa.Schema) -> list[pa.Field]:
    """The columns that a table lacks; arguments and errors are those of `lacking`.

    Args:
        found: its property `FORMAT_PROPERTY`; None: another program has made the table, and its columns count.
    """
    check_format(f"table {name}", found or str(FORMAT), str(FORMAT), OTHER_LAKE)
    added = [column for column in columns if column.name not in stored]
    if added and found is None:
        raise OtherFormatError(f"table {name} lacks column {added[0].name}, which this build reads: {OTHER_LAKE}")
    return added


def table_uri(lake: str, name: str) -> str:
    """Path or URI of a table's folder."""
    return f"{lake.rstrip('/')}/{name}"


def defined(name: str) -> Table:
    """A table that `udfs/tables/*.yml` define."""
    of = definition(name)
    options = {key: of[key] for key in ("by_day", "dated_by", "zstd_level") if key in of}
    return Table(name, of["meaning"], pa.schema(columns(name)), tuple(of.get("statistics", ())), **options)


CLUSTER = column("cluster_id", pa.string(), "Kafka cluster that has the entry")
VERSION_TIMES = tuple(
    column(name, TIMESTAMP, meaning)
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
        return tuple(row.get(name) for name in self.values)  # an earlier release may not have had all


def history_table(name: str, meaning: str, keys: tuple[pa.Field, ...], values: tuple[pa.Field, ...]) -> HistoryTable:
    """Define a table of versions of configured entries; see `pipelines.lake.config_history`."""
    schema = pa.schema([CLUSTER, *keys, *values, *VERSION_TIMES])
    return HistoryTable(name, meaning, schema, by_day=False, keys=tuple(field.name for field in keys))


def defined_history(name: str) -> HistoryTable:
    """A table of versions that `udfs/tables/*.yml` define; they say which columns are keys."""
    of, known = definition(name), columns(name)
    keys = tuple(field for field in known if field.name in of["keys"])
    return history_table(name, of["meaning"], keys, tuple(field for field in known if field not in keys))
