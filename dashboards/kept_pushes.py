"""Who pushed, kept in the server's memory: to count or list the instances of a range, only new files are read.

To sum up a million instances by their ids takes DuckDB seconds for each time range, as ids and attributes are texts.
Here each text is a number, pushes are in the order of time, and a range is a slice of them: the answers to questions
`totals` and `instances` are made of arrays. Of a lake of more pushes than `MOST_ROWS` the latest are kept; for what
is earlier, DuckDB answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from kafka_telemetry_lake.dashboards.pushed import TEXTS, TYPES, UNKNOWN, PushedInstances
from kafka_telemetry_lake.dashboards.questions import question
from kafka_telemetry_lake.pipelines.lake.stored_files import files_table
from kafka_telemetry_lake.pipelines.query.duckdb_tables import MILLISECOND, native_select, select_nothing
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES, PUSHES

MOST_ROWS = 3_000_000  # of pushes and of their groups, of 60 bytes each, besides the texts
TABLES = {table.name: table for table in (PUSHES, PUSH_OUTCOMES)}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
MOST_TEXT_BYTES = 2**28  # of the distinct texts
BATCH_ROWS, BATCH_BYTES = 500_000, 2**28  # whose texts are in memory at once
READ_ROWS = 16_384  # at a time: a column of texts of 32 KB each is below Arrow's 2 GB

Numbers = npt.NDArray[np.int64]
Columns = dict[str, npt.NDArray[Any]]


class _File(NamedTuple):
    table: str
    path: str
    rows: int
    latest: datetime


@dataclass(frozen=True)
class _Kept:
    """All pushes after `since` in these files.

    Attributes:
        files: table and path of each.
        columns: in the order of `at`, in µs since 1970, and of equal ones the greater id first. Of a text its place in
            `texts`, of `instance` that in `instances`; -1: NULL.
        instances: cluster and id of each as one number.
    """

    files: frozenset[tuple[str, str]] = frozenset()
    since: int = -(2**62)
    columns: Columns = field(default_factory=lambda: {name: np.array([], kind) for name, kind in TYPES.items()})
    texts: Mapping[str, pa.Array] = field(default_factory=lambda: dict.fromkeys(TEXTS, pa.array([], pa.string())))
    instances: pa.Array = field(default_factory=lambda: pa.array([], pa.int64()))


class KeptPushes:
    """The latest pushes of a lake. For one thread at a time."""

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        self._most_rows = most_rows
        self._kept = _Kept()
        self._versions: tuple[int | None, ...] = ()
        self.is_of_all_files = False

    def keeps(self, start: datetime) -> bool:
        """Whether all pushes since this time are kept, as of the last call of `between`."""
        return self.is_of_all_files and _micros(start) > self._kept.since

    def between(
        self, cursor: duckdb.DuckDBPyConnection, tables: Mapping[str, DeltaTable], start: datetime, stop: datetime
    ) -> PushedInstances | None:
        """Who pushed in a time range; None: not all of these pushes are kept.

        Args:
            cursor: of a database that may read the lake; gets views of the tables.
            tables: the lake's `TABLES`, as far as they exist.
        """
        versions = _versions(tables)
        if versions != self._versions:
            self.is_of_all_files, self._versions = False, ()
            if not self._kept.files <= _live(tables):  # rows were moved, or erased and must not stay
                self._kept = _Kept()
            try:
                kept = _followed(cursor, tables, self._kept, self._most_rows)
            except OverflowError:  # hostile texts: SQL answers from now on
                self._most_rows, kept = 0, None
            if kept is None or _versions(tables) != versions:  # another thread has looked at the lake meanwhile
                return None
            self._kept, self._versions, self.is_of_all_files = kept, versions, True
        if not self.keeps(start):
            return None
        kept = self._kept
        begin, end = np.searchsorted(kept.columns["at"], [_micros(start), _micros(stop)])
        rows = {name: column[begin:end] for name, column in kept.columns.items()}
        return PushedInstances(rows, kept.texts, len(kept.instances))


def _versions(tables: Mapping[str, DeltaTable]) -> tuple[int | None, ...]:
    return tuple(tables[name].version() if name in tables else None for name in TABLES)


def _live(tables: Mapping[str, DeltaTable]) -> frozenset[tuple[str, str]]:
    """Table and path of each file."""
    return frozenset(
        (_name(table), path) for table in tables.values() for path in files_table(table)["path"].to_pylist()
    )


def _name(table: DeltaTable) -> str:
    return table.table_uri.rstrip("/").rpartition("/")[2]


def _followed(
    cursor: duckdb.DuckDBPyConnection, tables: Mapping[str, DeltaTable], kept: _Kept, most_rows: int
) -> _Kept | None:
    """What is kept of the files of these tables; None: a file doesn't say how many rows it has, or of when.

    Args:
        kept: what is known of them before.

    Raises:
        OverflowError: the distinct texts have more than `MOST_TEXT_BYTES`.
    """
    listed = [_files(table) for table in tables.values()]
    known = [file for files in listed if files is not None for file in files]
    if None in listed:
        return None
    files = frozenset((file.table, file.path) for file in known)
    new = sorted((file for file in known if (file.table, file.path) not in kept.files), key=_latest, reverse=True)
    counts = np.cumsum([0, *(file.rows for file in new)])
    read = new[: int(np.searchsorted(counts, most_rows, "right")) - 1]
    since = max([kept.since, *(_micros(file.latest + MILLISECOND) for file in new[len(read) : len(read) + 1])])
    for name, table in TABLES.items():
        paths = [file.path for file in read if file.table == name]
        delta = tables.get(name)
        select = native_select(cursor, delta, only=paths) if delta else select_nothing(cursor, table.schema)
        if select is None:
            return None
        cursor.execute(f'CREATE OR REPLACE TEMP VIEW "{name}" AS {select}')
    kept = replace(kept, since=since)
    parts = list[Columns]()
    for rows in _batches(cursor.sql(question("_kept_pushes").pretty).to_arrow_reader(READ_ROWS)):
        kept, columns = _numbered(kept, rows)
        if sum(texts.nbytes for texts in kept.texts.values()) > MOST_TEXT_BYTES:
            raise OverflowError
        parts.append(columns)
    return replace(_trimmed(_sorted(kept, parts), most_rows), files=files)


def _latest(file: _File) -> datetime:
    return file.latest


def _files(table: DeltaTable) -> list[_File] | None:
    """The files of a table; None: one doesn't say how many rows it has, or of when."""
    files = files_table(table)
    if not files.num_rows:
        return []
    has_times = "max" in files.column_names and files.schema.field("max").type.get_field_index("landed_at") >= 0
    latest = pc.struct_field(files["max"], "landed_at").to_pylist() if has_times else [None] * files.num_rows
    rows, paths = files["num_records"].to_pylist(), files["path"].to_pylist()
    if None in rows or None in latest:
        return None
    return [_File(_name(table), *each) for each in zip(paths, rows, latest, strict=True)]


