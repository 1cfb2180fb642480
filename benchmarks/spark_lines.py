"""The job's CPU time with each line of Spark and with other Javas, in turns on one machine.

    python -m benchmarks.spark_lines                                     each line, with the Java that is found
    python -m benchmarks.spark_lines 4.0 4.2 4.2:/usr/lib/jvm/java-25    Spark 4.2 with another Java, too
    python -m benchmarks.spark_lines --small                             ten minutes of 10,000 clients

In a turn each environment reads the rounds of each shape and size, in a process of its own: files with the columns of
Spark's Kafka source, a micro-batch a round (`benchmarks.spark_engine`). The last round counts, CPU of JVM and Python,
and so does all until then, the start included. With ``--small`` a job of each environment follows a fleet of its own,
all at the same time. It is for after the turns, as the small fleets start from HotSpot's archive of classes, which the
first job leaves.

A Spark other than the installed one is put into `.matrix/spark-<line>`, which comes first on the path of job and
workers; all other packages are those of this environment. The table has the mean of all turns of an environment.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from uv import find_uv_bin

from benchmarks.before import ROOT
from benchmarks.figures import store_runs
from benchmarks.shapes import SHAPES, SIZES
from benchmarks.spark_engine import write_rounds
from kafka_telemetry_lake.pipelines.runtime.jars import SPARK_LINES, line_of_installed_spark

MATRIX = ROOT / ".matrix"
ROUNDS = 3  # of a size: two warm up
# Fetches the line's jars, and has the first job leave the archive of classes that it misses.
PREPARE = """
import os
from kafka_telemetry_lake.pipelines.runtime.class_archive import class_archive, note_of
from kafka_telemetry_lake.pipelines.runtime.jars import jars
note_of(class_archive(os.pathsep.join(map(str, jars("spark"))))).touch()
"""
SMALL = """
import json, tempfile
from pathlib import Path
import benchmarks.small
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
benchmarks.small.store_runs = lambda *_: None
with tempfile.TemporaryDirectory(prefix="small-") as scratch, LocalCluster(landing_partitions=4) as cluster:
    print(json.dumps(benchmarks.small.small(cluster.bootstrap_servers, Path(scratch) / "lake", 10_000)))
"""


@dataclass(frozen=True)
class SparkEnvironment:
    """A line of Spark, and the folder of a Java; without one, the Java that is found."""

    line: str
    java: str

    @classmethod
    def of(cls, name: str) -> SparkEnvironment:
        """``4.2`` or ``4.2:/usr/lib/jvm/java-25``."""
        line, _, java = name.partition(":")
        if line not in SPARK_LINES:
            raise SystemExit(f"no line {line} of Spark: there are {', '.join(SPARK_LINES)}")
        return cls(line, java)

    @property
    def name(self) -> str:
        spark = SPARK_LINES[self.line].pyspark
        if not self.java:
            return spark
        said = re.search(r'^JAVA_VERSION="(.*)"', Path(self.java, "release").read_text("utf-8"), re.MULTILINE)
        return f"{spark}, Java {self.java if said is None else said[1]}"

    def prepare(self) -> dict[str, str]:
        """Install what the machine lacks; returns the variables under which the job is this environment's."""
        variables = {"JAVA_HOME": self.java} if self.java else {}
        paths = [str(ROOT)]
        if self.line != line_of_installed_spark():
            folder = MATRIX / f"spark-{self.line}"
            if not (folder / "pyspark").is_dir():
                release = f"pyspark=={SPARK_LINES[self.line].pyspark}"
                subprocess.run([find_uv_bin(), "pip", "install", "--quiet", "--target", folder, release], check=True)
            paths.insert(0, str(folder))
        variables["PYTHONPATH"] = os.pathsep.join(paths)
        subprocess.run([sys.executable, "-c", PREPARE], cwd=ROOT, env=os.environ | variables, check=True)
        return variables


def main() -> None:
    parser = argparse.ArgumentParser(description="The job with each line of Spark.")
    parser.add_argument("environments", nargs="*", default=list(SPARK_LINES), metavar="LINE[:JAVA_HOME]")
    parser.add_argument("--shapes", nargs="+", choices=[shape.name for shape in SHAPES], default=["stock"])
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="ten minutes of 10,000 clients, and nothing else")
    options = parser.parse_args()
    there = {each.name: each.prepare() for each in map(SparkEnvironment.of, options.environments)}
    if options.small:
        with ThreadPoolExecutor(len(there)) as pool:
            for name, figures in zip(there, pool.map(small, there.values()), strict=True):
                print(name, json.dumps(figures), flush=True)
        return
    cpu_s: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    shapes = [shape for shape in SHAPES if shape.name in options.shapes]
    with tempfile.TemporaryDirectory(prefix="spark-lines-") as folder:
        for shape, size in itertools.product(shapes, options.sizes):
            source = Path(folder, shape.name, size)
            source.mkdir(parents=True)
            points = write_rounds(source / "source", shape.pushes(SIZES[size]), ROUNDS, shape)
            for turn, (name, variables) in itertools.product(range(options.turns), there.items()):
                rounds = batches(source / "source", variables)
                print(f"turn {turn}, {name}: {shape.name} {size}: {points} points, {rounds} CPU-s", flush=True)
                cpu_s[name][f"{shape.name}, {size}"].append(rounds[-1])
                cpu_s[name][f"{shape.name}, {size}, with the start"].append(sum(rounds))
    store_runs("spark_lines", {"cpu_s": cpu_s})
    print("\n".join(table(cpu_s)))


def batches(source: Path, variables: dict[str, str]) -> list[float]:
    """CPU-s of JVM and Python in each round; the first has the start of all processes."""
    with tempfile.TemporaryDirectory(prefix="spark-lines-") as folder:
        Path(folder, "source").symlink_to(source)
        argv = [sys.executable, "-m", "benchmarks.spark_engine", "--side", "fast", "--folder", folder]
        environment = os.environ | variables
        run = subprocess.run(argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [float(each) for each in json.loads(run.stdout.splitlines()[-1])["rounds"]]


def small(variables: dict[str, str]) -> dict[str, float]:
    """The figures of `benchmarks.small` with 10,000 clients."""
    run = subprocess.run(
        [sys.executable, "-c", SMALL],
        cwd=ROOT,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(json.loads(run.stdout.splitlines()[-1]))


def table(cpu_s: Mapping[str, Mapping[str, list[float]]]) -> Iterator[str]:
    """Lines of Markdown: mean CPU-s of each round by environment, in brackets the ratio to the first one."""
    first = next(iter(cpu_s.values()))
    yield f"| Spark | {' | '.join(first)} |"
    yield f"|---|{'---|' * len(first)}"
    for name, rounds in cpu_s.items():
        means = {key: statistics.mean(own) for key, own in rounds.items()}
        cells = [f"{mean:.1f} ({mean / statistics.mean(first[key]):.2f})" for key, mean in means.items()]
        yield f"| {name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
