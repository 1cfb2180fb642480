"""The cost of state per micro-batch, by the number of clients and the share of active ones.

Four ways are compared. `whole` writes a file with the shard's whole state per batch. `delta` has a base file and writes
a file of changes per batch (`pipelines.state.chain`, which the job uses). Two use Spark's state store (RocksDB):
`client` has a blob per client (`applyInPandasWithState`), `shard` a blob per shard (`transformWithStateInPandas`).

The first two run in one process on one shard: they read, select the active clients, merge, look for evictions, and
write. Decoding and conversion are measured separately. The state store reads and writes blobs of a DELTA client's size
and does nothing else, in a local Spark with one shuffle partition. Its CPU is that of JVM and Python, so it includes
the fixed cost of a Spark batch; `idle` is the cost of a batch with one row. All figures are means over warm batches,
including compaction.

    python -m benchmarks.state [--no-spark]     prints each figure and stores it in benchmarks/results.json
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from benchmarks.corpora import LANDED
from benchmarks.figures import print_figures
from kafka_telemetry_lake.pipelines.runtime.session import spark_session
from kafka_telemetry_lake.pipelines.state.chain import Chain, ShardFiles
from kafka_telemetry_lake.udfs.conversion.shard import process
from kafka_telemetry_lake.udfs.conversion.state import CLIENTS, NUMBERS, RECENT_PUSHES, ShardState
from kafka_telemetry_lake.udfs.conversion.state_limits import evicted_clients
from kafka_telemetry_lake.udfs.kernels.arrays import column
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS
from kafka_telemetry_lake.udfs.rows import PUSHES_IN

CLIENT_COUNTS = (5_000, 20_000, 80_000)
SPARK_CLIENT_COUNTS = (5_000, 20_000)
ACTIVE = {"5pct": 0.05, "100pct": 1.0}
RECENT = 12  # pushes of the last hour, one in five minutes
SERIES = 40  # of each cumulative client
BATCH_US = 15_000_000
NOW_US = 1_795_262_781_000_000
BLOB_BYTES = 459  # of a DELTA client: a row of CLIENTS and `RECENT` rows of RECENT_PUSHES


def main() -> None:
    figures: dict[str, float] = {}
    sizes(figures)
    decode_and_convert(figures)
    for count in CLIENT_COUNTS:
        in_files(figures, count)
    print_figures(figures)
    if "--no-spark" not in sys.argv[1:]:
        figures = {}
        in_state_store(figures)
        print_figures(figures)


def sizes(figures: dict[str, float]) -> None:
    """Bytes on disk per additional client, and per additional series."""

    def size(clients: int, cumulative: float) -> int:
        return len(synthetic(clients, cumulative).to_bytes())

    figures["state_bytes_per_delta_client"] = round((size(20_000, 0) - size(10_000, 0)) / 10_000, 1)
    series = 0.2 * 10_000 * SERIES
    figures["state_bytes_per_series"] = round((size(10_000, 0.2) - size(10_000, 0)) / series, 1)


def decode_and_convert(figures: dict[str, float]) -> None:
    """The operator's other work, for comparison: captured pushes of 4,000 clients, without state."""
    timer = Timer()
    for batch in range(3):
        pushes = some_pushes(batch, 4_000)
        with timer:
            process(pushes, ShardState.empty())
    figures["state_decode_convert_cpu_s_per_1000_pushes"] = round(timer.mean / 4, 4)


def in_files(figures: dict[str, float], clients: int) -> None:
    """Ways `whole` and `delta`, for DELTA clients; a fifth of them has cumulative series too."""
    state = synthetic(clients, 0.2)
    keys = state.client_columns().client
    partition, landed_at = state.client_columns().partition[:1], state.client_columns().landed_at[:1]
    for label, share in ACTIVE.items():
        suffix = f"{clients // 1000}k_{label}"
        parts = int(1 / share)  # the clients take turns
        turns = [(keys[turn::parts], state.rows_of(keys[turn::parts])) for turn in range(parts)]
        with tempfile.TemporaryDirectory() as folder:
            path, timer = Path(folder) / "whole.state", Timer()
            path.write_bytes(state.to_bytes())
            for batch in range(4):
                active, changes = turns[batch % parts]
                with timer:
                    stored = ShardState.from_bytes(path.read_bytes())
                    stored.rows_of(active)
                    stored = stored.merge(changes)
                    evicted_clients(stored, partition, landed_at, DEFAULT_LIMITS)
                    path.write_bytes(stored.to_bytes())
            figures[f"state_cpu_s_{suffix}_whole"] = timer.mean
            figures[f"state_bytes_written_{suffix}_whole"] = path.stat().st_size
        with tempfile.TemporaryDirectory() as folder:
            files, timer, written = ShardFiles(folder, 0), Timer(), 0
            names = files.write(Chain(), state, 0).names
            largest, batches = 0, 4 if parts == 1 else 2 * (parts + 1)  # whole rounds from base to base
            for batch in range(batches):
                active, changes = turns[batch % parts]
                with timer:
                    chain = files.read(names)
                    chain.state.rows_of(active)
                    evicted_clients(chain.state.merge(changes), partition, landed_at, DEFAULT_LIMITS)
                    chain = files.write(chain, changes, batch)
                names = chain.names
                written += chain.sizes[-1]
                largest = max(largest, sum(chain.sizes))
            figures[f"state_cpu_s_{suffix}_delta"] = timer.mean
            figures[f"state_bytes_written_{suffix}_delta"] = round(written / batches)
            figures[f"state_bytes_of_chain_{suffix}_delta"] = largest


