"""The cost of quotas: sampling in a broker, the stream of samples, and the search for quota metrics among the points.

The sampler is measured with a real broker and producer. The stream reads one file per batch, with one sweep, as a topic
would deliver it every 10 s. The search runs over the captured pushes' points.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from benchmarks.figures import print_figures
from benchmarks.peers.cpu import TreeCpu
from benchmarks.state import some_pushes
from kafka_telemetry_lake.pipelines.ingest.operator import Operator
from kafka_telemetry_lake.pipelines.ingest.sources import FilesSource
from kafka_telemetry_lake.pipelines.ingest.streams import JobLake, start_landing
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.table_files import TableFiles
from kafka_telemetry_lake.pipelines.quotas.broker_usage import sample_windows
from kafka_telemetry_lake.pipelines.quotas.client_reports import read_reports
from kafka_telemetry_lake.pipelines.runtime.jars import maven
from kafka_telemetry_lake.pipelines.runtime.session import spark_session
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, PUSHES
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.java import java_command, kafka_class_path
from kafka_telemetry_lake.sandbox.cluster.plugin import receiver_jar
from kafka_telemetry_lake.udfs.conversion.shard import process
from kafka_telemetry_lake.udfs.conversion.state import ShardState

RECEIVER = Path(__file__).parent.parent / "receiver"
NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
INTERVAL_S = 10
SWEEPS = 6  # a minute
SENSORS = (10_000, 100_000, 300_000)  # with fewer, the fixed cost of a batch dominates
CLIENTS = 5_000


class Once(FilesSource):
    """A source whose offsets never repeat, as Kafka's: the stream needn't look them up in the table."""

    may_repeat = False


def main() -> None:
    """Measure all three."""
    print_figures(sampler())
    with TreeCpu(os.getpid()) as tree:
        spark = spark_session("quotas", "local[2]")
        print_figures(stream(spark, tree.cpu_s))
        spark.stop()
        print_figures(reports(tree.cpu_s))


def sampler() -> dict[str, float]:
    """CPU of a sweep over 10,000 sensors, including its producer's."""
    subprocess.run([str(maven()), "-q", "-B", "-f", str(RECEIVER / "pom.xml"), "test-compile"], check=True)
    with LocalCluster(plugin=receiver_jar()) as cluster, tempfile.TemporaryDirectory() as scratch:
        folders = (RECEIVER / "target" / folder for folder in ("classes", "test-classes"))
        command = java_command(
            kafka_class_path(cluster.version, *folders),
            "io.github.kafkatelemetrylake.receiver.QuotaSamplerBenchmark",
            cluster.bootstrap_servers,
            log=Path(scratch) / "log",
        )
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    match = re.search(r"10000 sensors: ([0-9.]+) ms of CPU a sweep, .*; (\d+) landed", output)
    if match is None or int(match[2]) < 500_000:  # of 600,000; the first sweeps may end before a broker is connected
        raise RuntimeError(output)
    cpu_s = float(match[1]) / 1000
    return {"quota_sampler_cpu_s_per_sweep_10k": cpu_s, "quota_sampler_core_share_10k": cpu_s / INTERVAL_S}


def stream(spark: SparkSession, cpu_s: Callable[[], float]) -> dict[str, float]:
    """CPU of a batch of one sweep, for three numbers of sensors; the first two runs are warm-up."""
    used = {}
    # There are no pushes to judge.
    nobody = cast(Operator, SimpleNamespace(next_task=lambda: None, catch_up=lambda *_, **__: None, shards=1))
    for sensors in (*SENSORS[:2], *SENSORS):
        with tempfile.TemporaryDirectory() as scratch:
            folder, lake = Path(scratch) / "in", JobLake(f"{scratch}/lake", f"{scratch}/checkpoints")
            folder.mkdir()
            for number in range(SWEEPS):
                pq.write_table(sweep(number, sensors), folder / f"{number:03d}.parquet")
            before = cpu_s()
            lake.create_tables()
            source = Once(str(folder), "benchmark", max_files_per_trigger=1)
            start_landing(spark, lake, source, None, nobody).awaitTermination()
            sample_windows(lake.path).catch_up()
            used[sensors] = (cpu_s() - before) / SWEEPS
            rows = DeltaTable(f"{lake.path}/quota_samples").count()
            if rows != sensors * SWEEPS:
                raise RuntimeError(f"{rows} samples stored of {sensors * SWEEPS}")
    few, some, many = (used[sensors] for sensors in SENSORS)
    slope = (many - few) / (SENSORS[2] - SENSORS[0])
    return {
        "quota_stream_cpu_s_per_batch_10k": few,
        "quota_stream_cpu_s_per_batch_100k": some,
        "quota_stream_cpu_s_per_batch_300k": many,
        "quota_stream_core_share_10k": few / INTERVAL_S,
        "quota_stream_cpu_s_per_m_samples": slope * 1e6,
        # 1 if the middle value is on the line between the other two.
        "quota_stream_linearity": some / (few + slope * (SENSORS[1] - SENSORS[0])),
    }


def sweep(number: int, sensors: int) -> pa.Table:
    """The landing records of one sweep."""
    at = NOON + timedelta(seconds=INTERVAL_S * number + INTERVAL_S // 2)
    values = [
        json.dumps(
            {
                "version": 1,
                "cluster_id": "c",
                "broker_id": 1,
                "time_ms": int(at.timestamp() * 1000),
                "quota_type": "produce",
                "user": f"user-{sensor % 100}",
                "client_id": f"orders-service-producer-{sensor}",
                "observed_rate": 1000.0 * (sensor % 990) + number,
                "quota_limit": 1e6,
            }
        ).encode()
        for sensor in range(sensors)
    ]
    first = number * sensors
    return pa.table(
        {
            "key": pa.array([b"1"] * sensors),
            "value": pa.array(values),
            "topic": ["client-quotas"] * sensors,
            "partition": pa.array([0] * sensors, pa.int32()),
            "offset": range(first, first + sensors),
            "timestamp": pa.array([at] * sensors, pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * sensors, pa.int32()),
            "headers": pa.nulls(sensors, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        }
    )


def reports(cpu_s: Callable[[], float]) -> dict[str, float]:
    """CPU of finding the reports and their principals among the points; the first run is warm-up."""
    pushes = some_pushes(0, CLIENTS)
    points = process(pushes, ShardState.empty())[0].metric_points
    with tempfile.TemporaryDirectory() as lake:
        for table, content in ((PUSHES, pushes), (METRIC_POINTS, points)):
            table.create(lake)
            writer = TableFiles(table, lake)
            writer.write(content)
            TableLog(table, lake).commit(writer.close(), "benchmark", 0)
        files = DeltaTable(METRIC_POINTS.uri(lake)).file_uris()
        read_reports(Lake(lake), files)
        before = cpu_s()
        rows = read_reports(Lake(lake), files)
        used = cpu_s() - before
    return {
        "quota_reports_read_cpu_s_per_m_points": used / len(points) * 1e6,
        "quota_reports_share_of_points": len(rows) / len(points),
    }


if __name__ == "__main__":
    main()
