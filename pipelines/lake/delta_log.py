"""Commits files that tasks have written directly to a Delta table's log.

The operator's tasks write Parquet from Arrow themselves, so their rows never pass through the JVM. A batch's files
become visible in one commit per table. The commit carries ``txnAppId``/``txnVersion`` like Spark's idempotent writes.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.commit_log import CommitLog
from kafka_telemetry_lake.pipelines.lake.durable import sync
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.held_shards import TAG, HeldShards, held_shards
from kafka_telemetry_lake.pipelines.lake.log_files import Action
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE, Table
from kafka_telemetry_lake.udfs.rows import BIGINTS, DOUBLES

ROWS_PER_FILE_GROUP = 1 << 20
ALMOST_A_MILLISECOND = timedelta(microseconds=999)
LONGEST_TEXT_BOUND = 200
HASHES = ("series_id", "client_attributes_id", "digest")  # columns of int64 that are near no other


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


class OpenFile:
    """A Parquet file that is being written.

    Args:
        schema: the columns that it gets.
        clustered_by: text columns by which its rows are sorted.
        shards: as of `TableFiles`.
    """

    def __init__(
        self, table: Table, day: date, path: str, stream: pa.NativeFile, schema: pa.Schema,
        clustered_by: Sequence[str] = (), shards: int = 1,
    ) -> None:  # fmt: skip
        dictionaries = [field.name for field in schema if pa.types.is_dictionary(field.type)]
        maps = [field.name for field in schema if pa.types.is_map(field.type)]
        dictionaries += [f"{name}.key_value.{side}" for name in maps for side in ("key", "value")]
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
            column_encoding=_small_differences(schema),
            store_schema=False,  # readers must see plain text, not Arrow's dictionary types
            # The commit has the bounds of text columns. Parquet's own would repeat them, since a file is usually one
            # row group, and would cost a twentieth of a task. Of sorted rows each row group has few of the texts.
            write_statistics=[
                name
                for name in table.statistics
                if name in schema.names and (name not in dictionaries or name in clustered_by)
            ],
        )

    @property
    def bytes(self) -> int:
        """What is written so far."""
        size: int = self._stream.tell()
        return size

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


def _small_differences(schema: pa.Schema) -> dict[str, str]:
    """The encoding of int64 columns and lists of them: counts and offsets are near those of the row before."""
    paths = [field.name for field in schema if field.type == pa.int64() and field.name not in HASHES]
    paths += [f"{field.name}.list.element" for field in schema if field.type == BIGINTS]
    return dict.fromkeys(paths, "DELTA_BINARY_PACKED")


class TableLog:
    """The log of one table. A commit reads only the commits since the last look.

    Args:
        fence, opened: as `CommitLog` has them.
    """

    def __init__(self, table: Table, lake: str, fence: Fence | None = None, opened: DeltaTable | None = None) -> None:
        self.table = table
        self._uri = table.uri(lake)
        self._log = CommitLog(self._uri, fence, opened)

    def commit(
        self, files: Iterable[DataFile], app_id: str, version: int, also: Mapping[str, int] | None = None,
        note: str | None = None,
    ) -> bool:  # fmt: skip
        """Add the files to the table in one commit, unless this application has already committed this version.

        Args:
            also: versions of other applications that the commit carries; unless None, it is made without files too.
            note: text that the table's history shows.

        Returns:
            Whether a commit was made.

        Raises:
            FencedError: the table has a commit of a higher epoch.
        """
        adds = [_add(file) for file in files]
        if not adds and also is None:
            return False
        done = self._log.transaction_version(app_id)
        if done is not None and done >= version:
            self._log.check_epoch()  # else a job that was taken over would take its successor's commit for its own
            return False
        self._log.append(adds, {app_id: version} | dict(also or {}), note=note)
        return True

    def transaction_version(self, app_id: str) -> int | None:
        """The last version that an application has committed."""
        return self._log.transaction_version(app_id)

    @property
    def version(self) -> int:
        """The table's latest version."""
        return self._log.version

    @property
    def known_version(self) -> int:
        """The version that was read or committed last."""
        return self._log.known_version

    def replace(
        self, files: Sequence[DataFile], before: Sequence[dict[str, Any]], app_id: str,
        also: Mapping[str, int] | None = None, note: str | None = None,
    ) -> bool:  # fmt: skip
        """Restore the table to the files that it had, and add others, in one commit.

        A second call with the same `app_id` does nothing. No other writer may remove files at the same time.

        Args:
            before: the files that it had, as `files_of` returns them. Days that retention has dropped since then stay
                dropped.
            also, note: as those of `commit`.

        Returns:
            Whether a commit was made.
        """
        if self._log.transaction_version(app_id) is not None:
            return False
        active = {row["path"]: row for row in files_of(DeltaTable(self._uri))}
        then = {row["path"]: row for row in before}
        first_day = min((row["partition"][LANDED_DATE.name] for row in active.values()), default="9999-12-31")
        removed = [row for path, row in active.items() if path not in then]
        restored = [row for path, row in then.items() if path not in active]
        actions = [_remove(row) for row in removed]
        actions += [_add_again(row) for row in restored if row["partition"][LANDED_DATE.name] >= first_day]
        actions += [_add(file) for file in files]
        self._log.append(actions, {app_id: 0} | dict(also or {}), {row["path"] for row in removed}, note)
        return True

    def rearrange(self, rows: Sequence[Mapping[str, Any]], files: Iterable[DataFile]) -> None:
        """Replace files by others with the same rows.

        Args:
            rows: the files to remove, as `files_of` returns them.
            files: the files to add.

        Raises:
            deltalake.exceptions.CommitFailedError: another process has removed one of the files at the same time.
        """
        actions = [_remove(row, data_change=False) for row in rows]
        actions += [_add(file, data_change=False) for file in files]
        if actions:
            self._log.append(actions, {}, {row["path"] for row in rows})


