"""Packs landing records by shard, so that Spark's shuffle moves a blob for each shard and Arrow batch, not records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.pipelines.ingest.landing_rows import OTHERS, to_pushes
from kafka_telemetry_lake.pipelines.lake.privacy import UNCHANGED, Privacy
from kafka_telemetry_lake.pipelines.runtime.python_worker import forget_archives
from kafka_telemetry_lake.pipelines.runtime.worker_task import WorkerTask
from kafka_telemetry_lake.udfs.kernels.sharding import shards_of

PACKED = "key int, records binary"
_PACKED = pa.schema([("key", pa.int32()), ("records", pa.binary())])
# A blob has about so many bytes: rows of them, up to Arrow's number of rows, come to the next task at a time.
BLOB_BYTES = 4 << 20


@dataclass(frozen=True)
class PackTask(WorkerTask):
    """Rows of ``landing_rows`` to rows of `PACKED`: a shard's key, and rows of `pushes` and other tables for it.

    Attributes:
        keys: the key of each shard.
        privacy: how principals and addresses are stored.
    """

    keys: tuple[int, ...]
    privacy: Privacy = UNCHANGED

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                rows = pa.Table.from_batches([to_pushes(batch, self.privacy)])
                for name in OTHERS:
                    rows = rows.append_column(name, batch[name])
                yield self._packed(rows)
        forget_archives()

    def _packed(self, rows: pa.Table) -> pa.RecordBatch:
        shards = shards_of(rows["client_instance_id"].combine_chunks(), len(self.keys))
        keys, blobs = [], []
        for shard in np.unique(shards).tolist():
            own = rows if len(self.keys) == 1 else rows.filter(pa.array(shards == shard))
            for part in _parts(own):
                keys.append(self.keys[shard])
                blobs.append(to_blob(part, PLAIN))
        return pa.RecordBatch.from_arrays([pa.array(keys, pa.int32()), pa.array(blobs, pa.binary())], schema=_PACKED)


def _parts(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows in parts of about `BLOB_BYTES`."""
    size = np.cumsum(pc.fill_null(pc.binary_length(rows["payload"]), 0).to_numpy().astype(np.int64))
    first = 0
    while first < rows.num_rows:
        done = int(size[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(size, done + BLOB_BYTES, "right")))
        yield rows.slice(first, last - first)
        first = last


COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
PLAIN = pa.ipc.IpcWriteOptions()


def to_blob(rows: pa.Table, options: pa.ipc.IpcWriteOptions = COMPRESSED) -> bytes:
    """The rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
        stream.write_table(rows.combine_chunks())
    return bytes(sink.getvalue())


def from_blob(blob: bytes | pa.Buffer) -> pa.Table:
    """The rows of `to_blob`."""
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_all()
