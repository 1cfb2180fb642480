"""The files of a Delta table's log: a commit is read, or added if its version is free, without opening the table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow.fs as pafs

from kafka_telemetry_lake.pipelines.lake.errors import DamagedLogError
from kafka_telemetry_lake.pipelines.lake.new_files import NewFiles
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of

Action = Mapping[str, Any]  # {"add": {...}}, {"txn": {...}}, ...


class LogFiles:
    """The log of the table at a URI."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._filesystem, self._root = filesystem_of(f"{uri}/_delta_log")
        self._new = NewFiles(f"{uri}/_delta_log")

    def read(self, version: int) -> list[Action] | None:
        """The actions of a commit; None if the log doesn't have it.

        Raises:
            DamagedLogError: the file isn't one of a commit.
        """
        try:
            with self._filesystem.open_input_file(f"{self._root}/{version:020d}.json") as stream:
                data = stream.read()
        except FileNotFoundError:
            return None
        try:
            actions = [json.loads(line) for line in data.splitlines() if line.strip()]
        except ValueError:
            actions = []
        if not actions or not all(isinstance(action, dict) for action in actions):
            raise DamagedLogError(
                f"{self.uri}: version {version} of the table's log is damaged: restore the lake and its checkpoints "
                "from one backup"
            )
        return actions

    def latest(self) -> int | None:
        """The latest version, found by a few looks at which files are there; None: they don't say it."""
        checkpoint = self.checkpoint()
        if checkpoint is None or (checkpoint < 0 and not self.has(0)):
            return None
        found, step = max(checkpoint, 0), 1
        while self.has(found + step):
            found, step = found + step, 2 * step
        while step := step // 2:
            found += step if self.has(found + step) else 0
        return found

    def is_past(self, version: int) -> bool | None:
        """Whether the log has a checkpoint of this version or a later one: then it may have forgotten the commit.

        None: the file that says so is damaged.
        """
        checkpoint = self.checkpoint()
        return None if checkpoint is None else checkpoint >= version

    def add(self, version: int, actions: Iterable[Action]) -> bool:
        """Write a commit, unless the log has one of this version; returns whether it was written."""
        data = "\n".join(json.dumps(action, separators=(",", ":")) for action in actions).encode()
        return self._new.add(f"{version:020d}.json", data)

    def has(self, version: int) -> bool:
        """Whether the log has a commit of this version."""
        return bool(self._filesystem.get_file_info(f"{self._root}/{version:020d}.json").type == pafs.FileType.File)

    def checkpoint(self) -> int | None:
        """The version of the log's last checkpoint; -1: it has none; None: the file that says so is damaged."""
        try:
            with self._filesystem.open_input_file(f"{self._root}/_last_checkpoint") as stream:
                return int(json.loads(stream.read())["version"])
        except FileNotFoundError:
            return -1
        except (KeyError, TypeError, ValueError):
            return None
