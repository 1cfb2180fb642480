"""Rotel, a pipeline for OpenTelemetry in Rust: Kafka -> batch -> Parquet files, a row per data point.

It does less than the job and the Collector: it converts no cumulative points, and drops the record's headers, so points
of clients with equal labels can't be told apart. No registry carries it with a Kafka receiver; build it from its source
(measured: 9ff0ed0, version 0.2.1):

    git clone https://github.com/streamfold/rotel
    cargo build --release --no-default-features --features rdkafka,file_exporter

and give the program as `python -m benchmarks.end_to_end --rotel rotel/target/release/rotel`.
"""

from __future__ import annotations

import signal
import time
import uuid
from pathlib import Path

import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition

from benchmarks.peers import PeerError, PeerResult
from benchmarks.peers.cpu import TreeCpu
from kafka_telemetry_lake.sandbox.cluster.process import Process

POLL_S = 0.5
STALL_S = 60.0


def run_rotel(program: Path, bootstrap_servers: str, topic: str, points: int, folder: Path) -> PeerResult:
    """Run it until it has committed the whole topic. Raises `PeerError`.

    CPU time and seconds are of the whole process from its start to its end.
    """
    output, log = folder / "points", folder / "rotel.log"
    output.mkdir(parents=True)
    kafka = {
        "brokers": bootstrap_servers,
        "group-id": f"rotel-{uuid.uuid4()}",
        "metrics-topic": topic,
        "auto-offset-reset": "earliest",
    }
    options = [part for name, value in kafka.items() for part in (f"--kafka-receiver-{name}", value)]
    receiver = ["--receiver", "kafka", "--kafka-receiver-metrics", *options]
    exporter = ["--exporter", "file", "--file-exporter-format", "parquet", "--file-exporter-output-dir", str(output)]
    before = time.monotonic()
    process = Process([program, "start", *receiver, *exporter], log)
    try:
        with TreeCpu(process.pid) as tree:
            _follow(process, bootstrap_servers, topic, kafka["group-id"])
            process.signal(signal.SIGTERM)  # it writes what it has buffered and exits
            cpu_s = tree.cpu_s_at_end()
            seconds = time.monotonic() - before
    except PeerError as error:
        raise PeerError(f"{error}\n{log.read_text(errors='replace')[-3000:]}") from None
    finally:
        process.stop()
    files = list(output.rglob("*.parquet"))
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    if rows != points:
        raise PeerError(f"{rows} rows of {points} points")
    return PeerResult(
        name="rotel",
        points=rows,
        points_read=rows,
        cpu_s=cpu_s,
        startup_cpu_s=0.0,
        seconds=seconds,
        peak_rss_bytes=tree.peak_rss_bytes,
        output_bytes=sum(file.stat().st_size for file in files),
    )


def _follow(process: Process, bootstrap_servers: str, topic: str, group: str) -> None:
    """Wait until the group's offsets are at the end of the topic; it commits them every five seconds."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    try:
        partitions = [
            TopicPartition(topic, number) for number in consumer.list_topics(topic, 10).topics[topic].partitions
        ]
        waiting = sum(consumer.get_watermark_offsets(each, 10)[1] for each in partitions)
        committed, changed = 0, time.monotonic()
        while committed < waiting:
            time.sleep(POLL_S)
            if not process.running:
                raise PeerError(f"Rotel ended after {committed} of {waiting} records")
            now_committed = sum(max(each.offset, 0) for each in consumer.committed(partitions, 10))
            if now_committed > committed:
                committed, changed = now_committed, time.monotonic()
            elif time.monotonic() - changed > STALL_S:
                raise PeerError(f"Rotel makes no progress at {committed} of {waiting} records")
    finally:
        consumer.close()
