"""State files of an object store, cached on the disk of the machine that processes their shards.

A state file is never overwritten and no two have the same name, so a copy is right as long as it is whole: its checksum
is verified when it is opened. All Python workers of a machine share the folder and map the files into memory. A worker
that gets a shard whose files another worker of the machine has read or written asks the store for none of them.

The folder is below the first of ``SPARK_LOCAL_DIRS``, or the system's folder of temporary files. A machine without
space on that disk reads from the store into memory, as if there were no cache.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

import pyarrow as pa
import xxhash

log = logging.getLogger(__name__)
FOLDER = "kafka-telemetry-lake-state"
UNUSED_S = 24 * 3600.0  # after which a file is deleted: its shard has another machine now
SWEEP_S = 3600.0


class NodeFiles:
    """The cached files of a shard, in a folder of their own.

    Args:
        uri: of the state folder in the store.
        shard: number of the shard.
    """

    def __init__(self, uri: str, shard: int) -> None:
        self._folder = node_folder(uri) / str(shard)

    def read(self, name: str) -> pa.Buffer | None:
        """The content of a cached file, mapped into memory; None: there is none."""
        path = self._folder / name
        try:
            with pa.memory_map(str(path)) as file:
                return file.read_buffer()
        except OSError:
            return None

    def writing(self, name: str) -> CachedFile:
        """A file that is cached once it is closed."""
        return CachedFile(self._folder / name)

    def add(self, name: str, content: pa.Buffer) -> None:
        """Cache a file."""
        with self.writing(name) as file:
            file.write(content)

    def retain(self, names: Iterable[str]) -> None:
        """Note that the files of the shard's chain are in use, and delete the others."""
        used = set(names)
        with suppress(OSError):
            for path in self._folder.iterdir():
                if path.name in used:
                    os.utime(path)
                else:
                    path.unlink(missing_ok=True)

    def drop(self, name: str) -> None:
        """Delete a cached file; it is damaged."""
        with suppress(OSError):
            (self._folder / name).unlink(missing_ok=True)


def node_folder(uri: str) -> Path:
    """The folder of this machine for copies of what is below a URI. Files unused for a day are deleted from it."""
    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
    root = Path(local) / f"{FOLDER}-{os.getuid()}"
    _sweep(root, int(time.monotonic() / SWEEP_S))
    return root / xxhash.xxh3_64_hexdigest(uri.encode())


class CachedFile:
    """A file on its way into the cache. A disk that is full or broken ends the copy, and nothing else."""

    def __init__(self, path: Path) -> None:
        self._path, self._part = path, path.with_suffix(f".{uuid.uuid4().hex[:8]}.part")
        self._file: IO[bytes] | None = None
        self._failed = False

    def __enter__(self) -> CachedFile:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = self._part.open("wb")
        except OSError as error:
            self._fail(error)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._file is None:
            return
        try:
            self._file.close()
            if kind is None and not self._failed:
                self._part.replace(self._path)
        except OSError as error:
            self._fail(error)
        with suppress(OSError):
            self._part.unlink(missing_ok=True)

    def write(self, data: bytes | memoryview | pa.Buffer) -> None:
        if self._file is None or self._failed:
            return
        try:
            self._file.write(data)
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        self._failed = True
        log.warning("state files aren't cached below %s: %s", self._path.parent, error.strerror)


@cache
def _sweep(folder: Path, hour: int) -> None:  # noqa: ARG001  # once an hour for each process
    """Delete the files that nobody has used for a day, of any lake."""
    oldest = time.time() - UNUSED_S
    with suppress(OSError):
        for path in folder.glob("*/*/*"):
            if path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)