class Timer:
    """Measures CPU seconds of this process, all threads; `mean` is over its uses."""

    def __init__(self) -> None:
        self.spent: list[float] = []

    def __enter__(self) -> None:
        self._began = time.process_time()

    def __exit__(self, *_: object) -> None:
        self.spent.append(time.process_time() - self._began)

    @property
    def mean(self) -> float:
        return round(sum(self.spent) / len(self.spent), 4)


def instance_id(number: int) -> str:
    return f"client-{number:015d}"


def synthetic(clients: int, cumulative: float) -> ShardState:
    """A shard whose clients have all pushed for an hour; share `cumulative` of them also has `SERIES` sums."""
    heard = np.arange(clients)
    _, seen = process(_pushes(heard, heard, NOW_US - BATCH_US, [b""], ["none"]), ShardState.empty())
    client = column(seen.clients, "client")
    numbers = np.random.default_rng(clients)
    values: dict[str, Any] = {name: column(seen.clients, name) for name in CLIENTS.names}
    last = np.full(clients, (NOW_US - BATCH_US) * 1000)
    values |= {"temporalities": np.ones(clients, np.int8), "last_temporality": np.ones(clients, np.int8)}
    values |= {"last_time": last, "delta_time": last, "heartbeat_at": np.zeros(clients, np.int64)}
    owners = np.repeat(client, RECENT)
    pushed = np.tile(NOW_US * 1000 - np.arange(RECENT, 0, -1) * 300_000_000_000, clients)
    recent = [owners, *numbers.integers(1, 2**62, (2, len(owners))), pushed]
    with_series = np.repeat(client[: int(clients * cumulative)], SERIES)
    count = len(with_series)
    first = np.full(count, NOW_US * 1000 - 86_400_000_000_000)
    series = [with_series, numbers.integers(1, 2**62, count), first, np.full(count, last[0])]
    series += [numbers.integers(0, 2**40, count), np.ones(count, np.bool_), *np.zeros((3, count), np.bool_)]
    return ShardState(
        clients=pa.table([pa.array(values[name]) for name in CLIENTS.names], CLIENTS),
        recent_pushes=pa.table([pa.array(column) for column in recent], RECENT_PUSHES),
        lost_intervals=seen.lost_intervals,
        numbers=pa.table([pa.array(column) for column in series], NUMBERS),
        distributions=seen.distributions,
    )


def some_pushes(batch: int, clients: int) -> pa.Table:
    """One push per client, from 24 different captured ones."""
    landed = pq.read_table(LANDED, columns=["value", "headers"])
    chosen = landed.take(pa.array(np.linspace(0, len(landed) - 1, 24).astype(np.int64)))
    codecs = [
        next((header["value"].decode() for header in headers if header["key"] == "compression_type"), "none")
        for headers in chosen["headers"].to_pylist()
    ]
    who = np.arange(clients)
    return _pushes(who, who + batch * clients, NOW_US + batch * BATCH_US, chosen["value"].to_pylist(), codecs)


def _pushes(
    who: np.ndarray[Any, np.dtype[np.int64]],
    offsets: np.ndarray[Any, np.dtype[np.int64]],
    landed_at: int,
    payloads: list[bytes],
    codecs: list[str],
) -> pa.Table:
    size = len(who)
    kind = pa.array(who % len(payloads))
    columns: dict[str, Any] = {
        "source": pa.array(["kafka"]).take(pa.array(np.zeros(size, np.int64))),
        "topic": pa.array(["client-telemetry"]).take(pa.array(np.zeros(size, np.int64))),
        "partition": pa.array(np.zeros(size, np.int32)),
        "offset": pa.array(offsets),
        "landed_at": pa.array(np.full(size, landed_at)).cast(PUSHES_IN.field("landed_at").type),
        "client_instance_id": pa.array([instance_id(number) for number in who.tolist()]),
        "compression_type": pa.array(codecs).take(kind),
        "push_interval_ms": pa.array(np.full(size, 300_000)),
        "payload": pa.array(payloads, pa.binary()).take(kind),
    }
    return pa.table(
        [
            columns[field.name].cast(field.type) if field.name in columns else pa.nulls(size, field.type)
            for field in PUSHES_IN
        ],
        PUSHES_IN,
    )


