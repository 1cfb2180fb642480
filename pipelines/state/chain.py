"""The files of a shard's state: a base, then for each batch a file with the clients that it changed.

When the changes are larger than the base, a new base replaces the chain. So each changed byte causes about one byte of
state to be rewritten, and a batch's cost depends on the clients in the batch, not on all clients of the shard.

Workers map the files into memory and share their pages: those of a local folder, and the machine's copies of those of
an object store (`node_files`).
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from kafka_telemetry_lake.pipelines.lake.durable import sync
from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.state.manifest import REBUILD
from kafka_telemetry_lake.pipelines.state.node_files import CachedFile, NodeFiles
from kafka_telemetry_lake.pipelines.state.parts import StateParts
from kafka_telemetry_lake.udfs.conversion.state import (
    DamagedStateError,
    ShardState,
    write_tables,
)

LONGEST_CHAIN = 50  # a worker reads the whole chain when it starts
CACHED_BYTES = 128 << 20  # per worker process, of files that aren't mapped; the latest shard is cached in any case


@dataclass(frozen=True)
class Chain:
    """The state of a shard and the files that it was read from or written to.

    Attributes:
        names: the files, oldest first; a file is never overwritten.
        sizes: of the files, in bytes.
        unmapped: bytes of them in this worker's own memory.
    """

    names: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    unmapped: int = 0
    state: StateParts = field(default_factory=lambda: StateParts.of([]))


# A worker process runs many tasks and needn't read again what it has read or written of a shard. If another worker
# processed the shard in between, or a batch is repeated, the file names differ and the missing files are read.
_cached: OrderedDict[tuple[str, int], Chain] = OrderedDict()


class ShardFiles:
    """The chain of one shard.

    Args:
        uri: the folder of state files.
        shard: number of the shard.
    """

    def __init__(self, uri: str, shard: int) -> None:
        self._key = (uri, shard)
        self.bytes_read = 0
        """Bytes that were read from an object store."""
        self._filesystem, self._root = filesystem_of(uri)
        self._node: NodeFiles | None = None
        if isinstance(self._filesystem, pafs.LocalFileSystem):
            self._filesystem = pafs.LocalFileSystem(use_mmap=True)
        else:
            self._node = NodeFiles(uri, shard)

    def read(self, names: Sequence[str]) -> Chain:
        """Read the state from these files. A file's checksum is verified when the worker first reads it.

        Raises:
            StateError: a file is damaged or missing.
            OtherFormatError: a file has another format.
        """
        chain = _cached.get(self._key, Chain())
        if tuple(names[: len(chain.names)]) != chain.names:
            chain = Chain()
        for name in names[len(chain.names) :]:
            chain = self._longer(chain, name)
        if self._node is not None:
            self._node.retain(names)
        return self._cache(chain)

    def load(self, names: Sequence[str]) -> Chain:
        """Read the state from these files without the worker's cache, for who reads a shard once."""
        chain = Chain()
        for name in names:
            chain = self._longer(chain, name)
        return chain

    def check(self, names: Sequence[str]) -> None:
        """Read and verify each file, ignoring the cache. Raises ``StateError`` as `read` does."""
        for name in names:
            self._longer(Chain(), name)

    def write(self, chain: Chain, changes: ShardState, batch_id: int) -> Chain:
        """Write the changes, or a new base that includes them, to a file. It is in use when a manifest names it."""
        # A shard's state is its base and all changes after it, in their order; the last one of a client counts.
        # - A batch that changes no client writes nothing: the manifest names the chain as before.
        # - Otherwise the changes become one more file, unless the files after the base would then be larger than it is,
        #   or too many to read at a start. Then a new base has all of it, and the chain begins with that.
        # - So a byte of state is written again about once for each byte of changes, and a start reads at most twice the
        #   state.
        # - The name has the batch and random digits: two attempts write two files, and the driver's manifest names that
        #   of one. No file is overwritten, so the chain of the manifest before can be read until that is deleted.
        # - The file is on the disk before its name is returned. Files that no manifest or snapshot names are deleted by
        #   `StateFolder`.
        if changes.clients.num_rows == 0:
            return chain
        if len(chain.names) == LONGEST_CHAIN or sum(chain.sizes[1:]) + changes.file_bytes > sum(chain.sizes[:1]):
            name = self.write_tables(chain.state.merge(changes).whole(), batch_id)
            return self._cache(self._longer(Chain(), name))
        name = self._new_name(batch_id)
        data = changes.to_bytes(name)
        with self._filesystem.open_output_stream(f"{self._root}/{name}") as stream:
            stream.write(data)
        sync(self._filesystem, [f"{self._root}/{name}"])
        if self._node is None:
            return self._cache(self._longer(chain, name))
        self._node.add(name, pa.py_buffer(data))
        return self._cache(self._longer(chain, name, pa.py_buffer(data)))

    def write_tables(self, tables: Iterable[tuple[str, pa.Table]], batch_id: int) -> str:
        """Write a base, a table at a time, and return the file's name."""
        name = self._new_name(batch_id)
        with ExitStack() as stack:
            stream = stack.enter_context(self._filesystem.open_output_stream(f"{self._root}/{name}"))
            copy = None if self._node is None else stack.enter_context(self._node.writing(name))
            write_tables(_Both(stream, copy), tables, name)
        sync(self._filesystem, [f"{self._root}/{name}"])
        return name

    def delete(self, names: Iterable[str]) -> None:
        """Delete files that no manifest names."""
        for name in names:
            self._filesystem.delete_file(f"{self._root}/{name}")

    def _new_name(self, batch_id: int) -> str:
        return f"shard-{self._key[1]:05d}-batch-{batch_id:010d}-{uuid.uuid4().hex[:8]}.state"

    def _longer(self, chain: Chain, name: str, data: pa.Buffer | None = None) -> Chain:
        """The chain with one more file; `data` is the file's content if it is known already."""
        try:
            changes, size, is_mapped = self._open(name, data)
            state = chain.state.merge(changes)
        except (DamagedStateError, FileNotFoundError) as error:
            problem = "missing" if isinstance(error, FileNotFoundError) else f"damaged ({error})"
            raise StateError(
                f"state file {name} below {self._key[0]} is {problem}. Stop the job and run `{REBUILD}`, which "
                "rebuilds the state of its shard from table pushes"
            ) from error
        unmapped = chain.unmapped + (0 if is_mapped else size)
        return Chain((*chain.names, name), (*chain.sizes, size), unmapped, state)

    def _open(self, name: str, data: pa.Buffer | None) -> tuple[ShardState, int, bool]:
        """The content of a file, its bytes, and whether they are mapped into memory."""
        if (copy := self._copied(name)) is not None:
            return copy
        if data is None:
            with self._filesystem.open_input_file(f"{self._root}/{name}") as stream:
                data = stream.read_buffer()
            if self._node is not None:
                self.bytes_read += len(data)
                self._node.add(name, data)
                if (copy := self._copied(name)) is not None:
                    return copy
        return ShardState.from_bytes(data, name), len(data), self._node is None

    def _copied(self, name: str) -> tuple[ShardState, int, bool] | None:
        """Content, bytes and whether they are mapped, of this machine's copy; None: it has none that is whole."""
        if self._node is None or (data := self._node.read(name)) is None:
            return None
        try:
            return ShardState.from_bytes(data, name), len(data), True
        except DamagedStateError:
            self._node.drop(name)
            return None

    def _cache(self, chain: Chain) -> Chain:
        _cached[self._key] = chain
        _cached.move_to_end(self._key)
        while len(_cached) > 1 and sum(each.unmapped for each in _cached.values()) > CACHED_BYTES:
            _cached.popitem(last=False)
        return chain


class _Both:
    """Writes to a stream, and to the machine's copy if there is one."""

    def __init__(self, stream: pa.NativeFile, copy: CachedFile | None) -> None:
        self._stream, self._copy = stream, copy

    def write(self, data: Any) -> int:
        if self._copy is not None:
            self._copy.write(data)
        return int(self._stream.write(data))
