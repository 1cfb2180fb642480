"""Lets a table's log name the rewritten files, in every version, so that no old file has to stay for one.

A Delta log isn't meant to be changed. If it weren't, each position in it that the job notes would be lost: the
operator's, the lifecycle's, a stream's, a snapshot's, that of a sink. So first a commit removes the old files and adds
the new ones: a reader that follows the log sees a delete, as one by any program. Then the entries before it are
changed, the newest first. At any point, and so after any crash, each row is in exactly one file of the latest version:
the commit removes the old files, and an entry that removes a new file is changed before the one that adds it.
"""

from __future__ import annotations

import json
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from kafka_telemetry_lake.pipelines.forget.files import Rewritten
from kafka_telemetry_lake.pipelines.forget.rows import patterns, replaced
from kafka_telemetry_lake.pipelines.lake.durable import sync
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.transactions import transaction
from kafka_telemetry_lake.udfs.kernels.columns import one_chunk

APP_ID = "kafka-telemetry-lake:forget"
THREADS = 8  # that read entries: of an object store each takes a while
ENTRY, CHECKPOINT = re.compile(r"(\d{20})\.json"), re.compile(r"(\d{20})\.checkpoint\b.*\.parquet")
SHORTEST_PREFIX = 8  # of a bound that may be the beginning of a text: writers cut long ones
SIDES = ("minValues", "maxValues")
Action = dict[str, Any]


class TableHistory:
    """The log of one table.

    Args:
        uri: of the table.
        texts: of which the log may have no trace.
        fence: the claim under which commits are made.
    """

    def __init__(self, uri: str, texts: Collection[str], fence: Fence | None = None) -> None:
        self._uri, self._fence = uri, fence
        self._filesystem, self._root = filesystem_of(f"{uri}/_delta_log")
        self._texts, self._patterns = sorted(texts), patterns(texts)

    def commit(self, files: Iterable[Rewritten]) -> None:
        """Remove the old files and add the new ones, in one commit. No other writer may remove files meanwhile.

        Raises:
            FencedError: the table has a commit of a higher epoch.
        """
        table = DeltaTable(self._uri)
        active = {unquote(row["path"]): row for row in pa.table(table.get_add_actions()).to_pylist()}
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = []
        for file in files:
            row = active.get(file.old)
            old, new = (_encoded(file.old) if row is None else row["path"]), _encoded(file.new)
            partition = dict(re.findall(r"([^/=]+)=([^/]*)/", file.old))
            actions.append(RemoveAction(old, True, now, file.old_size, partition))
            if row is not None and file.rows:
                actions.append(AddAction(new, file.size, partition, now, True, file.stats))
            elif not file.rows:  # its entries will name the new file, which has no rows
                actions.append(RemoveAction(new, True, now, file.size, partition))
        if actions:
            done = table.transaction_version(APP_ID)
            table.create_write_transaction(
                actions,
                mode="append",
                schema=table.schema(),
                partition_by=table.metadata().partition_columns,
                commit_properties=transaction(APP_ID, 0 if done is None else done + 1, table, self._fence),
            )

    def rename(self, files: Iterable[Rewritten], write: bool = True) -> int:
        """Change the entries and checkpoints that name the old files, or have texts in their statistics.

        Args:
            write: False: only count.

        Returns:
            Their number.
        """
        new = {file.old: file for file in files}
        names = [info.base_name for info in self._filesystem.get_file_info(pafs.FileSelector(self._root))]
        changed = [
            (int(match[1]), name) for name in names if (match := CHECKPOINT.fullmatch(name) or ENTRY.fullmatch(name))
        ]

        def look(entry: tuple[int, str]) -> bool:
            data = self._read(entry[1])
            return self._changed(entry[1], data, new) != data

        with ThreadPoolExecutor(THREADS) as threads:
            changed = [entry for entry, differs in zip(changed, threads.map(look, changed), strict=True) if differs]
        for _, name in sorted(changed, reverse=True) if write else ():
            path = f"{self._root}/{name}"
            with self._filesystem.open_output_stream(f"{path}.part") as stream:
                stream.write(self._changed(name, self._read(name), new))
            sync(self._filesystem, [f"{path}.part"])
            self._filesystem.move(f"{path}.part", path)
        if write and changed:
            sync(self._filesystem, [self._root])
        return len(changed)

    def rename_in_list(self, filesystem: pafs.FileSystem, path: str, files: Iterable[Rewritten], write: bool) -> bool:
        """Change a list of the table's files, as a snapshot has one; returns whether it needed a change."""
        new = {file.old: file for file in files}
        table = pq.read_table(path, filesystem=filesystem)
        rows = [number for number, row in enumerate(table.to_pylist())
                if unquote(row["path"]) in new or self._is_named(_bounds(row))]  # fmt: skip
        if rows and write:
            values = _with_rows(one_chunk(table.to_struct_array()), rows, partial(_renamed_row, new=new))
            pq.write_table(pa.Table.from_struct_array(values), f"{path}.part", filesystem=filesystem)
            sync(filesystem, [f"{path}.part"])
            filesystem.move(f"{path}.part", path)
        return bool(rows)

    def _read(self, name: str) -> bytes:
        with self._filesystem.open_input_file(f"{self._root}/{name}") as stream:
            data: bytes = stream.read()
        return data

    def _changed(self, name: str, data: bytes, new: Mapping[str, Rewritten]) -> bytes:
        return self._entry(data, new) if name.endswith(".json") else self._checkpoint(data, new)

    def _entry(self, data: bytes, new: Mapping[str, Rewritten]) -> bytes:
        lines = data.split(b"\n")  # not at other ends of lines: names of clients may have them
        actions: list[Action] = [json.loads(line) if line.strip() else {} for line in lines]
        own = any(action.get("txn", {}).get("appId") == APP_ID for action in actions)
        for number, action in enumerate(actions):
            changed = False
            for kind, fields in action.items():
                if kind == "add" or (kind == "remove" and not own):
                    changed = self._renamed(fields, new)
                elif kind == "commitInfo":  # it has the predicate of a DELETE, say
                    changed = (rest := replaced(fields, self._patterns)) != fields
                    action[kind] = rest
            if changed:
                lines[number] = json.dumps(action, separators=(",", ":")).encode()
        return b"\n".join(lines)

    def _checkpoint(self, data: bytes, new: Mapping[str, Rewritten]) -> bytes:
        table = pq.read_table(pa.BufferReader(data))
        result = table
        added = set(_paths(table, "add"))
        # A removed file that is named here only says what VACUUM has to leave for a while.
        removed = {old: file for old, file in new.items() if file.new not in added}
        for kind, renamed in (("add", new), ("remove", removed)):
            actions = zip(_paths(table, kind), _field(table, kind, "stats"), strict=True)
            rows = [row for row, (path, stats) in enumerate(actions) if path in renamed or self._is_named(stats)]
            if rows:
                values = _with_rows(one_chunk(table[kind]), rows, partial(self._renamed, new=renamed))
                result = result.set_column(table.schema.get_field_index(kind), table.schema.field(kind), values)
        if result is table:
            return data
        sink = pa.BufferOutputStream()
        pq.write_table(result, sink, compression="snappy")
        return bytes(sink.getvalue())

    def _renamed(self, fields: Action, new: Mapping[str, Rewritten]) -> bool:
        """Change the fields of an action; returns whether it had to be changed."""
        file, stats = new.get(unquote(fields["path"])), fields.get("stats")
        if file is not None:
            folder, slash, _ = fields["path"].rpartition("/")
            fields["path"], fields["size"] = folder + slash + _encoded(file.new.rpartition("/")[2]), file.size
            fields["stats"] = stats if stats is None else file.stats
        elif self._is_named(stats):
            content = json.loads(fields["stats"])
            for side in SIDES:
                content[side] = {name: bound for name, bound in content[side].items() if not self._is_bound(bound)}
            fields["stats"] = json.dumps(content)
        else:
            return False
        return True

    def _is_named(self, stats: str | None) -> bool:
        """Whether a bound in statistics names one of the texts."""
        if not stats or not self._texts:
            return False
        content = json.loads(stats)
        return any(self._is_bound(bound) for side in SIDES for bound in content.get(side, {}).values())

    def _is_bound(self, bound: Any) -> bool:
        """Whether a bound is one of the texts, or the beginning of one. Writers cut long bounds."""
        if not isinstance(bound, str):
            return False
        if len(bound) <= SHORTEST_PREFIX:
            return bound in self._texts
        start = bound[:-1]  # the last character of a bound that was cut may have been raised
        near = bisect_left(self._texts, start)
        return near < len(self._texts) and self._texts[near].startswith(start)


