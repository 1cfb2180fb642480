"""The folder of a lake's checkpoints; one of its own for a job that took over from another that may still run.

A job writes offsets, states and notes there by many small steps, and not all are atomic: Spark looks whether an entry
exists, then renames. So a job that takes over copies the folder once no table accepts a commit of the job before any
more (`fence`). What that one still writes goes to the old folder, which nobody reads. State files, which are never
written twice, get another name in a local folder (hard links); an object store copies.
"""

from __future__ import annotations

import logging
import os
import re

import pyarrow.fs as pafs
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.delta_log import CommitLog
from kafka_telemetry_lake.pipelines.lake.durable import sync
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.paths import checkpoints_root, filesystem_of
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.table import table_uri

log = logging.getLogger("telemetry-lake")

COPY = re.compile(r"epoch-(\d{12})")
WHOLE = "_whole"  # in a copy: all of it is there


def checkpoints_of(lake: str, checkpoints: str | None = None) -> str:
    """The folder of the lake's checkpoints: in the one given, otherwise in the one inside the lake."""
    return _current(checkpoints_root(lake, checkpoints))


def own_checkpoints(lake: str, checkpoints: str | None, fence: Fence) -> str:
    """The folder of the checkpoints of a job that begins: a copy, if it took over.

    Before that all tables get its epoch.

    Raises:
        FencedError: another job has taken over meanwhile.
    """
    root = checkpoints_root(lake, checkpoints)
    if fence.took_over:
        for name in CATALOG:
            if DeltaTable.is_deltatable(table_uri(lake, name)):
                CommitLog(table_uri(lake, name), fence)
    current = _current(root)  # not before: a job that can still commit may be about to finish a copy of its own
    if (copied := COPY.fullmatch(current.rpartition("/")[2])) and int(copied[1]) > fence.epoch:
        raise fence.lose(int(copied[1]))
    if not fence.took_over:
        drop_old(lake, checkpoints)
        return current
    copy = table_uri(root, f"epoch-{fence.epoch:012d}")
    files = _copy(current, copy)
    log.info("took over from another job; goes on with a copy of its checkpoints (%d files)", files)
    return copy


def drop_old(lake: str, checkpoints: str | None = None) -> None:
    """Delete what was copied. Another job that still writes there writes for nobody."""
    root = checkpoints_root(lake, checkpoints)
    current = _current(root)
    if current == root:
        return
    filesystem, path = filesystem_of(root)
    newest = current.rpartition("/")[2]
    copied = {info.base_name for info in filesystem.get_file_info(pafs.FileSelector(f"{path}/{newest}"))}
    for info in filesystem.get_file_info(pafs.FileSelector(path)):
        is_old_copy = COPY.fullmatch(info.base_name) is not None and info.base_name < newest
        if not is_old_copy and info.base_name not in copied:
            continue  # someone else's, or a later copy that is being made
        if info.type == pafs.FileType.Directory:
            _delete_folder(filesystem, info.path)
        else:
            filesystem.delete_file(info.path)


def _delete_folder(filesystem: pafs.FileSystem, path: str) -> None:
    """Innermost folders first: Arrow names outer ones first, and a store over a file system refuses those."""
    below = filesystem.get_file_info(pafs.FileSelector(path, recursive=True))
    folders = [info.path for info in below if info.type == pafs.FileType.Directory]
    for folder in (*sorted(folders, reverse=True), path):
        filesystem.delete_dir(folder)


def _current(root: str) -> str:
    filesystem, path = filesystem_of(root)
    entries = filesystem.get_file_info(pafs.FileSelector(path, allow_not_found=True))
    for name in sorted((entry.base_name for entry in entries if COPY.fullmatch(entry.base_name)), reverse=True):
        if filesystem.get_file_info(f"{path}/{name}/{WHOLE}").type != pafs.FileType.NotFound:
            return table_uri(root, name)
    return root


def _copy(source: str, target: str) -> int:
    """Copy a folder whose files may be replaced or deleted meanwhile; returns the number of files."""
    filesystem, root = filesystem_of(source)
    _, to = filesystem_of(target)
    filesystem.create_dir(to, recursive=True)
    copied = []
    for info in filesystem.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=True)):
        name = info.path[len(root) :].lstrip("/")
        if info.type != pafs.FileType.File or COPY.match(name) or name == WHOLE or name.endswith((".tmp", ".part")):
            continue
        folder = f"{to}/{name}".rpartition("/")[0]
        filesystem.create_dir(folder, recursive=True)
        try:
            if isinstance(filesystem, pafs.LocalFileSystem) and info.extension == "state":
                os.link(info.path, f"{to}/{name}")
            else:
                filesystem.copy_file(info.path, f"{to}/{name}")
        except FileNotFoundError:  # no manifest that counts names it
            continue
        copied.append(f"{to}/{name}")
    sync(filesystem, copied)
    with filesystem.open_output_stream(f"{to}/{WHOLE}") as stream:
        stream.write(b"whole")  # some stores refuse an empty file
    sync(filesystem, [f"{to}/{WHOLE}"])
    return len(copied)
