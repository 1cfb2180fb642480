"""The log of a Delta table as files: a commit is read, or added if its version is free, without opening the table.

`NewFiles` writes a file only if there is none of its name: the one step by which several processes can decide. In a
folder it is a hard link, in an object store a conditional write (``If-None-Match: *``). A rename or a look before the
write isn't enough: between both another process may write.
"""

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


class NewFiles:
    """A folder to which several processes may add files."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._filesystem, self._root = filesystem_of(uri)
        self.is_local = isinstance(self._filesystem, pafs.LocalFileSystem)

    def add(self, name: str, data: bytes) -> bool:
        """Write a file, unless there is one of this name; returns whether it was written.

        An object store may have written it and its answer was lost: then the second try finds the file.

        Raises:
            OSError: the store doesn't answer, or refuses.
        """
        if self.is_local:
            return _link_new(Path(self._root), name, data)
        import obstore  # noqa: PLC0415  # most lakes are in a folder

        try:
            obstore.put(self._store, name, data, mode="create")
        except obstore.exceptions.AlreadyExistsError:
            return False
        except obstore.exceptions.BaseError as error:
            reason = str(error).partition("\n\nDebug source")[0]
            raise OSError(f"{self.uri}/{name} can't be written: {' '.join(reason.split())}") from error
        return True

    @cached_property
    def _store(self) -> Any:
        return self.store()

    def store(self, **settings: Any) -> Any:
        """The folder in an object store, with the settings that delta-rs has from the environment, and these."""
        from obstore.store import from_url  # noqa: PLC0415  # most lakes are in a folder

        return from_url(re.sub(r"^s3a://", "s3://", absolute_uri(self.uri)), **settings)


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
