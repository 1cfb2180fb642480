"""The Spark engine's own code in this process, batch by batch, with a dict for Spark's state store."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd
import pyarrow as pa

from kafka_telemetry_lake.pipelines.ingest.landing_rows import SAMPLE, STATUS
from kafka_telemetry_lake.pipelines.spark_engine.output import UnpackTask
from kafka_telemetry_lake.pipelines.spark_engine.packing import PackTask
from kafka_telemetry_lake.pipelines.spark_engine.shard_processor import FACTS, OutputRow, ShardProcessor
from kafka_telemetry_lake.pipelines.tables.operator import QUARANTINE, QUOTA_SAMPLES, RECEIVER_HEALTH, TABLES
from kafka_telemetry_lake.udfs.limits import Limits
from tests.support.landed import landed
from tests.support.local_stream import SHARDS

ARROW_ROWS = 100  # that Spark hands to a task at a time
STRUCTS = {STATUS: RECEIVER_HEALTH.schema, SAMPLE: pa.unify_schemas([QUOTA_SAMPLES.schema, QUARANTINE.schema])}


class Value:
    """As Spark's ValueState."""

    def __init__(self) -> None:
        self.row: tuple[bytes] | None = None

    def get(self) -> tuple[bytes] | None:
        return self.row

    def update(self, row: tuple[bytes]) -> None:
        self.row = row


class LocalSparkEngine:
    """All rows of all tables so far, and the state of each shard."""

    def __init__(self, limits: Limits | None = None, keys: tuple[int, ...] = tuple(range(SHARDS))) -> None:
        self._pack, self._limits = PackTask(keys), limits or Limits()
        self._states: dict[int, Value] = defaultdict(Value)
        self._parts: dict[str, list[pa.Table]] = defaultdict(list)
        self.counts = Counter[str]()
        self.set_aside: list[str] = []

    def batch(self, records: Iterable[Mapping[str, Any]], *, guarded: bool = False, counts: bool = True) -> None:
        """A micro-batch; `counts`: False is one that is cut off before it counts."""
        before = {key: value.row for key, value in self._states.items()}
        rows = pa.Table.from_batches([landed(records)])
        for name, schema in STRUCTS.items():
            rows = rows.append_column(name, pa.nulls(rows.num_rows, pa.struct(list(schema))))
        packed: dict[int, list[bytes]] = defaultdict(list)
        for batch in self._pack(rows.combine_chunks().to_batches(ARROW_ROWS)):
            for row in batch.to_pylist():
                packed[row["key"]].append(row["records"])
        for key, blobs in sorted(packed.items(), reverse=True):
            output = [
                OutputRow(*frame.iloc[0][list(OutputRow._fields)]) for frame in self._processed(key, blobs, guarded)
            ]
            if counts:
                self._take(output)
        if not counts:
            for key in self._states:
                self._states[key].row = before.get(key)

    def rows(self) -> dict[str, pa.Table]:
        """All rows by table."""
        return {table.name: pa.concat_tables([table.stored.empty_table(), *self._parts[table.name]])
                for table in TABLES}  # fmt: skip

    def _processed(self, key: int, blobs: list[bytes], guarded: bool) -> Iterator[pd.DataFrame]:
        processor = ShardProcessor(self._limits, len(self._pack.keys), None if not guarded else 0)
        processor._state = self._states[key]  # type: ignore[assignment]  # as `init` sets it
        frames = iter([pd.DataFrame({"key": key, "records": blobs})])
        return processor.handleInputRows(key, frames, None)

    def _take(self, output: list[OutputRow]) -> None:
        for table in TABLES:
            blobs = [row.rows for row in output if row.name == table.name]
            for batch in UnpackTask(table, table.stored)([pa.record_batch({"rows": pa.array(blobs, pa.binary())})]):
                self._parts[table.name].append(pa.Table.from_batches([batch]))
        for row in output:
            if row.name == FACTS:
                facts = json.loads(row.columns)
                self.counts.update(facts["counts"])
                self.set_aside += facts["set_aside"]
