"""What a data point costs with each engine, and with a plain Spark job: CPU of JVM and Python, in one run.

Pushes of the stock fleet (`benchmarks.shapes`) are Parquet files with the columns of Spark's Kafka source: some rounds
to warm up, then the one that is measured. Each side reads them in a process of its own, on two cores; for both engines
a round is a micro-batch. The plain job (`benchmarks.peers.naive_spark`) reads the last round only, after it has written
a few records to warm up: it has no state.

    python -m benchmarks.spark_engine     prints each figure and stores it in benchmarks/results.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from benchmarks.figures import print_figures
from benchmarks.peers import naive_spark
from benchmarks.shapes import STOCK, Shape
from kafka_telemetry_lake.jobs.support.ingest_by_name import TABLES
from kafka_telemetry_lake.jobs.support.judging import caught_up_operator
from kafka_telemetry_lake.pipelines.ingest.sources import FilesSource
from kafka_telemetry_lake.pipelines.ingest.streams import JobLake, start_landing
from kafka_telemetry_lake.pipelines.runtime.session import spark_session
from kafka_telemetry_lake.pipelines.spark_engine.query import start_spark_engine
from kafka_telemetry_lake.pipelines.spark_engine.tables import TablesByName
from kafka_telemetry_lake.pipelines.tables.names import Names
from kafka_telemetry_lake.udfs.kernels.sharding import places_of, shards_at
from kafka_telemetry_lake.udfs.limits import Limits
from tests.support.landing_records import SCHEMA

PARTITIONS, SHARDS = 4, 2
NO_LIFECYCLE: Any = SimpleNamespace(step=lambda *_: None)  # that of the fast engine is no part of its round either
MAX_BYTES = 1 << 30  # a batch of the fast engine takes all that a round stores


class EachOnce(FilesSource):
    """Files that have each offset once, as a topic has: nothing is compared with what is stored."""

    may_repeat = False


def main() -> None:
    """Measure all sides, and print and store the figures; or, in a process of its own, measure one side."""
    parser = argparse.ArgumentParser(description="CPU of a point, by engine.")
    parser.add_argument("--points", type=int, default=3_000_000, help="of a round")
    parser.add_argument("--warm", type=int, default=3, help="rounds before the one that is measured")
    parser.add_argument("--side", choices=list(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(SIDES[options.side](options.folder)))
        return
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="spark-engine-") as scratch:
        points = write_rounds(Path(scratch) / "source", STOCK.pushes(options.points), options.warm + 1)
        for side in SIDES:
            argv = [sys.executable, "-m", "benchmarks.spark_engine", "--side", side, "--folder", scratch]
            output = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout
            measured = json.loads(output.splitlines()[-1])
            if measured["points"] != points:
                raise RuntimeError(f"{side}: {measured['points']} points of {points}")
            print(f"{side}: CPU-s of each round: {measured['rounds']}", flush=True)
            figures[f"engine_{side}_us_per_point"] = 1e6 * measured["rounds"][-1] / points
    figures["engine_spark_vs_fast"] = figures["engine_spark_us_per_point"] / figures["engine_fast_us_per_point"]
    figures["engine_spark_vs_naive"] = figures["engine_naive_us_per_point"] / figures["engine_spark_us_per_point"]
    print_figures(figures)


def write_rounds(folder: Path, pushes: int, rounds: int, shape: Shape = STOCK) -> int:
    """Write a fleet's pushes, a file for each landing partition and round; returns the points of the last round."""
    folder.mkdir()
    fleet, _ = shape.fleets(pushes * rounds)
    offsets, points = [0] * PARTITIONS, 0
    for number in range(rounds):
        landings = list(fleet.landings(number * pushes, (number + 1) * pushes))
        points = sum(landing.points for landing in landings)
        places = shards_at(places_of(pa.array([each.client_instance_id for each in landings])), PARTITIONS)
        rows: list[list[dict[str, Any]]] = [[] for _ in range(PARTITIONS)]
        for landing, place in zip(landings, places.tolist(), strict=True):
            headers = [{"key": name, "value": value} for name, value in landing.headers]
            rows[place].append(
                {"key": landing.client_instance_id.encode(), "value": landing.payload, "topic": "client-telemetry",
                 "partition": place, "offset": offsets[place], "timestampType": 0, "headers": headers,
                 "timestamp": datetime.fromtimestamp(landing.landed_ms / 1000, UTC)}
            )  # fmt: skip
            offsets[place] += 1
        for place, own in enumerate(rows):
            pq.write_table(pa.Table.from_pylist(own, SCHEMA), folder / f"{number:03}-{place}.parquet")
    return points


def fast(folder: Path) -> dict[str, Any]:
    """The CPU seconds of each round by the fast engine, and the points of the last."""
    rounds = Rounds()
    spark, lake, source = _begin(folder, "fast")
    operator = caught_up_operator(spark, lake, Limits(), MAX_BYTES, threading.Event(), SHARDS, rounds.add)
    start_landing(spark, lake, source, None, operator).awaitTermination()
    return rounds.result()


def spark(folder: Path) -> dict[str, Any]:
    """The same by the Spark engine."""
    rounds = Rounds()
    session, lake, source = _begin(folder, "spark")
    names = Names("spark_catalog", "benchmark")
    session.sql(f"CREATE SCHEMA {names.quoted} LOCATION '{folder / 'managed'}'")
    tables = TablesByName(session, names)
    tables.create(TABLES)
    query = start_spark_engine(session, lake, tables, source, None, Limits(), SHARDS, rounds.add, NO_LIFECYCLE)
    query.awaitTermination()
    return rounds.result()


def naive(folder: Path) -> dict[str, Any]:
    """The CPU seconds of the plain job for the last round."""
    session = naive_spark.session()
    files = sorted((folder / "source").glob("*.parquet"))
    naive_spark.ingest(session.read.parquet(str(files[0])).limit(100), folder / "warm")
    before = cpu_s()
    naive_spark.ingest(session.read.parquet(*map(str, files[-PARTITIONS:])), folder / "naive")
    return {"rounds": [round(cpu_s() - before, 2)], "points": DeltaTable(folder / "naive").count()}


SIDES: dict[str, Callable[[Path], dict[str, Any]]] = {"naive": naive, "fast": fast, "spark": spark}


class Rounds:
    """The CPU seconds of this process and its children from one end of a batch to the next."""

    def __init__(self) -> None:
        self._ends, self._points = [cpu_s()], 0

    def add(self, _: object, facts: Any) -> None:
        self._ends.append(cpu_s())
        self._points = facts.points

    def result(self) -> dict[str, Any]:
        spent = [round(end - begin, 2) for begin, end in zip(self._ends, self._ends[1:], strict=False)]
        return {"rounds": spent, "points": self._points}


def _begin(folder: Path, name: str) -> tuple[SparkSession, JobLake, EachOnce]:
    session = spark_session(name, f"local[{SHARDS},3]", lake=str(folder / name))
    lake = JobLake(str(folder / name), str(folder / f"{name}-checkpoints"))
    lake.create_tables()
    return session, lake, EachOnce(str(folder / "source"), "benchmark", max_files_per_trigger=PARTITIONS)


def cpu_s() -> float:
    """CPU seconds of this process, its JVM and the Python workers that live."""
    own = psutil.Process()
    times = [each.cpu_times() for each in (own, *own.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


if __name__ == "__main__":
    main()
