"""The files of a shard's state: a base, then for each batch a file with the clients that it changed.

When the changes are larger than the base, a new base replaces the chain. So each changed byte causes about one byte of
state to be rewritten, and a batch's cost depends on the clients in the batch, not on all clients of the shard.

In a local folder, workers map the files into memory and share their pages.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.fs as pafs

from kafka_telemetry_lake.pipelines.lake.durable import sync
from kafka_telemetry_lake.pipelines.lake.errors import StateError, StateVersionError
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.state.manifest import REBUILD, UPGRADE
from kafka_telemetry_lake.pipelines.state.parts import StateParts
from kafka_telemetry_lake.udfs.conversion.state import (
    DamagedStateError,
    ShardState,
    UnknownStateVersionError,
    write_tables,
)

LONGEST_CHAIN = 50  # a worker reads the whole chain when it starts
CACHED_BYTES = 128 << 20  # per worker process, of files that aren't mapped; one shard is cached whatever its size


@dataclass(frozen=True)
class Chain:
    """The state of a shard and the files that it was read from or written to.

    Attributes:
        names: the files, oldest first; a file is never overwritten.
        sizes: of the files, in bytes.
    """

    names: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
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
        self._filesystem, self._root = filesystem_of(uri)
        self._maps = isinstance(self._filesystem, pafs.LocalFileSystem)
        if self._maps:
            self._filesystem = pafs.LocalFileSystem(use_mmap=True)

    def read(self, names: Sequence[str]) -> Chain:
        """Read the state from these files. A file's checksum is verified when the worker first reads it.

        Raises:
            StateError: a file is damaged or missing.
            StateVersionError: a file was written in a layout that this release doesn't read.
        """
        chain = _cached.get(self._key, Chain())
        if tuple(names[: len(chain.names)]) != chain.names:
            chain = Chain()
        for name in names[len(chain.names) :]:
            chain = self._longer(chain, name)
        return self._cache(chain)

    def load(self, names: Sequence[str]) -> Chain:
        """The same without the worker's cache, for who reads a shard once."""
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
        if changes.clients.num_rows == 0:
            return chain
        name = self._new_name(batch_id)
        data = changes.to_bytes(name)
        if len(chain.names) == LONGEST_CHAIN or sum(chain.sizes[1:]) + len(data) > sum(chain.sizes[:1]):
            name = self.write_tables(chain.state.merge(changes).whole(), batch_id)
            return self._cache(self._longer(Chain(), name))
        with self._filesystem.open_output_stream(f"{self._root}/{name}") as stream:
            stream.write(data)
        sync(self._filesystem, [f"{self._root}/{name}"])
        return self._cache(self._longer(chain, name, None if self._maps else pa.py_buffer(data)))

    def write_tables(self, tables: Iterable[tuple[str, pa.Table]], batch_id: int) -> str:
        """Write a base, a table at a time, and return the file's name."""
        name = self._new_name(batch_id)
        with self._filesystem.open_output_stream(f"{self._root}/{name}") as stream:
            write_tables(stream, tables, name)
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
            if data is None:
                with self._filesystem.open_input_file(f"{self._root}/{name}") as stream:
                    data = stream.read_buffer()
            state = chain.state.merge(ShardState.from_bytes(data, name))
        except (DamagedStateError, FileNotFoundError) as error:
            problem = "missing" if isinstance(error, FileNotFoundError) else f"damaged ({error})"
            raise StateError(
                f"state file {name} below {self._key[0]} is {problem}. Stop the job and run `{REBUILD}`, which "
                "rebuilds the state of its shard from table pushes"
            ) from error
        except UnknownStateVersionError as error:
            raise StateVersionError(
                f"state file {name} below {self._key[0]}: {error}. {UPGRADE}, or, if no later release wrote it, run "
                f"`{REBUILD}`"
            ) from error
        return Chain((*chain.names, name), (*chain.sizes, len(data)), state)

    def _cache(self, chain: Chain) -> Chain:
        _cached[self._key] = chain
        _cached.move_to_end(self._key)
        while not self._maps and len(_cached) > 1 and sum(sum(each.sizes) for each in _cached.values()) > CACHED_BYTES:
            _cached.popitem(last=False)
        return chain
