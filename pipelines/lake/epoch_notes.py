"""Notes of a process that writes a lake: small JSON files of which only that of the highest epoch counts.

A process that was taken over may still write its notes, at any later time. They have its epoch in their names, so they
are passed over.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

import pyarrow.fs as pafs

from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.json_files import read_json, write_json
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of


class EpochNote:
    """A note in a folder: the file ``<stem>-e<epoch>.json``.

    Args:
        uri: the folder.
        stem: name of the note.
        fence: the claim of this process; None: its epoch is that of the note, else 0: nothing else writes the lake.
    """

    def __init__(self, uri: str, stem: str, fence: Fence | None = None) -> None:
        self._filesystem, self._root = filesystem_of(uri)
        self._stem, self._epoch = stem, None if fence is None else fence.epoch

    @property
    def path(self) -> str:
        """The note that counts, or that would be written."""
        return self._path(max(self._stored(), default=self._epoch or 0))

    def read(self) -> dict[str, Any] | None:
        """The content; None: there is no note."""
        while epochs := self._stored():
            content = read_json(self._filesystem, self._path(max(epochs)))
            if content is not None:  # else a process that was taken over has written its own and deleted this one
                return content
        return None

    def write(self, content: Mapping[str, Any]) -> None:
        """Write the note of this process's epoch; those of lower ones go."""
        epochs = self._stored()
        own = max(epochs, default=0) if self._epoch is None else self._epoch
        write_json(self._filesystem, self._path(own), content)
        for epoch in epochs:
            if epoch < own:
                self._drop(epoch)

    def delete(self) -> None:
        """Delete the note, if there is one."""
        for epoch in self._stored():
            if self._epoch is None or epoch <= self._epoch:
                self._drop(epoch)

    def _drop(self, epoch: int) -> None:
        with contextlib.suppress(FileNotFoundError):  # a process that was taken over deletes those before it, too
            self._filesystem.delete_file(self._path(epoch))

    def _stored(self) -> list[int]:
        pattern = rf"{self._stem}-e(\d{{12}})\.json"
        entries = self._filesystem.get_file_info(pafs.FileSelector(self._root, allow_not_found=True))
        return [int(match[1]) for entry in entries if (match := re.fullmatch(pattern, entry.base_name))]

    def _path(self, epoch: int) -> str:
        return f"{self._root}/{self._stem}-e{epoch:012d}.json"
