"""Notes: JSON files with a format number and a checksum. A damaged one, or one of another format, is refused.

How far a consumer of a table is stands in the commit of its result (Delta's `txn`, see `follower.Position`). Where the
result is no commit, it stands in a `FencedNote`. A process that was taken over may still write its notes, at any later
time. They have its epoch in their names, so they are passed over.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow.fs as pafs
import xxhash

from kafka_telemetry_lake.pipelines.lake.durable import write_json
from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError, check_format

FORMAT = 1  # of all notes
CHECKSUM = "xxh3"  # the field: xxh3-64 in hex of the other fields as canonical JSON


class DamagedNoteError(TelemetryLakeError):
    """The content differs from what was written; the message says where."""


class FencedNote:
    """A note in a folder: the file ``<name>-e<epoch>.json``. Only that of the highest epoch counts.

    Args:
        uri: the folder, such as that of a table; Delta's readers and VACUUM ignore names with an underscore.
        name: of the note.
        fields: names of the content's fields.
        advice: what to do about one that can't be used, for an error.
        fence: the lease of this process; None: its epoch is that of the note, else 0: nothing else writes the note.
    """

    def __init__(self, uri: str, name: str, fields: Iterable[str], advice: str, fence: Fence | None = None) -> None:
        self._filesystem, self._root = filesystem_of(uri)
        self._name, self._fields, self._advice = name, tuple(fields), advice
        self._epoch = None if fence is None else fence.epoch

    @property
    def path(self) -> str:
        """The note that counts, or that would be written."""
        return self._path(max(self._stored(), default=self._epoch or 0))

    def read(self) -> dict[str, Any] | None:
        """The content; None: there is no note.

        Raises:
            StateError: it is damaged.
            OtherFormatError: it has another format.
        """
        while epochs := self._stored():
            path = self._path(max(epochs))
            try:
                with self._filesystem.open_input_file(path) as stream:
                    data = stream.read()
            except FileNotFoundError:  # a process that was taken over has written its own and deleted this one
                continue
            try:
                return read_note(data, self._fields, path, f"{self._advice}, or use the build that wrote it")
            except DamagedNoteError as error:
                raise self.damaged(error) from None
        return None

    def write(self, content: Mapping[str, Any]) -> None:
        """Write the note of this process's epoch, which is on the disk then; those of lower epochs go."""
        epochs = self._stored()
        own = max(epochs, default=0) if self._epoch is None else self._epoch
        write_json(self._filesystem, self._path(own), sealed(content))
        for epoch in epochs:
            if epoch < own:
                self._drop(epoch)

    def delete(self) -> None:
        """Delete the note, if there is one."""
        for epoch in self._stored():
            if self._epoch is None or epoch <= self._epoch:
                self._drop(epoch)

    def damaged(self, error: Exception) -> StateError:
        """The error to raise for a note whose content can't be used."""
        return StateError(f"{self.path} is damaged ({error}): {self._advice}")

    def _drop(self, epoch: int) -> None:
        with contextlib.suppress(FileNotFoundError):  # a process that was taken over deletes those before it, too
            self._filesystem.delete_file(self._path(epoch))

    def _stored(self) -> list[int]:
        pattern = rf"{re.escape(self._name)}-e(\d{{12}})\.json"
        entries = self._filesystem.get_file_info(pafs.FileSelector(self._root, allow_not_found=True))
        return [int(match[1]) for entry in entries if (match := re.fullmatch(pattern, entry.base_name))]

    def _path(self, epoch: int) -> str:
        return f"{self._root}/{self._name}-e{epoch:012d}.json"


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content with its format number and checksum."""
    plain: dict[str, Any] = json.loads(json.dumps({"format": FORMAT, **content}))  # keys become text
    return plain | {CHECKSUM: _checksum(plain)}


def read_note(data: bytes, fields: Iterable[str], name: str, advice: str) -> dict[str, Any]:
    """The content of a note: an object with these fields and no others.

    Args:
        data: content of the file.
        fields: names of the fields.
        name: of the note, for an error.
        advice: what to do about one of another format.

    Raises:
        DamagedNoteError: the content differs from what was written.
        OtherFormatError: it has another format.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedNoteError("it isn't JSON") from error
    if not isinstance(content, dict):
        raise DamagedNoteError("it isn't a JSON object")
    checksum = content.pop(CHECKSUM, None)
    if checksum is not None and checksum != _checksum(content):
        raise DamagedNoteError("its checksum is wrong")
    check_format(name, content.pop("format", None), FORMAT, advice)
    if checksum is None:
        raise DamagedNoteError("its checksum is missing")
    if content.keys() != set(fields):
        raise DamagedNoteError(f"its fields aren't {', '.join(fields)}")
    return content


def _checksum(content: Mapping[str, Any]) -> str:
    return xxhash.xxh3_64_hexdigest(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
