"""Parquet files that tasks write from Arrow for a Delta table: their layout, and the statistics of their rows.

Readers see a file after its commit (`delta_log.py`).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from kafka_telemetry_lake.pipelines.lake.durable import sync
from kafka_telemetry_lake.pipelines.lake.held_shards import HeldShards, held_shards
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE, Table
from kafka_telemetry_lake.udfs.rows import BIGINTS, DOUBLES

ROWS_PER_FILE_GROUP = 1 << 20
ALMOST_A_MILLISECOND = timedelta(microseconds=999)
LONGEST_TEXT_BOUND = 200
GATHERED_BYTES = 1 << 20  # of rows that wait to be written together: a row group has fixed costs, 2 CPU-ms and more
HASHES = ("series_id", "client_attributes_id", "digest")  # columns of int64 that are near no other
REPEATED = ("series_id",)  # of those: clients of one kind have the same
PUSH_NUMBERS = ("partition", "offset")  # of rows sorted by client: near no other, but equal for a push's points
# Of texts by which rows are sorted after others, of which bounds say little; for about so many in a row group.
BLOOM_FILTER = {"ndv": 4096, "fpp": 0.01}


@dataclass(frozen=True)
class DataFile:
    """A Parquet file in a table's folder that is not committed yet."""

    table: str
    path: str
    size: int
    rows: int
    landed_date: str
    stats: str
    held: str | None = None  # a file of pushes: `HeldShards` as JSON

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> DataFile:
        return DataFile(**json.loads(text))


class TableFiles:
    """Writes rows of one table to Parquet files, one for each landed date. Readers see them after the commit.

    A column whose rows are all NULL is omitted from the file; Delta readers return NULL for it. Writing the columns
    of histograms for files that contain only counters would cost a quarter of the work.

    Args:
        shards: if more than 1, the files, of pushes, note which of so many shards they hold.
    """

    def __init__(self, table: Table, lake: str, *, in_memory: bool = False, shards: int = 1) -> None:
        self._table, self._shards = table, shards
        if in_memory:  # for a trial: the files are discarded with this object
            self._filesystem, self._root = pafs._MockFileSystem(), table.name
        else:
            self._filesystem, self._root = filesystem_of(table.uri(lake))
        self._open: dict[date, OpenFile] = {}
        self._closed: list[DataFile] = []

    def write(self, rows: pa.Table) -> None:
        """Add rows.

        Args:
            rows: columns of ``table.schema``; text may be dictionary-encoded.
        """
        if rows.num_rows == 0:
            return
        first, last = (bound.as_py().date() for bound in pc.min_max(rows["landed_at"]).values())
        if first == last:  # true for every batch except the one that spans midnight
            self._write(first, rows)
            return
        dates = pc.cast(rows["landed_at"], pa.date32())
        for day in pc.unique(dates).to_pylist():
            self._write(day, rows.filter(pc.equal(dates, day)))

    def close(self) -> list[DataFile]:
        """Close the files and return them."""
        for day in list(self._open):
            self._close(day)
        return self._closed

    def _write(self, day: date, rows: pa.Table) -> None:
        names = {name for name in rows.column_names if rows[name].null_count < len(rows)}
        open_names = set(self._open[day].names) if day in self._open else set()
        if not open_names or not names <= open_names:
            if open_names:
                self._close(day)
            columns = [name for name in rows.column_names if name in names | open_names]
            self._open[day] = self._new(day, rows.schema, columns)
        self._open[day].write(rows)

    def _new(self, day: date, schema: pa.Schema, names: Sequence[str]) -> OpenFile:
        folder = f"{LANDED_DATE.name}={day.isoformat()}"
        self._filesystem.create_dir(f"{self._root}/{folder}", recursive=True)
        path = f"{folder}/part-{uuid.uuid4()}.zstd.parquet"
        stream = self._filesystem.open_output_stream(f"{self._root}/{path}")
        own = pa.schema([schema.field(name) for name in names])
        return OpenFile(self._table, day, path, stream, own, shards=self._shards)

    def _close(self, day: date) -> None:
        self._closed.append(self._open.pop(day).close(self._filesystem, self._root))


