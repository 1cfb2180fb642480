"""The files of a Delta table's log: a commit is read, or added if its version is free, without opening the table."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from kafka_telemetry_lake.pipelines.lake.durable import sync
from kafka_telemetry_lake.pipelines.lake.errors import DamagedLogError
from kafka_telemetry_lake.pipelines.lake.paths import absolute_uri, filesystem_of

Action = Mapping[str, Any]  # {"add": {...}}, {"txn": {...}}, ...


class LogFiles:
    """The log of the table at a URI."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._filesystem, self._root = filesystem_of(f"{uri}/_delta_log")

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

    def is_past(self, version: int) -> bool | None:
        """Whether the log has a checkpoint of this version or a later one: then it may have forgotten the commit.

        None: the file that says so is damaged.
        """
        try:
            with self._filesystem.open_input_file(f"{self._root}/_last_checkpoint") as stream:
                return bool(int(json.loads(stream.read())["version"]) >= version)
        except FileNotFoundError:
            return False
        except (KeyError, TypeError, ValueError):
            return None

    def add(self, version: int, actions: Iterable[Action]) -> bool:
        """Write a commit, unless the log has one of this version; returns whether it was written."""
        data = "\n".join(json.dumps(action, separators=(",", ":")) for action in actions).encode()
        name = f"{version:020d}.json"
        if isinstance(self._filesystem, pafs.LocalFileSystem):
            return _link_new(Path(self._root), name, data)
        import obstore  # noqa: PLC0415  # most lakes are in a folder

        try:
            obstore.put(self._store, name, data, mode="create")
        except obstore.exceptions.AlreadyExistsError:
            return False
        return True

    @cached_property
    def _store(self) -> Any:
        """The log's folder in an object store, with the settings that delta-rs has from the environment."""
        from obstore.store import from_url  # noqa: PLC0415  # most lakes are in a folder

        return from_url(re.sub(r"^s3a://", "s3://", absolute_uri(f"{self.uri}/_delta_log")))


def _link_new(folder: Path, name: str, data: bytes) -> bool:
    """Write a file that isn't there yet: under a temporary name, then under its own, each on the disk."""
    temporary = folder / f"_commit_{uuid.uuid4()}.json.tmp"
    try:
        with temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.link(temporary, folder / name)
        sync(pafs.LocalFileSystem(), [str(folder / name)])
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True
