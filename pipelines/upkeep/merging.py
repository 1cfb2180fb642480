"""Merges files of a table into one with the same rows, in bounded memory. It isn't committed yet."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from kafka_telemetry_lake.pipelines.ingest.push_files import SLICE_BYTES, PushFiles
from kafka_telemetry_lake.pipelines.lake.delta_log import DataFile, FileStatistics, OpenFile
from kafka_telemetry_lake.pipelines.lake.durable import sync
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.query.duckdb_engine import connect
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE, Table
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

ROWS_PER_GROUP = 8192
BATCH_ROWS = 1 << 16
SORT_MEMORY, SORT_DISK, SORT_THREADS = "512MB", "64GB", "2"
Rows = Sequence[Mapping[str, Any]]  # files of one landed date, as `delta_log.files_of` returns them


class MergeEndedError(TelemetryLakeError):
    """A merge was stopped. The file that it had begun counts for nobody."""


def merged(table: Table, lake: str, rows: Rows, ended: threading.Event | None = None) -> DataFile:
    """Write a file with the rows of these files, in their order; pushes by partition and offset.

    Raises:
        MergeEndedError: the event was set.
    """
    if table is PUSHES:
        return merged_pushes(lake, rows, ended)
    files = MergedFiles(table, lake, rows)
    for batch in _until(ended, _batches(files.filesystem, files.paths, files.schema)):
        files.write(batch)
    (file,) = files.close()
    return file


def sorted_files(
    table: Table, lake: str, rows: Rows, columns: Sequence[str], target_bytes: int, memory: str = SORT_MEMORY
) -> list[DataFile]:
    """Write files of about a size with the rows of these files, sorted by columns, then by landing.

    DuckDB sorts in `memory`, and on disk what doesn't fit: in the folder for temporary files. delta-rs' Z-order takes
    memory in proportion to a day's rows, and given less it fails sometimes.
    """
    files = MergedFiles(table, lake, rows, columns)
    read = (batch for part in _batches(files.filesystem, files.paths, files.schema) for batch in part.to_batches())
    names = ", ".join(f'"{name}"' for name in table.schema.names)
    order = ", ".join(f'"{name}"' for name in (*columns, "landed_at", "partition", "offset"))
    with connect(memory=memory, spill=SORT_DISK, threads=SORT_THREADS, preserve_insertion_order="false") as connection:
        # Not a dataset, which reads many files ahead.
        connection.register("stored", pa.RecordBatchReader.from_batches(files.schema, read))
        query = connection.sql(f"SELECT {names} FROM stored ORDER BY {order}")
        for batch in query.to_arrow_reader(BATCH_ROWS):
            files.write(pa.Table.from_batches([batch]).cast(table.schema).cast(files.schema))
            if files.written_bytes >= target_bytes:
                files.begin()
    return files.close()


class MergedFiles:
    """Files with the rows of other files of one landed date.

    Args:
        clustered_by: columns by which the rows are sorted, so that bounds of their row groups help readers.
    """

    def __init__(self, table: Table, lake: str, rows: Rows, clustered_by: Sequence[str] = ()) -> None:
        self.filesystem, self._root = filesystem_of(table.uri(lake))
        self.paths = [f"{self._root}/{unquote(row['path'])}" for row in rows]
        self.schema = pa.schema([_as_written(field) for field in table.schema])
        stored = {name for path in self.paths for name in pq.read_schema(path, filesystem=self.filesystem).names}
        self._written = pa.schema([field for field in self.schema if field.name in stored])
        self._table, self._clustered_by = table, clustered_by
        self._day = rows[0]["partition"][LANDED_DATE.name]
        self._open: OpenFile | None = None
        self._closed: list[DataFile] = []

    @property
    def written_bytes(self) -> int:
        """Bytes of the file that is written."""
        return 0 if self._open is None else self._open.bytes

    def write(self, rows: pa.Table) -> None:
        """Add rows, with the columns of `schema`."""
        if self._open is None:
            path = _new_path(self._day)
            stream = self.filesystem.open_output_stream(f"{self._root}/{path}")
            day = date.fromisoformat(self._day)
            self._open = OpenFile(self._table, day, path, stream, self._written, self._clustered_by)
        self._open.write(rows)

    def begin(self) -> None:
        """Write further rows to another file."""
        if self._open is not None:
            self._closed.append(self._open.close(self.filesystem, self._root))
            self._open = None

    def close(self) -> list[DataFile]:
        """Close the last file and return all."""
        self.begin()
        return self._closed


def merged_pushes(lake: str, rows: Rows, ended: threading.Event | None = None) -> DataFile:
    """Merge files of pushes, which may take a thousand times as much memory as disk space."""
    filesystem, root = filesystem_of(PUSHES.uri(lake))
    paths = [unquote(row["path"]) for row in rows]
    stored = pa.unify_schemas([pq.read_schema(f"{root}/{path}", filesystem=filesystem) for path in paths])
    # Files written by earlier releases lack newer columns.
    known = [stored.field(field.name) if field.name in stored.names else field for field in PUSHES.schema]
    schema = pa.schema([field.remove_metadata() for field in known])
    day = rows[0]["partition"][LANDED_DATE.name]
    path = _new_path(day)
    texts = [f.name for f in PUSHES.schema if pa.types.is_string(f.type) and f.name != "client_instance_id"]
    statistics = FileStatistics(PUSHES.statistics)
    with pq.ParquetWriter(
        f"{root}/{path}", schema, filesystem=filesystem, compression="zstd",
        compression_level=PUSHES.zstd_level, use_dictionary=texts,
    ) as writer:  # fmt: skip
        slices = PushFiles(lake, paths, schema).slices(0, 1, sorted_by_partition=True)
        for pushes in _until(ended, _row_groups(slices)):
            statistics.add(pushes)
            writer.write_table(pushes, row_group_size=ROWS_PER_GROUP)
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
    """Text as dictionaries: tasks write it so, and it costs less."""
    return field.with_type(pa.dictionary(pa.int32(), pa.string())) if pa.types.is_string(field.type) else field


def _batches(filesystem: pafs.FileSystem, paths: Iterable[str], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of the files; columns that a file lacks are NULL."""
    for path in paths:
        with filesystem.open_input_file(path) as stream:
            own = pq.read_schema(stream).names
            names = [name for name in schema.names if name in own]
            texts = [name for name in names if pa.types.is_dictionary(schema.field(name).type)]
            for batch in pq.ParquetFile(stream, read_dictionary=texts).iter_batches(BATCH_ROWS, columns=names):
                columns = [
                    batch[field.name] if field.name in names else pa.nulls(batch.num_rows, field.type)
                    for field in schema
                ]
                yield pa.table(columns, schema.names).cast(schema)


def _row_groups(slices: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Combine slices into row groups of at most `ROWS_PER_GROUP` rows or `SLICE_BYTES` bytes."""
    waiting: list[pa.Table] = []
    for pushes in slices:
        group = [*waiting, pushes]
        if sum(each.num_rows for each in group) > ROWS_PER_GROUP or sum(each.nbytes for each in group) > SLICE_BYTES:
            yield from waiting and [pa.concat_tables(waiting)]
            group = [pushes]
        waiting = group
    yield from waiting and [pa.concat_tables(waiting)]