def _bounds(row: Action) -> str:
    """The bounds of a row of `DeltaTable.get_add_actions` as Delta's statistics."""
    return json.dumps({f"{side}Values": {name: bound for name, bound in (row[side] or {}).items()
                                         if isinstance(bound, str)} for side in ("min", "max")})  # fmt: skip


def _renamed_row(row: Action, new: Mapping[str, Rewritten]) -> None:
    """Change a row of `DeltaTable.get_add_actions`. Bounds of numbers and times hold for the rows that are left."""
    file = new.get(unquote(row["path"]))
    if file is not None:
        folder, slash, _ = row["path"].rpartition("/")
        row["path"] = folder + slash + _encoded(file.new.rpartition("/")[2])
        row["size_bytes"], row["num_records"] = file.size, file.rows
        row["null_count"] = None
    for side in ("min", "max"):
        row[side] = row[side] and {name: None if isinstance(bound, str) else bound
                                   for name, bound in row[side].items()}  # fmt: skip


def _with_rows(values: pa.Array, rows: Iterable[int], change: Callable[[Action], Any]) -> pa.ChunkedArray:
    """The values with some of them changed; a log's checkpoint has a row for each file."""
    pieces, done = [], 0
    for row in rows:
        fields = values[row].as_py()
        change(fields)
        pieces += [values.slice(done, row - done), pa.array([fields], values.type)]
        done = row + 1
    return pa.chunked_array([*pieces, values.slice(done)], values.type)


def _encoded(path: str) -> str:
    return quote(path, safe="/=~")


def _field(table: pa.Table, kind: str, name: str) -> list[Any]:
    values: list[Any] = pc.struct_field(one_chunk(table[kind]), name).to_pylist()
    return values


def _paths(table: pa.Table, kind: str) -> list[str | None]:
    return [path if path is None else unquote(path) for path in _field(table, kind, "path")]
