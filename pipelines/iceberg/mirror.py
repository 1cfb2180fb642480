"""Lets an Iceberg table have the live files of a Delta table: a snapshot adds and removes what differs.

No row is written. The files lack field ids and the landed date, so the metadata has a mapping of names, and the date as
an identity partition, whose value a reader takes from the metadata (Iceberg's specification, "Column Projection").
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import _ConvertToIcebergWithoutIDs, visit_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import TimestamptzType
from pyiceberg.utils.datetime import date_to_days

from kafka_telemetry_lake.pipelines.iceberg.folder_tables import FolderTables, filesystem_of_location, version_of
from kafka_telemetry_lake.pipelines.iceberg.places import TABLE_ID, VERSION, location_of
from kafka_telemetry_lake.pipelines.lake.log_files import LogFiles
from kafka_telemetry_lake.pipelines.lake.stored_files import files_table
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE, table_uri
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

THREADS = 8  # that read footers
PROPERTIES = {
    # The files are the lake's: Spark's procedures refuse to delete files of such a table.
    "gc.enabled": "false",
    # A commit is for the files that the table had when they were compared.
    TableProperties.COMMIT_NUM_RETRIES: "0",
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "10",
    # Else readers would open a manifest for each commit.
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
}
MICROSECONDS = "timeUnit=microseconds"  # of a logical type of Parquet, as Arrow prints it
Bounds = Mapping[int, bytes]  # by field id
NONE: Bounds = MappingProxyType({})
MIRRORED = pa.schema(
    [("location", pa.string()), ("size_bytes", pa.int64()), ("num_records", pa.int64()), ("day", pa.date32())]
)


class MirrorError(TelemetryLakeError):
    """The Iceberg table can't follow the Delta table; the message says what to do."""


@dataclass(frozen=True)
class LiveFiles:
    """The files of a Delta table at one version.

    Attributes:
        table_id: of the Delta table.
        schema: its columns, those of partitions included.
        files: columns of `MIRRORED`.
    """

    version: int
    table_id: str
    schema: pa.Schema
    files: pa.Table

    @staticmethod
    def of(delta: DeltaTable, uri: str) -> LiveFiles:
        """The live files of a table as it was opened. Files without a row are left out."""
        files = files_table(delta)
        root = location_of(uri)
        paths = [f"{root}/{unquote(path)}" for path in files["path"].to_pylist()]
        rows = _rows(paths, files["num_records"])
        table = pa.table([pa.array(paths), files["size_bytes"], rows, files["day"]], MIRRORED.names).cast(MIRRORED)
        table = table.filter(pc.greater(table["num_records"], 0))
        return LiveFiles(delta.version(), str(delta.metadata().id), pa.schema(delta.schema().to_arrow()), table)


@dataclass(frozen=True)
class Change:
    """A snapshot that was committed: how many files it added and removed, for which version of the Delta table."""

    added: int
    removed: int
    version: int


