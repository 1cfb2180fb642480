"""The stateful operator: one task takes one shard's pushes and leaves Parquet files and the shard's next state.

A task is a pure function of its pushes and of the state file that it is told, so a batch that runs again after a crash
gives the same rows. Nothing it writes counts before the driver has committed the batch.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from pyspark import TaskContext

from pipelines.delta_log import DataFile, lake_uri, write_files
from pipelines.tables import OPERATOR_TABLES
from udfs.rows import PUSHES_IN
from udfs.shard import Limits, process
from udfs.state import ShardState

# What a task tells the driver: data files as JSON, and the shard's new state file.
TASK_RESULT = "shard int, state string, files array<string>, counts map<string, bigint>"
_RESULT = pa.schema(
    [
        ("shard", pa.int32()),
        ("state", pa.string()),
        ("files", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
    ]
)


@dataclass(frozen=True)
class ShardTask:
    """What every task of a batch needs: plain values, shipped with the task.

    Attributes:
        states: shard number to its state file after the batch before; a shard without one starts empty.
        state_folder: where new state files go; they are named by batch and attempt, never overwritten.
    """

    lake: str
    batch_id: int
    state_folder: str
    states: dict[int, str] = field(default_factory=dict)
    limits: Limits = Limits()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pushes = pa.Table.from_batches(list(batches), PUSHES_IN)
        if pushes.num_rows == 0:
            return
        context = TaskContext.get()
        assert context is not None
        shard = context.partitionId()
        filesystem, root = pafs.FileSystem.from_uri(lake_uri(self.state_folder))
        rows, state = process(pushes, self._read_state(filesystem, root, shard), self.limits)
        files: list[DataFile] = []
        counts = _statuses(rows.metric_points)
        for table in OPERATOR_TABLES:
            written = getattr(rows, table.name)
            counts[table.name] = written.num_rows
            files += write_files(table, self.lake, written)
        name = f"shard-{shard:05d}-batch-{self.batch_id:010d}-{uuid.uuid4().hex[:8]}.state"
        with filesystem.open_output_stream(f"{root}/{name}") as stream:
            stream.write(state.to_bytes())
        row = {"shard": shard, "state": name, "files": [file.to_json() for file in files], "counts": list(counts.items())}
        yield pa.RecordBatch.from_pylist([row], schema=_RESULT)

    def _read_state(self, filesystem: pafs.FileSystem, root: str, shard: int) -> ShardState:
        name = self.states.get(shard)
        if name is None:
            return ShardState.empty()
        with filesystem.open_input_file(f"{root}/{name}") as stream:
            return ShardState.from_bytes(stream.read())


def _statuses(points: pa.Table) -> dict[str, int]:
    counted = pc.value_counts(points["delta_status"].unify_dictionaries())
    return {f"status:{row['values']}": row["counts"] for row in counted.to_pylist()}
