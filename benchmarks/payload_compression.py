"""What it saves and costs to compress each payload: by zstd, and by zstd with a dictionary of other clients.

    python -m benchmarks.payload_compression           prints each figure and stores it in benchmarks/results.json
    python -m benchmarks.payload_compression --write FOLDER     only writes payloads for PayloadCompressionBenchmark

Dictionaries learn from some of the captured pushes, and are measured on pushes that they have not seen: later pushes of
the same clients, other clients, the two other libraries, and other versions of the Java client, whose pushes are
captured here from a local broker. CPU time of codecs is that of one thread with a reused context; the job's two Python
tasks run in this process. Figures are medians of the rounds.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from zstandard import ZstdCompressionDict, ZstdCompressor, ZstdDecompressor, train_dictionary

from benchmarks.corpora import captured
from benchmarks.figures import print_figures
from benchmarks.fleet import Fleet, Landing
from benchmarks.fleet_lake import SHARDS, landing_rows, pushes_rows
from benchmarks.job import stored_bytes
from kafka_telemetry_lake.pipelines.ingest.operator_task import ShardTask
from kafka_telemetry_lake.pipelines.ingest.store_task import StoreTask
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES, TABLES
from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.plugin import receiver_jar
from kafka_telemetry_lake.udfs.otlp import kernel
from tests.support.landing_records import captured_index
from tests.support.topic_messages import messages

SIZES_KB = (16, 32, 64, 112)
LEVEL = 3  # the receiver's
LEVELS = (1, LEVEL, 6)
BATCHES = (1, 4, 64)
ROUNDS = 5
OTHER_VERSIONS = ("3.8.1", "3.9.1")  # the captured pushes are of 4.3.0
PUSHES_A_CLIENT = 8
FLEET_PUSHES = 4_000
FIRST_MS = 1_795_262_781_047
ROWS = 500  # of an Arrow batch, about what Spark makes of pushes
CLIENTS = 200_000

Payloads: TypeAlias = "list[bytes | bytearray | memoryview[int]]"


def main() -> None:
    """Measure, print and store the figures."""
    parser = argparse.ArgumentParser(description="What it saves and costs to compress each payload.")
    parser.add_argument("--write", type=Path, help="write payloads of the fleet to this folder, one a file")
    arguments = parser.parse_args()
    if arguments.write:
        _write_payloads(arguments.write)
    else:
        print_figures(_codecs() | _tasks())


def _codecs() -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, (seen, unseen) in _splits().items():
        figures |= _codec(f"payload_{name}_zstd", unseen, LEVEL, None)
        for size in SIZES_KB:
            figures |= _codec(f"payload_{name}_dictionary_{size}", unseen, LEVEL, train_dictionary(size << 10, seen))
        if name == "other_clients":
            for level in LEVELS:
                figures |= _codec(f"payload_level_{level}", unseen, level, None)
                figures |= _codec(
                    f"payload_level_{level}_dictionary_64", unseen, level, train_dictionary(64 << 10, seen)
                )
            figures |= _storage(train_dictionary(64 << 10, seen))
    return figures


def _write_payloads(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, landing in enumerate(Fleet(CLIENTS, FIRST_MS).landings(0, FLEET_PUSHES)):
        (folder / f"{number:05d}").write_bytes(landing.payload)


def _splits() -> dict[str, tuple[Payloads, Payloads]]:
    """By name: the pushes to learn from, and the pushes to measure."""
    payloads, index = captured().to_pylist(), captured_index()

    def split(is_seen: Iterable[bool]) -> tuple[Payloads, Payloads]:
        parts: tuple[Payloads, Payloads] = [], []
        for payload, seen in zip(payloads, is_seen, strict=True):
            parts[not seen].append(payload)
        return parts

    instances = [truth["client_instance_id"] for truth in index]
    some = set(random.Random(1).sample(sorted(set(instances)), len(set(instances)) // 2))
    libraries = {"java": "apache-kafka-java", "librdkafka": "confluent-kafka-python", "franz_go": "kgo"}
    return {
        "same_clients": split(number % 2 == 0 for number in range(len(payloads))),
        "other_clients": split(instance in some for instance in instances),
        **{
            f"unseen_{name}": split(truth["software_name"] != software for truth in index)
            for name, software in libraries.items()
        },
        "other_versions": (payloads, _other_versions()),
    }


def _other_versions() -> Payloads:
    """Pushes of producers and consumers of `OTHER_VERSIONS`, all metrics subscribed."""
    settings = {"client.telemetry.lander.payload.compression": "none"}
    with LocalCluster(plugin=receiver_jar(), properties=settings) as cluster:
        cluster.subscribe("all", ["*"], 1000)
        cluster.create_topic("payments")
        with LocalClients(cluster) as clients:
            for version in OTHER_VERSIONS:
                clients.producer("java", "payments", f"billing-{version}", rate=50, version=version)
                clients.consumer("java", "payments", f"ledger-{version}", group=f"ledgers-{version}", version=version)
            awaited = 2 * len(OTHER_VERSIONS) * PUSHES_A_CLIENT
            while len(found := messages(cluster, "client-telemetry")) < awaited:
                time.sleep(1)
    return [message.value() or b"" for message in found]


def _codec(name: str, payloads: Payloads, level: int, dictionary: ZstdCompressionDict | None) -> dict[str, float]:
    """Ratio, and microseconds of CPU per push."""
    if dictionary is not None:
        dictionary.precompute_compress(level=level)
    compressor, decompressor = ZstdCompressor(level, dict_data=dictionary), ZstdDecompressor(dict_data=dictionary)
    packed = [compressor.compress(payload) for payload in payloads]
    return {
        f"{name}_ratio": sum(map(len, payloads)) / sum(map(len, packed)),
        f"{name}_compress_us": _us_each(payloads, compressor.compress),
        f"{name}_decompress_us": _us_each(packed, decompressor.decompress),
    }


def _storage(dictionary: ZstdCompressionDict) -> dict[str, float]:
    """Bytes and CPU of a push of the fleet as a part of a record batch (headers included) and in a Parquet file."""
    landings = list(Fleet(CLIENTS, FIRST_MS).landings(0, FLEET_PUSHES))
    plain = [landing.payload for landing in landings]
    headers = [b"".join(name.encode() + value for name, value in landing.headers) for landing in landings]
    dictionary.precompute_compress(level=LEVEL)
    ways = {
        "none": plain,
        "zstd": list(map(ZstdCompressor(LEVEL).compress, plain)),
        "dictionary_64": list(map(ZstdCompressor(LEVEL, dict_data=dictionary).compress, plain)),
    }
    batch_codec = ZstdCompressor()
    figures = {}
    for name, payloads in ways.items():
        for size in BATCHES:
            pushes = [header + payload for header, payload in zip(headers, payloads, strict=True)]
            batches = [b"".join(pushes[first : first + size]) for first in range(0, len(pushes), size)]
            packed = sum(len(batch_codec.compress(batch)) for batch in batches)
            figures[f"payload_{name}_batch_{size}_bytes"] = packed / len(pushes)
            figures[f"payload_{name}_batch_{size}_us"] = _us_each(batches, batch_codec.compress) / size
        rows = pa.table({"payload": pa.array(payloads, pa.binary())})
        with tempfile.TemporaryDirectory(prefix="payloads-") as folder:
            file = Path(folder) / "pushes.parquet"
            write_us = _us_each([rows], partial(_write, file))
            figures[f"payload_{name}_parquet_bytes"] = file.stat().st_size / len(pushes)
            figures[f"payload_{name}_parquet_write_us"] = write_us / len(pushes)
            read_us = _us_each([file], lambda file: pq.read_table(file, use_threads=False))
            figures[f"payload_{name}_parquet_read_us"] = read_us / len(pushes)
    return figures


def _write(file: Path, rows: pa.Table) -> None:
    pq.write_table(rows, file, compression="zstd", compression_level=PUSHES.zstd_level, use_dictionary=False)


def _us_each(items: Sequence[Any], work: Callable[[Any], object]) -> float:
    rounds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for item in items:
            work(item)
        rounds.append(time.process_time() - began)
    return statistics.median(rounds) / len(items) * 1e6


def _tasks() -> dict[str, float]:
    """CPU per point of the job's two tasks, which store pushes and convert them, rounds of each kind in turn."""
    kernel.load()
    runs: dict[str, list[tuple[float, float, float]]] = {"none": [], "zstd": []}
    for number in range(2 * (1 + ROUNDS)):
        codec = ("none", "zstd")[number % 2]
        with tempfile.TemporaryDirectory(prefix="payloads-") as lake:
            run = _both_tasks(lake, list(Fleet(CLIENTS // 10, FIRST_MS, codecs=(codec,)).landings(0, FLEET_PUSHES)))
        if number > 1:
            runs[codec].append(run)
    names = ("store_us_per_point", "convert_us_per_point", "pushes_bytes_per_point")
    return {
        f"payload_{codec}_{name}": statistics.median(figures)
        for codec, rounds in runs.items()
        for name, figures in zip(names, zip(*rounds, strict=True), strict=True)
    }


def _both_tasks(lake: str, landings: list[Landing]) -> tuple[float, float, float]:
    points = sum(landing.points for landing in landings)
    for table in TABLES:
        table.create(lake)
    (Path(lake) / "_state").mkdir()
    batches = landing_rows(pushes_rows(landings, 0, SHARDS)).to_batches(max_chunksize=ROWS)
    began = time.process_time()
    files = [DataFile.from_json(row["file"]) for batch in StoreTask(lake)(batches) for row in batch.to_pylist()]
    stored = time.process_time()
    TableLog(PUSHES, lake).commit(files, "benchmark", 0)
    committed = time.process_time()
    task = ShardTask(lake, 0, tuple(file.path for file in files), SHARDS, f"{lake}/_state", {})
    for _ in task([pa.record_batch({"id": range(SHARDS)})]):
        pass
    converted = time.process_time()
    us = 1e6 / points
    return (stored - began) * us, (converted - committed) * us, stored_bytes(Path(lake), "pushes") / points


if __name__ == "__main__":
    main()