class MirroredTable:
    """A table of a lake and its Iceberg table, which is created with the first snapshot.

    Args:
        keep: how many snapshots the Iceberg table has at most.
    """

    def __init__(self, lake: str, name: str, tables: FolderTables, keep: int) -> None:
        self.name, self._uri, self._tables, self._keep = name, table_uri(lake, name), tables, keep
        self._log = LogFiles(self._uri)
        self._looked_at: int | None = None  # the version of the Delta table that the Iceberg table is known to have
        self._delta: DeltaTable | None = None
        self._table: Table | None = None
        self._mirrored = MIRRORED.empty_table()

    def follow(self) -> Change | None:
        """Commit a snapshot if the Delta table has another version than the last one is of.

        Raises:
            MirrorError: another process has committed at the same time, or the folder was moved.
        """
        self._load()
        latest = self._log.latest()
        if latest is not None and latest == self._looked_at:
            return None
        delta = self._opened()
        if self._table is not None and _source(self._table) == (str(delta.version()), str(delta.metadata().id)):
            self._looked_at = delta.version()
            return None
        return self.commit(LiveFiles.of(delta, self._uri))

    def _opened(self) -> DeltaTable:
        """The Delta table's latest version. Opening it anew reads all commits since the log's last checkpoint."""
        delta, self._delta = self._delta, None  # not one whose update has failed
        if delta is None:
            delta = DeltaTable(self._uri)
        else:
            delta.update_incremental()
        self._delta = delta
        return delta

    def commit(self, live: LiveFiles) -> Change:
        """Commit the snapshot of these files."""
        table = self._table or self._create(live.schema)
        added = live.files.filter(pc.invert(pc.is_in(live.files["location"], self._mirrored["location"])))
        removed = self._mirrored.filter(pc.invert(pc.is_in(self._mirrored["location"], live.files["location"])))
        transaction = table.transaction()
        if new := [field for field in live.schema if field.name not in table.schema().column_names]:
            with transaction.update_schema() as update:
                update.union_by_name(_with_docs(pa.schema(new)))
        self._add_snapshot(transaction, live, added, removed)
        self._expire(transaction, all_earlier=len(removed) > 0)
        try:
            transaction.commit_transaction()
        except CommitFailedException as error:
            self._table = None
            raise MirrorError(f"{self.name}: another process has changed the Iceberg table meanwhile") from error
        self._table, self._mirrored, self._looked_at = table, live.files, live.version
        return Change(len(added), len(removed), live.version)

    def tidy(self) -> int:
        """Delete metadata that no reader needs any more; returns how many files."""
        return 0 if self._table is None else self._tables.tidy(self._table)

    def _load(self) -> None:
        """Load the Iceberg table, unless it is as this process has left it."""
        version = self._tables.version(self.name)
        if version is None:
            self._table, self._mirrored, self._looked_at = None, MIRRORED.empty_table(), None
        elif self._table is None or version_of(self._table) != version:
            table = self._tables.load_table(self.name)
            if not table.metadata_location.startswith(f"{table.location()}/"):
                raise MirrorError(
                    f"{table.metadata_location} was written as {table.location()}: Iceberg's paths are absolute, "
                    "so delete this folder"
                )
            self._table, self._mirrored, self._looked_at = table, _files_in(table), None

    def _create(self, schema: pa.Schema) -> Table:
        iceberg = assign_fresh_schema_ids(
            visit_pyarrow(_with_docs(schema), _ConvertToIcebergWithoutIDs(format_version=2))
        )
        mapping = {TableProperties.DEFAULT_NAME_MAPPING: create_mapping_from_schema(iceberg).model_dump_json()}
        return self._tables.create(self.name, iceberg, _spec(iceberg), PROPERTIES | mapping)

    def _add_snapshot(self, transaction: Transaction, live: LiveFiles, added: pa.Table, removed: pa.Table) -> None:
        source = {VERSION: str(live.version), TABLE_ID: live.table_id}
        update = transaction.update_snapshot(snapshot_properties=source)
        schema, spec = transaction.table_metadata.schema(), transaction.table_metadata.spec()
        times = {field.name: field.field_id for field in schema.fields if isinstance(field.field_type, TimestamptzType)}
        with ThreadPoolExecutor(THREADS) as threads:
            bounds = threads.map(lambda location: _bounds(location, times), added["location"].to_pylist())
        with update.overwrite() if len(removed) else update.merge_append() as snapshot:
            for row in removed.to_pylist():
                snapshot.delete_data_file(_data_file(row, spec))
            for row, (low, high) in zip(added.to_pylist(), bounds, strict=True):
                snapshot.append_data_file(_data_file(row, spec, low, high))

    def _expire(self, transaction: Transaction, all_earlier: bool) -> None:
        """Expire snapshots beyond the number that is kept, and all that have files which the newest hasn't.

        VACUUM, or `forget` at once, deletes such files.
        """
        earlier = sorted(transaction.table_metadata.snapshots, key=lambda each: each.sequence_number or 0)[:-1]
        expired = earlier if all_earlier else earlier[: max(0, len(earlier) + 1 - self._keep)]
        if expired:
            ExpireSnapshots(transaction).by_ids([each.snapshot_id for each in expired]).commit()


