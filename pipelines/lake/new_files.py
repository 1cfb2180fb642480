"""Files that are written only if there is none of that name: the one step by which several processes can decide.

In a folder it is a hard link, in an object store a conditional write (``If-None-Match: *``). A rename or a look before
the write isn't enough: between both another process may write.
"""

from __future__ import annotations

import os
import re
import uuid
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from kafka_telemetry_lake.pipelines.lake.durable import sync
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
