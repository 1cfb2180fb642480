"""Spark's log of a checkpoint: where each batch of a Kafka source begins and ends, and entries that were torn.

Folder ``offsets`` has a file for each batch, written before the batch runs: a version, metadata, and a line of JSON for
each source with the offsets at the batch's end. Folder ``sources`` has the offsets that each source started from.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow.fs as pafs

from kafka_telemetry_lake.pipelines.ingest.checkpoint import batches_of
from kafka_telemetry_lake.pipelines.ingest.sources import Offsets
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of

log = logging.getLogger("telemetry-lake")

LOGS = ("offsets", "commits")


@dataclass
class OffsetLog:
    """The offsets of the batches that a query runs, of which each entry is read once.

    Attributes:
        checkpoint: folder of the query's checkpoint.
    """

    checkpoint: str
    _last: tuple[int, Offsets, Offsets] = field(default=(-2, {}, {}), init=False)  # a batch, where it begins and ends

    def of_batch(self, batch: int) -> tuple[Offsets, Offsets]:
        """Where a batch begins and ends; nothing of files."""
        last, begin, end = self._last
        if batch != last:
            filesystem, root = filesystem_of(self.checkpoint)
            begin = end if batch == last + 1 else end_of(filesystem, root, batch - 1)
            end = end_of(filesystem, root, batch)
            self._last = batch, begin, end
        return begin, end

    def topics_of_batch(self, batch: int) -> set[str] | None:
        """The topics of which a batch has records; None: it isn't known, as of files."""
        begin, end = self.of_batch(batch)
        return {topic for topic in end if end[topic] != begin.get(topic)} if end else None


def end_of(filesystem: pafs.FileSystem, root: str, batch: int) -> Offsets:
    """Where a batch ends, and the next begins; -1: where the first begins. Empty for files, which have no offsets."""
    if batch >= 0:
        return _merged(_lines(filesystem, f"{root}/offsets/{batch}")[1:])  # without the metadata
    folders = filesystem.get_file_info(pafs.FileSelector(f"{root}/sources", allow_not_found=True))
    return _merged(line for folder in folders for line in _lines(filesystem, f"{folder.path}/0"))


def _lines(filesystem: pafs.FileSystem, path: str) -> list[str]:
    """The lines of a log's entry; none if it doesn't exist."""
    if filesystem.get_file_info(path).type == pafs.FileType.NotFound:
        return []
    with filesystem.open_input_file(path) as stream:
        return bytes(stream.read()).decode().splitlines()[1:]  # without the version


def _merged(lines: Iterable[str]) -> Offsets:
    offsets: dict[str, dict[int, int]] = {}
    for line in lines:
        if not line.startswith("{"):  # "-": a source without any offset yet
            continue
        for topic, partitions in json.loads(line).items():
            if isinstance(partitions, Mapping):
                offsets[topic] = {int(number): offset for number, offset in partitions.items()}
    return offsets


def entries(root: str, batch: int) -> list[str]:
    """The files in which Spark notes that a batch has begun, and that the one before it has ended."""
    named = [("offsets", batch), ("commits", batch - 1)]
    return [f"{root}/{folder}/{name}" for folder, number in named for name in (str(number), f".{number}.crc")]


def drop_torn_entries(checkpoints: str) -> None:
    """Delete the last entry of each checkpoint's logs if a loss of power has torn it. Object stores tear none.

    Spark writes an entry when a batch begins (folder ``offsets``) and another when it has ended (``commits``), and
    doesn't wait for the disk. The job does so when a batch begins, for its entry and for the end of the batch before
    (`durable.sync`). So at most the last entry of each folder may be torn, of a batch that has written nothing, or
    that has ended. Spark can't start from it. Without it, Spark runs the batch again, which changes no row.
    """
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