def _source(table: Table) -> tuple[str | None, str | None]:
    """The version and id of the Delta table that the current snapshot is of."""
    snapshot = table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return None, None
    return snapshot.summary.get(VERSION), snapshot.summary.get(TABLE_ID)


def _files_in(table: Table) -> pa.Table:
    """The files of the current snapshot: columns of `MIRRORED`."""
    snapshot = table.current_snapshot()
    files = (
        []
        if snapshot is None
        else [
            entry.data_file
            for manifest in snapshot.manifests(table.io)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        ]
    )
    days = [file.partition[0] if len(file.partition) else None for file in files]
    columns: dict[str, list[Any]] = {
        "location": [file.file_path for file in files],
        "size_bytes": [file.file_size_in_bytes for file in files],
        "num_records": [file.record_count for file in files],
    }
    dates = pa.array(days, pa.int32()).cast(pa.date32())
    return pa.table([*columns.values(), dates], MIRRORED.names).cast(MIRRORED)


def _data_file(row: dict[str, Any], spec: PartitionSpec, low: Bounds = NONE, high: Bounds = NONE) -> DataFile:
    """A file as manifests have it."""
    file = DataFile.from_args(
        _table_format_version=2,
        content=DataFileContent.DATA,
        file_path=row["location"],
        file_format=FileFormat.PARQUET,
        partition=Record(date_to_days(row["day"])) if spec.fields else Record(),
        record_count=row["num_records"],
        file_size_in_bytes=row["size_bytes"],
        lower_bounds=low,
        upper_bounds=high,
    )
    file.spec_id = spec.spec_id
    return file


def _bounds(location: str, times: Mapping[str, int]) -> tuple[Bounds, Bounds]:
    """The least and the greatest value of columns of a file, as its footer has them.

    Only times: bounds of texts would be names of clients, which `forget` doesn't look for in manifests. Not those of
    Delta's log, which are cut to milliseconds: Spark answers min() and max() by bounds, without reading rows.

    Args:
        times: ids of the columns, by name.
    """
    filesystem, path = filesystem_of_location(location)
    footer = pq.read_metadata(path, filesystem=filesystem)
    found: dict[int, list[int]] = {}
    partly = set()
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for column in map(group.column, range(group.num_columns)):
            field, statistics = times.get(column.path_in_schema), column.statistics
            if field is None:
                continue
            if statistics is not None and statistics.has_min_max and MICROSECONDS in str(statistics.logical_type):
                found.setdefault(field, []).extend((statistics.min_raw, statistics.max_raw))
            elif statistics is None or statistics.null_count != column.num_values:
                partly.add(field)
    known = {field: values for field, values in found.items() if field not in partly}
    low, high = ({field: to_bytes(TimestamptzType(), of(each)) for field, each in known.items()} for of in (min, max))
    return low, high


def _spec(schema: Schema) -> PartitionSpec:
    if LANDED_DATE.name not in schema.column_names:
        return UNPARTITIONED_PARTITION_SPEC
    source = schema.find_field(LANDED_DATE.name).field_id
    return PartitionSpec(PartitionField(source, PARTITION_FIELD_ID_START, IdentityTransform(), LANDED_DATE.name))


def _with_docs(schema: pa.Schema) -> pa.Schema:
    """Columns with their comments where Iceberg's library looks for them."""
    fields = []
    for field in schema:
        comment = (field.metadata or {}).get(b"comment")
        fields.append(field.with_metadata(None if comment is None else {"doc": comment}))
    return pa.schema(fields)


def _rows(paths: list[str], known: pa.ChunkedArray) -> pa.ChunkedArray:
    """Rows of files: as the log has them, else as the files themselves say."""
    if known.null_count == 0:
        return known
    numbers = [_rows_in(path) if rows is None else rows for path, rows in zip(paths, known.to_pylist(), strict=True)]
    return pa.chunked_array([numbers], pa.int64())


def _rows_in(location: str) -> int:
    filesystem, path = filesystem_of_location(location)
    rows: int = pq.read_metadata(path, filesystem=filesystem).num_rows
    return rows