def _batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The rows in a few large batches: of each batch, all texts that are known are looked at."""
    waiting = list[pa.RecordBatch]()
    for batch in reader:
        waiting.append(batch)
        count, size = sum(each.num_rows for each in waiting), sum(each.nbytes for each in waiting)
        if count >= BATCH_ROWS or size >= BATCH_BYTES:
            yield pa.concat_batches(waiting)
            waiting.clear()
    if waiting:
        yield pa.concat_batches(waiting)


def _numbered(kept: _Kept, batch: pa.RecordBatch) -> tuple[_Kept, Columns]:
    """A batch's columns with numbers in place of texts, and what is kept with the texts that are new."""
    at = batch.column("landed_at").cast(pa.int64()).to_numpy()
    batch = batch.filter(pa.array(at > kept.since))
    texts, columns = dict(kept.texts), Columns(at=at[at > kept.since])
    for name in TEXTS:
        texts[name], columns[name] = _codes(texts[name], batch.column(name).cast(pa.string()))
    clusters, ids = (columns[name].astype(np.int64) for name in ("cluster_id", "client_instance_id"))
    instances, columns["instance"] = _codes(kept.instances, pa.array((clusters + 1) << 32 | ids))
    interval = batch.column("push_interval_ms").cast(pa.int64())
    columns["interval"] = pc.fill_null(interval, UNKNOWN).to_numpy().astype(np.int32)
    terminating = batch.column("terminating").cast(pa.int8())
    columns["terminating"] = pc.fill_null(terminating, -1).to_numpy().astype(np.int8)
    columns["is_push"] = batch.column("is_push").to_numpy(zero_copy_only=False)
    return replace(kept, texts=texts, instances=instances), columns


def _codes(known: pa.Array, values: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int32]]:
    """Known and new distinct values, and the place of each value among them; -1: NULL."""
    encoded = values.dictionary_encode()
    merged = pa.concat_arrays([known, encoded.dictionary]).dictionary_encode()  # the known ones keep their places
    places = np.append(merged.indices.to_numpy()[len(known) :], np.int32(-1))
    return merged.dictionary, places[pc.fill_null(encoded.indices, -1).to_numpy()]


def _sorted(kept: _Kept, parts: list[Columns]) -> _Kept:
    """What is kept with new rows at their places: mostly all of them are later than what is known."""
    if not any(len(part["at"]) for part in parts):
        return kept
    new = {name: np.concatenate([part[name] for part in parts]) for name in TYPES}
    old = kept.columns
    place = int(np.searchsorted(old["at"], new["at"].min()))
    tail = {name: np.concatenate([old[name][place:], new[name]]) for name in new}
    ids = kept.texts["client_instance_id"].take(pa.array(tail["client_instance_id"]))
    keys = [("at", "ascending"), ("id", "descending")]
    order = pc.sort_indices(pa.table({"at": tail["at"], "id": ids}), keys).to_numpy()
    return replace(kept, columns={name: np.concatenate([old[name][:place], tail[name][order]]) for name in new})


def _trimmed(kept: _Kept, most_rows: int) -> _Kept:
    """The latest rows, and only the texts that they have."""
    cut = len(kept.columns["at"]) - most_rows
    if cut <= 0:
        return kept
    cut += most_rows // 4  # not again for each commit
    since = int(kept.columns["at"][cut - 1])
    later = np.searchsorted(kept.columns["at"], since, "right")
    columns, texts = {name: column[later:] for name, column in kept.columns.items()}, dict[str, pa.Array]()
    for name in TEXTS:
        texts[name], columns[name] = _used(kept.texts[name], columns[name])
    instances, columns["instance"] = _used(kept.instances, columns["instance"])
    clusters, ids = (columns[name].astype(np.int64) for name in ("cluster_id", "client_instance_id"))
    numbers = np.zeros(len(instances), np.int64)
    numbers[columns["instance"]] = (clusters + 1) << 32 | ids
    return replace(kept, since=max(kept.since, since), columns=columns, texts=texts, instances=pa.array(numbers))


def _used(values: pa.Array, codes: npt.NDArray[Any]) -> tuple[pa.Array, npt.NDArray[np.int32]]:
    """The values that these codes stand for, and their codes among them."""
    used = np.zeros(len(values) + 1, bool)
    used[codes] = True
    used[-1] = False  # -1: NULL
    places = np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)
    return values.filter(pa.array(used[:-1])), places[codes]


def _micros(time: datetime) -> int:
    return (time - EPOCH) // MICROSECOND
