"""The offsets that Spark notes in a checkpoint: where each batch of a Kafka source begins and ends.

Folder ``offsets`` has a file for each batch, written before the batch runs: a version, metadata, and a line of JSON for
each source with the offsets at the batch's end. Folder ``sources`` has the offsets that each source started from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow.fs as pafs

from kafka_telemetry_lake.pipelines.ingest.sources import Offsets
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of


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
