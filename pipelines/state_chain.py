"""The files of a shard's state: a base, then a file for each batch with the clients that it changed.

A new base replaces the chain when the changes have outgrown the base, so a byte of state is rewritten about once for
each byte that has changed: the cost of a batch follows its clients, not the shard's.

In a local folder the files are the memory of the state too: workers map them, and share the pages.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.fs as pafs

from pipelines.delta_log import lake_uri
from pipelines.state_parts import StateParts
from udfs.state import ShardState, write_tables

LONGEST_CHAIN = 50  # files to read when a worker starts
CACHED_BYTES = 128 << 20  # of files that aren't mapped, per worker process; one shard is kept however large it is


@dataclass(frozen=True)
class Chain:
    """What the files of a shard hold, read or just written.

    Attributes:
        names: the files, oldest first; never written again under the same name.
        sizes: their bytes.
    """

    names: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    state: StateParts = field(default_factory=lambda: StateParts.of([]))


# A worker process serves task after task: what it has read or written of a shard, it needn't read again. Another
# worker may have had the shard since, or a batch may run again; then the names differ and tell what to read.
_cached: OrderedDict[tuple[str, int], Chain] = OrderedDict()


class ShardFiles:
    """The chain of one shard.

    Args:
        uri: the folder of state files.
        shard: its number.
    """

    def __init__(self, uri: str, shard: int) -> None:
        self._key = (uri, shard)
        self._filesystem, self._root = pafs.FileSystem.from_uri(lake_uri(uri))
        self._maps = isinstance(self._filesystem, pafs.LocalFileSystem)
        if self._maps:
            self._filesystem = pafs.LocalFileSystem(use_mmap=True)

    def read(self, names: Sequence[str]) -> Chain:
        """The state that these files make."""
        chain = _cached.get(self._key, Chain())
        if tuple(names[: len(chain.names)]) != chain.names:
            chain = Chain()
        for name in names[len(chain.names) :]:
            chain = self._longer(chain, name)
        return self._cache(chain)

    def write(self, chain: Chain, changes: ShardState, batch_id: int) -> Chain:
        """Leave a file with the changes, or a new base that has them merged; it counts once a manifest names it."""
        if changes.clients.num_rows == 0:
            return chain
        data = changes.to_bytes()
        is_change = len(chain.names) < LONGEST_CHAIN and sum(chain.sizes[1:]) + len(data) <= sum(chain.sizes[:1])
        name = f"shard-{self._key[1]:05d}-batch-{batch_id:010d}-{uuid.uuid4().hex[:8]}.state"
        with self._filesystem.open_output_stream(f"{self._root}/{name}") as stream:
            if is_change:
                stream.write(data)
            else:
                write_tables(stream, chain.state.merge(changes).whole())
        if not is_change:
            return self._cache(self._longer(Chain(), name))
        return self._cache(self._longer(chain, name, None if self._maps else pa.py_buffer(data)))

    def _longer(self, chain: Chain, name: str, data: pa.Buffer | None = None) -> Chain:
        """The chain with one file more; `data` is what it holds where that needn't be read."""
        if data is None:
            with self._filesystem.open_input_file(f"{self._root}/{name}") as stream:
                data = stream.read_buffer()
        state = chain.state.merge(ShardState.from_bytes(data))
        return Chain((*chain.names, name), (*chain.sizes, len(data)), state)

    def _cache(self, chain: Chain) -> Chain:
        _cached[self._key] = chain
        _cached.move_to_end(self._key)
        while not self._maps and len(_cached) > 1 and sum(sum(kept.sizes) for kept in _cached.values()) > CACHED_BYTES:
            _cached.popitem(last=False)
        return chain