def files_of(table: DeltaTable) -> list[dict[str, Any]]:
    """The table's files: path, size_bytes and num_records; partition, min, max and null_count as dicts by column."""
    return file_rows(pa.table(table.get_add_actions()))


def file_rows(actions: pa.Table) -> list[dict[str, Any]]:
    """The same from delta-rs' table of files."""
    rows: list[dict[str, Any]] = actions.to_pylist()
    for row in rows:
        row["partition"] = {name: None if value is None else str(value) for name, value in row["partition"].items()}
    return rows


def _remove(row: Mapping[str, Any], *, data_change: bool = True) -> Action:
    return {
        "remove": {
            "path": row["path"],
            "deletionTimestamp": int(time.time() * 1000),
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": row["partition"],
            "size": row["size_bytes"],
        }
    }


def _add_again(row: dict[str, Any]) -> Action:
    bounds = {side: row.get(side) or {} for side in ("min", "max", "null_count")}
    stats = {
        "numRecords": row["num_records"],
        "minValues": {name: _bound(value) for name, value in bounds["min"].items() if value is not None},
        "maxValues": {name: _bound(value) for name, value in bounds["max"].items() if value is not None},
        "nullCount": {name: value for name, value in bounds["null_count"].items() if value is not None},
    }
    return _added(row["path"], row["size_bytes"], row["partition"], json.dumps(stats), data_change=True)


def _add(file: DataFile, *, data_change: bool = True) -> Action:
    day = {LANDED_DATE.name: file.landed_date}
    action = _added(file.path, file.size, day, file.stats, data_change=data_change)
    if file.held is not None:
        action["add"]["tags"] = {TAG: file.held}
    return action


def _added(path: str, size: int, partition: Mapping[str, str | None], stats: str, *, data_change: bool) -> Action:
    return {
        "add": {
            "path": path,
            "partitionValues": partition,
            "size": size,
            "modificationTime": int(time.time() * 1000),
            "dataChange": data_change,
            "stats": stats,
        }
    }


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
                "minValues": {name: _bound(self._low[name]) for name in known},
                # Delta stores milliseconds, so the upper bound is rounded up.
                "maxValues": {name: _bound(self._high[name], ALMOST_A_MILLISECOND) for name in known},
                "nullCount": self._nulls,
            }
        )


def _bound(value: Any, more: timedelta = timedelta()) -> Any:
    if not isinstance(value, datetime):
        return value
    value += more
    return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"
