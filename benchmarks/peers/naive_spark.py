"""A Spark job that an engineer would write in an afternoon: protobuf objects, Python loops, a window for the deltas.

It is correct for counters that arrive in one run. `python -m benchmarks.peers.naive_spark` is the job; it prints "warm"
after it has processed a few records, and "done" after it has written the table.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd
from deltalake import DeltaTable
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from benchmarks.peers import PeerError, PeerResult
from benchmarks.peers.cpu import TreeCpu
from kafka_telemetry_lake.pipelines.runtime.jars import jars
from kafka_telemetry_lake.sandbox.cluster.process import Process

DELTA, CUMULATIVE = 1, 2
COLUMNS = (
    "client_instance_id string, metric string, attributes string, kind string, temporality int, is_monotonic boolean, "
    "start_time timestamp, time timestamp, value double"
)
NAMES = [column.split()[0] for column in COLUMNS.split(", ")]


def run_naive_spark(bootstrap_servers: str, topic: str, points: int, folder: Path) -> PeerResult:
    """Run the job in its own process, on two threads; start-up and warm-up are measured apart. Raises `PeerError`."""
    folder.mkdir(parents=True, exist_ok=True)
    log, table = folder / "naive_spark.log", folder / "points"
    module = [sys.executable, "-m", "benchmarks.peers.naive_spark"]
    process = Process(
        [*module, "--bootstrap-servers", bootstrap_servers, "--topic", topic, "--folder", folder], log, pipes=True
    )
    try:
        with TreeCpu(process.pid) as tree:
            _wait_for(b"warm", process, log)
            startup_cpu_s, before = tree.cpu_s(), time.monotonic()
            process.stdin.write(b"go\n")
            process.stdin.flush()
            _wait_for(b"done", process, log)
            seconds = time.monotonic() - before
            cpu_s = tree.cpu_s() - startup_cpu_s
    finally:
        process.stdin.close()  # ends the job; if it were killed, Spark would leave its scratch folders
        process.wait(20)
        process.kill()
    rows = DeltaTable(table).to_pyarrow_dataset().count_rows()
    if rows != points:
        raise PeerError(f"{rows} rows of {points} points")
    return PeerResult(
        name="naive_spark",
        points=rows,
        points_read=rows,
        cpu_s=cpu_s,
        startup_cpu_s=startup_cpu_s,
        seconds=seconds,
        peak_rss_bytes=tree.peak_rss_bytes,
        output_bytes=sum(file.stat().st_size for file in table.rglob("*.parquet")),
    )


def _wait_for(word: bytes, process: Process, log: Path) -> None:
    for line in process.stdout:
        if line.strip() == word:
            return
    raise PeerError(f"the naive job ended before it was {word.decode()}\n{log.read_text(errors='replace')[-3000:]}")


def points_of(pushes: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """One row per data point; the value of a histogram is its count."""
    for batch in pushes:
        rows = []
        for instance_id, payload in zip(batch["client_instance_id"], batch["value"], strict=True):
            data = MetricsData()
            data.ParseFromString(payload)
            for resource_metrics in data.resource_metrics:
                for scope_metrics in resource_metrics.scope_metrics:
                    for metric in scope_metrics.metrics:
                        kind = metric.WhichOneof("data") or "gauge"
                        body = getattr(metric, kind)
                        for point in body.data_points:
                            attributes = {each.key: each.value.string_value for each in point.attributes}
                            value = (
                                getattr(point, point.WhichOneof("value")) if kind in ("gauge", "sum") else point.count
                            )
                            rows.append(
                                (
                                    instance_id,
                                    metric.name,
                                    json.dumps(attributes, sort_keys=True),
                                    kind,
                                    getattr(body, "aggregation_temporality", None),
                                    getattr(body, "is_monotonic", None),
                                    point.start_time_unix_nano,
                                    point.time_unix_nano,
                                    float(value),
                                )
                            )
        points = pd.DataFrame(rows, columns=NAMES)
        for name in ("start_time", "time"):
            points[name] = pd.to_datetime(points[name], unit="ns", utc=True)
        yield points


def with_deltas(points: DataFrame) -> DataFrame:
    """Column `delta`: a cumulative counter's increase since its previous point (none for the first); DELTA as it is."""
    series = Window.partitionBy("client_instance_id", "metric", "attributes", "start_time").orderBy("time")
    is_total = (F.col("temporality") == CUMULATIVE) & F.col("is_monotonic")
    increment = F.when(is_total, F.col("value") - F.lag("value").over(series))
    return points.withColumn("delta", increment.when(F.col("temporality") == DELTA, F.col("value")))


def ingest(records: DataFrame, table: Path) -> None:
    """Write the points of landing records to a new Delta table."""
    pushes = records.select(F.col("key").cast("string").alias("client_instance_id"), "value")
    with_deltas(pushes.mapInPandas(points_of, COLUMNS)).write.format("delta").save(str(table))


def session() -> SparkSession:
    """A session with Spark's defaults, except for settings that Kafka and Delta need."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.driver.extraClassPath", os.pathsep.join(map(str, jars("spark"))))
        .config("spark.driver.memory", "4g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )


def read(spark: SparkSession, bootstrap_servers: str, topic: str) -> DataFrame:
    """The whole topic."""
    options = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.read.format("kafka").options(**options).load()


def main() -> None:
    """Warm up, wait for a line on stdin, run, and wait for the end of stdin."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    spark = session()
    ingest(read(spark, options.bootstrap_servers, options.topic).limit(20), options.folder / "warm-up")
    print("warm", flush=True)
    sys.stdin.readline()
    ingest(read(spark, options.bootstrap_servers, options.topic), options.folder / "points")
    print("done", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
