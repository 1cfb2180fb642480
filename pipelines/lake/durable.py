"""Writes that survive a loss of power: a file is on the disk before anything names it; and small JSON files.

A local file system confirms a write when it is in memory, and writes it to the disk within half a minute, in any order.
So a name may survive without its content: a commit without the rows it adds, a manifest without the states. Object
stores confirm a write when it is safe, so nothing is to be done there.

JSON files in a table's folder have names that begin with an underscore, which Delta readers and VACUUM ignore.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow.fs as pafs
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of


def sync(filesystem: pafs.FileSystem, paths: Iterable[str]) -> None:
    """Return when these files, with their names in their folders, are on the disk. Missing files are ignored."""
    if not isinstance(filesystem, pafs.LocalFileSystem):
        return
    written = [path for path in paths if _sync(path)]
    for folder in {os.path.dirname(path) for path in written}:  # noqa: PTH120  # as Arrow names paths
        _sync(folder)


def sync_commit(table: DeltaTable) -> None:
    """Return when the commits after the table's known version are on the disk, with checkpoints of its log.

    delta-rs doesn't update a table that it commits to, and reading the log again would cost more than looking.
    """
    filesystem, root = filesystem_of(table.table_uri)
    if not isinstance(filesystem, pafs.LocalFileSystem):
        return
    log, version = f"{root}/_delta_log", int(table.version())
    if os.path.exists(f"{log}/{version + 1:020d}.json"):  # noqa: PTH110  # as Arrow names paths
        version += 1
    while os.path.exists(f"{log}/{version:020d}.json"):  # noqa: PTH110  # as Arrow names paths
        sync(filesystem, [f"{log}/{version:020d}.json"])
        checkpoint = f"{log}/{version:020d}.checkpoint.parquet"
        if os.path.exists(checkpoint):  # noqa: PTH110  # likewise
            sync(filesystem, [checkpoint, f"{log}/_last_checkpoint"])
        version += 1


def _sync(path: str) -> bool:
    """Whether there is such a file or folder."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True


def write_json(filesystem: pafs.FileSystem, path: str, content: Mapping[str, Any], *, durable: bool = True) -> None:
    """Write a file atomically: under a temporary name, then rename it.

    Args:
        durable: return when it is on the disk.
    """
    text = json.dumps(content)
    with filesystem.open_output_stream(f"{path}.tmp") as stream:
        stream.write(text.encode())
    if durable:
        sync(filesystem, [f"{path}.tmp"])
    filesystem.move(f"{path}.tmp", path)
    if durable:
        sync(filesystem, [path])


def read_json(filesystem: pafs.FileSystem, path: str) -> dict[str, Any] | None:
    """The content of a file; None if there is no file."""
    try:
        with filesystem.open_input_file(path) as stream:
            content: dict[str, Any] = json.loads(stream.read())
    except FileNotFoundError:
        return None
    return content
