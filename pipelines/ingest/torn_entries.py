"""Entries of Spark's checkpoints that a loss of power has torn.

Spark writes an entry when a batch begins (folder ``offsets``) and another when it has ended (``commits``), and doesn't
wait for the disk. The job does so when a batch begins, for its entry and for the end of the batch before
(`durable.sync`). So at most the last entry of each folder may be torn, of a batch that has written nothing, or that has
ended. Spark can't start from it. Without it, Spark runs the batch again, which changes no row.
"""

from __future__ import annotations

import json
import logging

import pyarrow.fs as pafs

from kafka_telemetry_lake.pipelines.ingest.checkpoint import batches_of
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of

log = logging.getLogger("telemetry-lake")
LOGS = ("offsets", "commits")


def entries(root: str, batch: int) -> list[str]:
    """The files in which Spark notes that a batch has begun, and that the one before it has ended."""
    named = [("offsets", batch), ("commits", batch - 1)]
    return [f"{root}/{folder}/{name}" for folder, number in named for name in (str(number), f".{number}.crc")]


def drop_torn_entries(checkpoints: str) -> None:
    """Delete the last entry of each checkpoint's logs if it isn't whole. Object stores tear none."""
    filesystem, root = filesystem_of(checkpoints)
    if not isinstance(filesystem, pafs.LocalFileSystem):
        return
    for info in filesystem.get_file_info(pafs.FileSelector(root, allow_not_found=True)):
        for folder in LOGS:
            if batches := batches_of(filesystem, info.path, folder):
                _drop_if_torn(filesystem, f"{info.path}/{folder}", max(batches))


def _drop_if_torn(filesystem: pafs.FileSystem, folder: str, batch: int) -> None:
    entry, checksum = f"{folder}/{batch}", f"{folder}/.{batch}.crc"
    if _is_whole(filesystem, entry) and filesystem.get_file_info(checksum).size != 0:
        return
    for path in (entry, checksum):
        if filesystem.get_file_info(path).type == pafs.FileType.File:
            filesystem.delete_file(path)
    log.warning("ingest: entry %d of %s was torn, probably by a loss of power: its batch runs again", batch, folder)


def _is_whole(filesystem: pafs.FileSystem, path: str) -> bool:
    """Whether an entry has its version and JSON on each line after it."""
    with filesystem.open_input_file(path) as stream:
        lines = bytes(stream.read()).decode(errors="replace").splitlines()
    try:
        for line in lines[1:]:
            if line != "-":  # a source without an offset yet
                json.loads(line)
    except ValueError:
        return False
    return len(lines) > 1 and lines[0].lstrip("\0").startswith("v")