class GatheredTableFiles(TableFiles):
    """`TableFiles` in which few rows wait for more: a task of many shards doesn't write a row group for each."""

    def __init__(self, table: Table, lake: str, *, in_memory: bool = False) -> None:
        super().__init__(table, lake, in_memory=in_memory)
        self._waiting: list[pa.Table] = []
        self._bytes = 0

    def write(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= GATHERED_BYTES:
            self._write_waiting()

    def close(self) -> list[DataFile]:
        self._write_waiting()
        return super().close()

    def _write_waiting(self) -> None:
        waiting, self._waiting, self._bytes = [rows for rows in self._waiting if rows.num_rows], [], 0
        if waiting:
            # A row group whose chunks have several dictionaries would be written without one.
            super().write(waiting[0] if len(waiting) == 1 else pa.concat_tables(waiting).unify_dictionaries())


class OpenFile:
    """A Parquet file that is being written.

    Args:
        schema: the columns that it gets.
        clustered_by: text columns by which its rows are sorted: each row group has few of their texts.
        shards: as of `TableFiles`.
    """

    def __init__(
        self, table: Table, day: date, path: str, stream: pa.NativeFile, schema: pa.Schema,
        clustered_by: Sequence[str] = (), shards: int = 1,
    ) -> None:  # fmt: skip
        dictionaries = [field.name for field in schema if pa.types.is_dictionary(field.type)]
        maps = [field.name for field in schema if pa.types.is_map(field.type)]
        dictionaries += [f"{name}.key_value.{side}" for name in maps for side in ("key", "value")]
        repeated = REPEATED + PUSH_NUMBERS if clustered_by else REPEATED
        dictionaries += [name for name in repeated if name in schema.names]
        # The bounds of histograms are few.
        dictionaries += [f"{field.name}.list.element" for field in schema if field.type == DOUBLES]
        self.names = schema.names
        self._table, self._day, self._path, self._stream = table, day, path, stream
        self._statistics = FileStatistics(table.statistics)
        self._shards, self._held = shards, list[tuple[int, ...]]()
        self._writer = pq.ParquetWriter(
            stream,
            schema,
            compression="zstd",
            compression_level=table.zstd_level,
            # Other numbers rarely repeat, so dictionaries of them cost more than they save.
            use_dictionary=dictionaries,
            column_encoding=_small_differences(schema, repeated),
            store_schema=False,  # readers must see plain text, not Arrow's dictionary types
            # The commit has the bounds of text columns. Parquet's own would repeat them, since a file is usually one
            # row group, and would cost a twentieth of a task.
            write_statistics=[
                name
                for name in schema.names
                if name in clustered_by or (name in table.statistics and name not in dictionaries)
            ],
            bloom_filter_options={name: BLOOM_FILTER for name in clustered_by[1:] if name in schema.names} or None,
        )

    def write(self, rows: pa.Table) -> None:
        self._statistics.add(rows)
        self._writer.write_table(rows.select(self.names), row_group_size=ROWS_PER_FILE_GROUP)
        if self._shards > 1:
            ids = rows["client_instance_id"]
            starts = range(0, rows.num_rows, ROWS_PER_FILE_GROUP)
            self._held += [held_shards(ids.slice(start, ROWS_PER_FILE_GROUP), self._shards) for start in starts]

    def close(self, filesystem: pafs.FileSystem, root: str) -> DataFile:
        self._writer.close()
        self._stream.close()
        folder = self._path.rpartition("/")[0]  # of a day, which may be new
        sync(filesystem, [f"{root}/{self._path}", f"{root}/{folder}"])
        size = filesystem.get_file_info(f"{root}/{self._path}").size
        stats = self._statistics
        held = HeldShards(self._shards, tuple(self._held)).to_json() if self._shards > 1 else None
        return DataFile(self._table.name, self._path, size, stats.rows, self._day.isoformat(), stats.to_json(), held)


def _small_differences(schema: pa.Schema, repeated: Sequence[str]) -> dict[str, str]:
    """The encoding of int64 columns and lists of them: counts and offsets are near those of the row before.

    Args:
        repeated: columns that have dictionaries.
    """
    others = {*HASHES, *repeated}
    paths = [field.name for field in schema if field.type == pa.int64() and field.name not in others]
    paths += [f"{field.name}.list.element" for field in schema if field.type == BIGINTS]
    return dict.fromkeys(paths, "DELTA_BINARY_PACKED")


class FileStatistics:
    """Delta's per-file statistics (protocol, "Per-file Statistics"): row count and bounds of the chosen columns."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.rows = 0
        self._low: dict[str, Any] = {}
        self._high: dict[str, Any] = {}
        self._nulls = dict.fromkeys(columns, 0)

    def add(self, rows: pa.Table) -> None:
        self.rows += rows.num_rows
        for name in self._nulls:
            column = rows[name]
            self._nulls[name] += column.null_count
            if pa.types.is_dictionary(column.type):  # bounds of the few distinct texts, not of every row
                column = pa.chunked_array([chunk.dictionary for chunk in column.chunks])
            bounds = pc.min_max(column).as_py()
            if bounds["min"] is not None:
                self._low[name] = min(self._low.get(name, bounds["min"]), bounds["min"])
                self._high[name] = max(self._high.get(name, bounds["max"]), bounds["max"])

    def to_json(self) -> str:
        known = [
            name
            for name, high in self._high.items()
            if not isinstance(high, str) or max(len(high), len(self._low[name])) <= LONGEST_TEXT_BOUND
        ]
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {name: bound_text(self._low[name]) for name in known},
                # Delta stores milliseconds, so the upper bound is rounded up.
                "maxValues": {name: bound_text(self._high[name], ALMOST_A_MILLISECOND) for name in known},
                "nullCount": self._nulls,
            }
        )


def bound_text(value: Any, more: timedelta = timedelta()) -> Any:
    """A bound as Delta stores it: times as text in milliseconds, which are cut off after `more` is added."""
    if not isinstance(value, datetime):
        return value
    value += more
    return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"
