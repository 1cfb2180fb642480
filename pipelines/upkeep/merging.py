"""Merges files of a table into one with the same rows, some of them sorted, in bounded memory. None is committed here.

Files of a past day are divided into groups, each of which is committed once it is compacted.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from kafka_telemetry_lake.pipelines.ingest.push_files import SLICE_BYTES, SLICE_ROWS, PushFiles, joined
from kafka_telemetry_lake.pipelines.ingest.row_order import interleaved, sorted_by_client, with_one_dictionary
from kafka_telemetry_lake.pipelines.lake.durable import sync
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile, FileStatistics, OpenFile
from kafka_telemetry_lake.pipelines.query.duckdb_engine import connect
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, OPERATOR_TABLES, PUSHES
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE, Table
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

ROWS_PER_GROUP = 1 << 18
BY_PUSH = ("partition", "offset", "series_id")  # order of a client's points
# Of a row group of pushes: slices are never cut, as a group's rows are sorted by client, and a landed row group of a
# slice and a few pushes more stays one.
PUSHES_PER_GROUP, PUSH_BYTES_PER_GROUP = SLICE_ROWS, SLICE_BYTES + SLICE_BYTES // 2
BATCH_ROWS = 1 << 16
SORT_MEMORY, SORT_DISK, SORT_THREADS = "512MB", "64GB", "2"
TEXT = pa.dictionary(pa.int32(), pa.string())
Rows = Sequence[Mapping[str, Any]]  # files of one landed date, as `delta_log.files_of` returns them


class MergeEndedError(TelemetryLakeError):
    """A merge was stopped. The file that it had begun counts for nobody."""


def merged(table: Table, lake: Lake, rows: Rows, ended: threading.Event | None = None) -> DataFile:
    """Write a file with the rows of these files, in their order; pushes by partition and offset.

    Raises:
        MergeEndedError: the event was set.
    """
    if table is PUSHES:
        return merged_pushes(lake, rows, ended)
    file = MergedFile(table, lake, rows)
    for group in joined(_until(ended, file.batches()), ROWS_PER_GROUP):
        file.write(group)
    return file.close()


def sorted_file(table: Table, lake: Lake, rows: Rows, columns: Sequence[str], memory: str = SORT_MEMORY) -> DataFile:
    """Write a file with the rows of these files, points sorted by columns, then by push.

    In each row group, pushes with the same metrics are then interleaved (`alike_together`).

    DuckDB sorts in `memory`, and on disk what doesn't fit: in the folder for temporary files. delta-rs' Z-order takes
    memory in proportion to a day's rows, and given less it fails sometimes.
    """
    file = MergedFile(table, lake, rows, columns)
    read = (batch for part in file.batches() for batch in part.to_batches())
    plain = pa.schema([table.schema.field(name) for name in file.schema.names])
    order = ", ".join(f'"{name}"' for name in (*columns, *BY_PUSH))
    with connect(memory=memory, spill=SORT_DISK, threads=SORT_THREADS, preserve_insertion_order="false") as connection:
        # Not a dataset, which reads many files ahead.
        connection.register("stored", pa.RecordBatchReader.from_batches(file.schema, read))
        query = connection.sql(f"FROM stored ORDER BY {order}")
        sorted_rows = (pa.Table.from_batches([batch]) for batch in query.to_arrow_reader(BATCH_ROWS))
        for group in joined((part.cast(plain).cast(file.schema) for part in sorted_rows), ROWS_PER_GROUP):
            file.write(interleaved(group))
    return file.close()


class MergedFile:
    """A file with the rows of other files of one landed date.

    Args:
        clustered_by: columns by which the rows are sorted, so that bounds of their row groups help readers.
    """

    def __init__(self, table: Table, lake: Lake, rows: Rows, clustered_by: Sequence[str] = ()) -> None:
        self._filesystem, self._root = lake.folder(table)
        paths = [f"{self._root}/{unquote(row['path'])}" for row in rows]
        self._files = [(path, pq.read_metadata(path, filesystem=self._filesystem)) for path in paths]
        stored = {name for _, footer in self._files for name in footer.schema.to_arrow_schema().names}
        known = stored.union(table.statistics, clustered_by, BY_PUSH if clustered_by else ())
        self.schema = pa.schema([_as_written(field) for field in table.schema if field.name in known])
        day = rows[0]["partition"][LANDED_DATE.name]
        path = _new_path(day)
        stream = self._filesystem.open_output_stream(f"{self._root}/{path}")
        written = pa.schema([field for field in self.schema if field.name in stored])
        self._open = OpenFile(table, date.fromisoformat(day), path, stream, written, clustered_by)

    def batches(self) -> Iterator[pa.Table]:
        """The rows of the other files, with the columns of `schema`."""
        return _batches(self._filesystem, self._files, self.schema)

    def write(self, rows: pa.Table) -> None:
        """Add a row group, with the columns of `schema`."""
        self._open.write(with_one_dictionary(rows))

    def close(self) -> DataFile:
        """Close the file and return it."""
        return self._open.close(self._filesystem, self._root)


def merged_pushes(lake: Lake, rows: Rows, ended: threading.Event | None = None) -> DataFile:
    """Merge files of pushes, which may take a thousand times as much memory as disk space."""
    filesystem, root = lake.folder(PUSHES)
    paths = [unquote(row["path"]) for row in rows]
    stored = pa.unify_schemas([pq.read_schema(f"{root}/{path}", filesystem=filesystem) for path in paths])
    # A file lacks columns that are NULL in all of its rows.
    known = [stored.field(field.name) if field.name in stored.names else field for field in PUSHES.schema]
    schema = pa.schema([field.remove_metadata() for field in known])
    day = rows[0]["partition"][LANDED_DATE.name]
    path = _new_path(day)
    texts = [f.name for f in PUSHES.schema if pa.types.is_string(f.type) and f.name != "client_instance_id"]
    statistics = FileStatistics(PUSHES.statistics)
    with pq.ParquetWriter(
        f"{root}/{path}",
        schema,
        filesystem=filesystem,
        compression="zstd",
        compression_level=PUSHES.zstd_level,
        use_dictionary=texts,
    ) as writer:
        slices = PushFiles(lake.uri, paths, schema=schema).slices(sorted_by_partition=True)
        for pushes in joined(_until(ended, slices), PUSHES_PER_GROUP, PUSH_BYTES_PER_GROUP):
            statistics.add(pushes)
            writer.write_table(sorted_by_client(pushes), row_group_size=PUSHES_PER_GROUP)
    sync(filesystem, [f"{root}/{path}"])
    size = filesystem.get_file_info(f"{root}/{path}").size
    return DataFile(PUSHES.name, path, size, statistics.rows, day, statistics.to_json())


def _until(ended: threading.Event | None, batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
    for batch in batches:
        if ended is not None and ended.is_set():
            raise MergeEndedError
        yield batch


def _new_path(day: str) -> str:
    return f"{LANDED_DATE.name}={day}/part-{uuid.uuid4()}.zstd.parquet"


def _as_written(field: pa.Field) -> pa.Field:
    """Text as dictionaries: files have it so, and it isn't spelled out in between.

    Not inside lists and maps: Arrow can't read those so where a column has more than one dictionary.
    """
    return field.with_type(TEXT) if pa.types.is_string(field.type) else field


def _batches(
    filesystem: pafs.FileSystem, files: Iterable[tuple[str, pq.FileMetaData]], schema: pa.Schema
) -> Iterator[pa.Table]:
    """The rows of the files, each with its footer; columns that a file lacks are NULL."""
    for path, footer in files:
        own = footer.schema.to_arrow_schema().names
        texts = [field.name for field in schema if field.name in own and pa.types.is_dictionary(field.type)]
        with filesystem.open_input_file(path) as stream:
            file = pq.ParquetFile(stream, metadata=footer, read_dictionary=texts)
            for batch in file.iter_batches(BATCH_ROWS):
                known = [
                    batch[field.name] if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)
                    for field in schema
                ]
                yield pa.table(known, schema.names).cast(schema)


File = Mapping[str, Any]  # as of `delta_log.files_of`
TABLES = {table.name: table for table in (PUSHES, *OPERATOR_TABLES)}
# Columns that queries filter by, for tables whose queries don't mainly filter by landing time.
CLUSTERED_BY = {METRIC_POINTS.name: ("client_id", "client_instance_id")}
MOST_FILES = 768  # of a group: their footers are in memory


@dataclass(frozen=True)
class FileGroup:
    """Files of one landed date, in the order of landing, that become one."""

    table: str
    files: tuple[File, ...]

    def compact(self, lake: Lake) -> DataFile:
        """Write the new file. Readers see it after the commit."""
        table = TABLES[self.table]
        if (columns := CLUSTERED_BY.get(self.table)) is not None:
            return sorted_file(table, lake, self.files, columns)
        return merged(table, lake, self.files)


def groups_of(table: str, files: Iterable[File], target_bytes: int) -> Iterator[FileGroup]:
    """Divide a day's files so that memory, disk and what a kill costs don't follow the day's bytes.

    A file that would be alone in its group stays as it is.
    """
    landed = TABLES[table].statistics[0]  # landing time, or the start of a rollup's window, which follows it
    group, size = list[File](), 0
    for file in sorted(files, key=lambda file: file["min"][landed]):
        if group and (size + file["size_bytes"] > target_bytes or len(group) == MOST_FILES):
            if len(group) > 1:
                yield FileGroup(table, tuple(group))
            group, size = [], 0
        group.append(file)
        size += file["size_bytes"]
    if len(group) > 1:
        yield FileGroup(table, tuple(group))


def delete_files(uri: str, paths: Iterable[str]) -> None:
    """Delete files of a table's folder. One that is gone already is no error.

    Args:
        uri: of the table's folder.
        paths: on the file system of `uri`.
    """
    filesystem, _ = filesystem_of(uri)
    for path in paths:
        try:
            filesystem.delete_file(path)
        except FileNotFoundError:
            continue
