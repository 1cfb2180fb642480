"""What an erasure does to the history of tables: a commit that replaces files, and later the end of what was before.

A log isn't meant to be changed, and is not. The commit removes the old files and adds the new ones: a reader that
follows the log sees a delete. A checkpoint at this commit lets the log forget what was before it, once that is older
than the table's retention. Then the old files go too, and nothing is left.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from kafka_telemetry_lake.pipelines.forget.files import Rewritten
from kafka_telemetry_lake.pipelines.lake.durable import sync
from kafka_telemetry_lake.pipelines.lake.erased_files import APP_ID, ErasedFiles, erased_files
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.transactions import transaction
from kafka_telemetry_lake.pipelines.tables.table import table_uri
from kafka_telemetry_lake.udfs.kernels.arrays import one_chunk

OF_LOG = re.compile(r"(\d{20})\.(?:json|checkpoint\b.*\.parquet)")
Action = dict[str, Any]


def commit(uri: str, files: Iterable[Rewritten], fence: Fence | None) -> int:
    """Let a table's latest version have the new files in place of the old ones. No other writer may remove files now.

    Returns:
        The version, of which the log has a checkpoint.

    Raises:
        FencedError: the table has a commit of a higher epoch.
    """
    table = DeltaTable(uri)
    active = {unquote(row["path"]): row["path"] for row in pa.table(table.get_add_actions()).to_pylist()}
    now = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = []
    for file in files:
        if file.old in active:
            partition = dict(re.findall(r"([^/=]+)=([^/]*)/", file.old))
            actions.append(RemoveAction(active[file.old], True, now, file.old_size, partition))
            if file.rows:
                actions.append(AddAction(_encoded(file.new), file.size, partition, now, True, file.stats))
    done = table.transaction_version(APP_ID)
    table.create_write_transaction(
        actions,
        mode="append",
        schema=table.schema(),
        partition_by=table.metadata().partition_columns,
        commit_properties=transaction({APP_ID: 0 if done is None else done + 1}, table, fence),
    )
    table = DeltaTable(uri)
    table.create_checkpoint()
    return int(table.version())


def rename_in_list(filesystem: pafs.FileSystem, path: str, files: Iterable[Rewritten]) -> None:
    """Let a list of a table's files, as a snapshot of the state has one, name the new ones."""
    new = {file.old: file for file in files}
    table = pq.read_table(path, filesystem=filesystem)
    rows = [number for number, old in enumerate(table["path"].to_pylist()) if unquote(old) in new]
    if not rows:
        return
    values, pieces, done = one_chunk(table.to_struct_array()), list[pa.Array](), 0
    for row in rows:
        pieces += [values.slice(done, row - done), pa.array([_renamed(values[row].as_py(), new)], values.type)]
        done = row + 1
    renamed = pa.chunked_array([*pieces, values.slice(done)], values.type)
    pq.write_table(pa.Table.from_struct_array(renamed), f"{path}.part", filesystem=filesystem)
    sync(filesystem, [f"{path}.part"])
    filesystem.move(f"{path}.part", path)


def _renamed(row: Action, new: Mapping[str, Rewritten]) -> Action:
    """A row of `DeltaTable.get_add_actions`. Bounds of numbers and times hold for the rows that are left."""
    file = new[unquote(row["path"])]
    row |= {"path": _encoded(file.new), "size_bytes": file.size, "num_records": file.rows, "null_count": None}
    for side in ("min", "max"):
        row[side] = row[side] and {name: None if isinstance(bound, str) else bound for name, bound in row[side].items()}
    return row


def clear(lake: str, now: datetime) -> list[str]:
    """End the history before each erasure whose retention is over. Safe while the job runs, and after a crash.

    Returns:
        The erasures of which nothing is left now.
    """
    cleared = []
    for each in erased_files(lake):
        if each.gone_at is not None or now < each.due:
            continue
        forgotten = [_is_forgotten(table_uri(lake, name), version) for name, version in each.versions.items()]
        if all(forgotten):
            _delete_files(lake, each)
            replace(each, gone_at=now.isoformat(), versions={}, files={}).write(lake)
            cleared.append(each.erasure)
    return cleared


def _is_forgotten(uri: str, version: int) -> bool:
    """Let a table's log forget what is before a version; returns whether it has."""
    DeltaTable(uri).cleanup_metadata()
    filesystem, root = filesystem_of(f"{uri}/_delta_log")
    names = [info.base_name for info in filesystem.get_file_info(pafs.FileSelector(root))]
    return all(int(match[1]) >= version for name in names if (match := OF_LOG.fullmatch(name)))


def _delete_files(lake: str, erased: ErasedFiles) -> None:
    for name, files in erased.files.items():
        filesystem, root = filesystem_of(table_uri(lake, name))
        for info in filesystem.get_file_info([f"{root}/{old}" for old in files]):
            if info.type == pafs.FileType.File:  # else VACUUM was first
                filesystem.delete_file(info.path)


def _encoded(path: str) -> str:
    return quote(path, safe="/=~")
