"""What it saves and costs to compress each payload: by zstd, and by zstd with a dictionary of other clients.

    python -m benchmarks.payload_compression           prints each figure and stores it in benchmarks/results.json
    python -m benchmarks.payload_compression --job     the warm job instead, with payloads of either kind
    python -m benchmarks.payload_compression --write FOLDER     only writes payloads for PayloadCompressionBenchmark

Dictionaries learn from some of the captured pushes, and are measured on pushes that they have not seen: later pushes of
the same clients, other clients, the two other libraries, and other versions of the Java client, whose pushes are
captured here from a local broker. CPU time is that of one thread with a reused context, median of the rounds.
"""

from __future__ import annotations

import argparse
import dataclasses
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
from benchmarks.fleet import Fleet
from benchmarks.job import Job, stored_bytes
from benchmarks.load import Lander
from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.plugin import receiver_jar
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
CLIENTS = 200_000
PARTITIONS = 4
JOB_PUSHES = 20_000
JOB_WARM_PAIRS, JOB_PAIRS = 3, 3

Payloads: TypeAlias = "list[bytes | bytearray | memoryview[int]]"


def main() -> None:
    """Measure the codecs, or the job, and print and store the figures."""
    parser = argparse.ArgumentParser(description="Payload compression: codecs, or the whole job.")
    parser.add_argument("--job", action="store_true", help="measure the warm job")
    parser.add_argument("--write", type=Path, help="write payloads of the fleet to this folder, one a file")
    arguments = parser.parse_args()
    if arguments.write:
        _write_payloads(arguments.write)
    else:
        print_figures(_job() if arguments.job else _codecs())


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
    pq.write_table(rows, file, compression="zstd", compression_level=1, use_dictionary=False)


def _us_each(items: Sequence[Any], work: Callable[[Any], object]) -> float:
    rounds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for item in items:
            work(item)
        rounds.append(time.process_time() - began)
    return statistics.median(rounds) / len(items) * 1e6


def _job() -> dict[str, float]:
    """The warm job's CPU per point, pairs of rounds with plain and with compressed payloads in turn."""
    us: dict[str, list[float]] = {"none": [], "zstd": []}
    stored = {}
    with (
        tempfile.TemporaryDirectory(prefix="payloads-") as scratch,
        LocalCluster(landing_partitions=PARTITIONS, heap_mb=512) as cluster,
        Job(cluster.bootstrap_servers, Path(scratch) / "lake") as job,
    ):
        fleet = Fleet(CLIENTS, time.time_ns() // 1_000_000 - 600_000)
        for number, codec in enumerate(["none", "zstd"] * (JOB_WARM_PAIRS + JOB_PAIRS)):
            first, last = number * JOB_PUSHES, (number + 1) * JOB_PUSHES
            with job.paused():
                points = _land(cluster.bootstrap_servers, fleet, first, last, codec)
                cpu_s = job.tree.cpu_s()
                before = stored_bytes(job.lake, "pushes") if number else 0
            job.wait_for(last)
            time.sleep(2)  # includes the work that a batch does after its commit
            if number >= 2 * JOB_WARM_PAIRS:
                us[codec].append((job.tree.cpu_s() - cpu_s) / points * 1e6)
                stored[codec] = (stored_bytes(job.lake, "pushes") - before) / points
                print(f"{codec}: {us[codec][-1]:.3f} us and {stored[codec]:.1f} bytes a point", flush=True)
    return {
        **{f"payload_job_{codec}_us_per_point": statistics.median(figures) for codec, figures in us.items()},
        "payload_job_zstd_vs_none": statistics.median(b / a for a, b in zip(*us.values(), strict=True)),
        **{f"payload_job_{codec}_pushes_bytes_per_point": size for codec, size in stored.items()},
    }


def _land(bootstrap_servers: str, fleet: Fleet, first: int, last: int, codec: str) -> int:
    """Land pushes as the receiver does with this `payload.compression`; returns their number of points."""
    lander, compressor = Lander(bootstrap_servers), ZstdCompressor(LEVEL)
    points = 0
    for landing in fleet.landings(first, last):
        points += landing.points
        headers = [*landing.headers, ("compression_type", codec.encode())]  # the last of a name counts
        payload = compressor.compress(landing.payload) if codec == "zstd" else landing.payload
        lander.land(dataclasses.replace(landing, payload=payload, headers=headers))
    lander.close()
    return points


if __name__ == "__main__":
    main()