def in_state_store(figures: dict[str, float]) -> None:
    """Ways `client` and `shard`: each active blob is read and written once per batch."""
    spark = spark_session("benchmark-state", "local[2]")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    try:
        for clients in SPARK_CLIENT_COUNTS:
            for way in ("client", "shard"):
                _stream(spark, figures, clients, way)
    finally:
        spark.stop()


def _stream(spark: Any, figures: dict[str, float], clients: int, way: str) -> None:
    """Run batches with all clients, 5 % and one; the very first fills the state, the first of each size is warm-up."""
    shares = [1.0] * 3 + [0.05] * 3 + [0.0] * 3
    with tempfile.TemporaryDirectory() as folder:
        source, checkpoint = Path(folder) / "in", Path(folder) / "checkpoint"
        source.mkdir()
        rows = spark.readStream.schema("who bigint").option("maxFilesPerTrigger", 1).parquet(str(source))
        key = F.col("who") if way == "client" else F.lit(0).cast("bigint")
        grouped = rows.select(key.alias("key")).groupBy("key")
        if way == "client":
            blobs = grouped.applyInPandasWithState(_client_blob, "key bigint", "blob binary", "append", "NoTimeout")
        else:
            blobs = grouped.transformWithStateInPandas(_shard_blob(clients), "key bigint", "append", "None")
        out = blobs.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        cpu: dict[float, list[float]] = {share: [] for share in shares}
        stored: dict[float, list[int]] = {share: [] for share in shares}
        query = out.trigger(processingTime="0 seconds").start()
        for number, share in enumerate(shares):
            who = np.arange(max(1, int(clients * share)), dtype=np.int64)
            before, bytes_before = _cpu_s(), _written(checkpoint)
            pq.write_table(pa.table({"who": who}), source / f".{number}")
            (source / f".{number}").rename(source / f"{number}.parquet")
            while query.lastProgress is None or query.lastProgress["batchId"] < number or _is_busy(query):
                if query.exception() is not None:
                    raise RuntimeError(str(query.exception()))
                time.sleep(0.2)
            if number > 1 and share == shares[number - 1]:
                cpu[share].append(_cpu_s() - before)
                stored[share].append(_written(checkpoint) - bytes_before)
        query.stop()
        for label, share in (ACTIVE | {"idle": 0.0}).items():
            suffix = f"{clients // 1000}k_{label}_store_{way}"
            figures[f"state_cpu_s_{suffix}"] = round(sum(cpu[share]) / len(cpu[share]), 3)
            figures[f"state_bytes_written_{suffix}"] = round(sum(stored[share]) / len(stored[share]))


def _is_busy(query: Any) -> bool:
    return bool(query.status["isTriggerActive"] and query.status["isDataAvailable"])


def _written(folder: Path) -> int:
    """Bytes of all files; none are deleted in so few batches."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _cpu_s() -> float:
    """CPU seconds of this process and its descendants: the JVM and its Python workers."""
    total = 0.0
    for process_ in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        times = process_.cpu_times()
        total += times.user + times.system
    return total


def _rewritten(blob: bytes) -> bytes:
    """Random bytes of the same number; real digests, times and values hardly compress either."""
    return os.urandom(len(blob))


def _client_blob(_key: Any, rows: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    state.update((_rewritten(state.get[0] if state.exists else bytes(BLOB_BYTES)),))
    for frame in rows:
        yield frame[:0]


def _shard_blob(clients: int) -> Any:
    class Blob(StatefulProcessor):
        """One blob with the state of all clients."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self.blob = handle.getValueState("blob", "blob binary")

        def handleInputRows(  # noqa: N802  # Spark's name
            self, _key: Any, rows: Iterator[pd.DataFrame], _timers: Any
        ) -> Iterator[pd.DataFrame]:
            stored = self.blob.get()
            self.blob.update((_rewritten(bytes(BLOB_BYTES * clients) if stored is None else stored[0]),))
            for frame in rows:
                yield frame[:0]

        def close(self) -> None:
            pass

    return Blob()


if __name__ == "__main__":
    main()
