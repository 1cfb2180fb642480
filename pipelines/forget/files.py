"""Rewrites Parquet files of a table without the rows of an erased client or principal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import xxhash

from kafka_telemetry_lake.pipelines.forget.rows import Rows
from kafka_telemetry_lake.pipelines.forget.subject import Subject
from kafka_telemetry_lake.pipelines.lake.durable import sync
from kafka_telemetry_lake.pipelines.lake.table_files import FileStatistics
from kafka_telemetry_lake.pipelines.tables.operator import TABLES

ROWS_AT_A_TIME = 65_536  # of the few columns that rules read
ROWS_IN_MEMORY = 262_144  # of all columns, and not more than a row group
BOUNDED = (pa.types.is_string, pa.types.is_integer, pa.types.is_timestamp)  # types whose bounds are in the log
DIFFERENCES = "DELTA_BINARY_PACKED"
ZSTD_LEVELS = {table.name: table.zstd_level for table in TABLES}
DELTAS_COLUMNS = 32  # that have bounds in the log of a table that names none


class Found(NamedTuple):
    """What a file has of the subject.

    Attributes:
        erased: rows that go.
        changed: other rows, in which a mention has to go.
        hidden: a text that no row has, in a dictionary of the file.
    """

    erased: int
    changed: int
    hidden: bool


@dataclass(frozen=True)
class Rewritten:
    """A file and the one that takes its place, as paths below the table.

    Attributes:
        rows: that the new file has.
        stats: Delta's statistics of the new file, as JSON.
    """

    old: str
    new: str
    old_size: int
    size: int
    rows: int
    stats: str


class TableFolder:
    """The Parquet files of one table.

    Args:
        name: the table's name.
        root: its folder in the file system.
        erasure: eight hex digits that the names of new files end with.
        bounded: columns with bounds in the log; empty: Delta's default.
    """

    def __init__(
        self, filesystem: pafs.FileSystem, name: str, root: str, subject: Subject, erasure: str, bounded: Sequence[str]
    ) -> None:
        self._filesystem, self._name, self._root = filesystem, name, root
        self._subject, self._erasure, self._bounded = subject, erasure, bounded

    def find(self, path: str) -> Found:
        """Look what a file has of the subject."""
        names = pq.read_schema(f"{self._root}/{path}", filesystem=self._filesystem)
        rule = Rows(self._subject, self._name, names.names)
        erased, changed, hidden = 0, 0, False
        texts = [name for name in rule.columns if pa.types.is_string(names.field(name).type)]
        with self._open(path, texts) as file:
            for batch in file.iter_batches(ROWS_AT_A_TIME, columns=rule.columns) if rule.columns else ():
                hidden = hidden or self._is_in_dictionary(batch, texts)
                rows = _plain_rows(batch)
                mask = rule.erased(rows)
                erased += pc.sum(mask).as_py() or 0
                changed += rule.without_mentions(rows.filter(pc.invert(mask)))[1]
        return Found(erased, changed, hidden)

    def rewrite(self, path: str) -> Rewritten:
        """Write the file that takes the place of one. A file that an interrupted run has written is used."""
        new = new_name(path, self._erasure)
        if self._filesystem.get_file_info(f"{self._root}/{new}").type == pafs.FileType.NotFound:
            self._write(path, new)
        old_size, size = (self._filesystem.get_file_info(f"{self._root}/{each}").size for each in (path, new))
        with self._open(new) as file:
            columns = self._bounded or file.schema_arrow.names[:DELTAS_COLUMNS]
            columns = [name for name in columns if name in file.schema_arrow.names and _is_bounded(file, name)]
            statistics = FileStatistics(columns)
            for batch in file.iter_batches(ROWS_AT_A_TIME, columns=columns):
                statistics.add(_plain_rows(batch))
            number = file.metadata.num_rows
        statistics.rows = number
        return Rewritten(path, new, old_size, size, number, statistics.to_json())

    def _write(self, path: str, new: str) -> None:
        part = f"{self._root}/{new}.part"
        with self._open(path) as file:
            schema = pa.schema([_plain(field) for field in file.schema_arrow])
            rule = Rows(self._subject, self._name, schema.names)
            with pq.ParquetWriter(
                part,
                schema,
                filesystem=self._filesystem,
                compression="zstd",
                compression_level=ZSTD_LEVELS.get(self._name, 1),
                store_schema=False,
                **_encodings(file),
            ) as writer:
                for number in range(file.num_row_groups):
                    for batch in file.iter_batches(ROWS_IN_MEMORY, row_groups=[number]):
                        rows = _plain_rows(batch)
                        rows, _ = rule.without_mentions(rows.filter(pc.invert(rule.erased(rows))))
                        if rows.num_rows:
                            writer.write_table(rows)
        sync(self._filesystem, [part])
        self._filesystem.move(part, f"{self._root}/{new}")

    def _is_in_dictionary(self, rows: pa.RecordBatch, columns: Sequence[str]) -> bool:
        """Whether a dictionary in the file has a text of the subject, even if no row has it.

        The operator's tasks write rows of some clients with the dictionary of all.
        """
        dictionaries = [rows[name].dictionary for name in columns if pa.types.is_dictionary(rows[name].type)]
        gone = pa.array(self._subject.gone, pa.string())
        return any(pc.any(pc.is_in(each.cast(pa.string()), gone)).as_py() for each in dictionaries)

    def _open(self, path: str, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
        return pq.ParquetFile(f"{self._root}/{path}", filesystem=self._filesystem, read_dictionary=list(dictionaries))


def new_name(path: str, erasure: str) -> str:
    """The name of the file that takes the place of one. It sorts among others as the old one does.

    A stream that has read some of a commit's files goes on by their order.
    """
    folder, slash, name = path.rpartition("/")
    stem, dot, suffixes = name.partition(".")
    if stem.endswith(f"~{erasure}"):  # it is one of this erasure itself, which has learned of another name since
        erasure = xxhash.xxh3_64_hexdigest(f"{erasure}{path}".encode())[:8]
    return f"{folder}{slash}{re.sub('~[0-9a-f]{8}$', '', stem)}~{erasure}{dot}{suffixes}"


def _plain_rows(rows: pa.RecordBatch) -> pa.Table:
    table = pa.Table.from_batches([rows])
    return table.cast(pa.schema([_plain(field) for field in table.schema]))


def _plain(field: pa.Field) -> pa.Field:
    """delta-rs' own DELETE and MERGE write string views, which Arrow can't compare."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    kinds = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary(), pa.large_string(): pa.string()}
    return field.with_type(kinds.get(kind, kind))


def _encodings(file: pq.ParquetFile) -> dict[str, Any]:
    """Options of a writer that encodes columns as a file does."""
    if file.num_row_groups == 0:
        return {}
    group = file.metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {
        "use_dictionary": [each.path_in_schema for each in columns if each.has_dictionary_page],
        "column_encoding": {
            each.path_in_schema: DIFFERENCES
            for each in columns
            if DIFFERENCES in each.encodings and not each.has_dictionary_page
        },
    }


def _is_bounded(file: pq.ParquetFile, name: str) -> bool:
    kind = file.schema_arrow.field(name).type
    return any(is_it(kind) for is_it in BOUNDED)
