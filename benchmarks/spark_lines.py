"""The job's CPU time with each line of Spark and with other Javas, in turns on one machine.

    python -m benchmarks.spark_lines                                     each line, with the Java that is found
    python -m benchmarks.spark_lines 4.0 4.2 4.2:/usr/lib/jvm/java-25    Spark 4.2 with another Java, too
    python -m benchmarks.spark_lines --small                             ten minutes of 10,000 clients

A turn of an environment is a turn of `benchmarks.before`: a broker and a warm job, which reads a round of each shape and
size. With ``--small`` a job of each environment follows a fleet of its own, all at the same time. It is for after the
turns: the first one leaves HotSpot's archive of classes, which the later ones, and the small fleets, start from.

A Spark other than the installed one is put into `.matrix/spark-<line>`, which comes first on the path of job and workers;
all other packages are those of this environment. The printed table has the mean of all turns of an environment.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from uv import find_uv_bin

from benchmarks.before import ROOT, job_rounds
from benchmarks.figures import store_runs
from benchmarks.shapes import SHAPES, SIZES
from kafka_telemetry_lake.pipelines.runtime.jars import SPARK_LINES, line_of_installed_spark

MATRIX = ROOT / ".matrix"
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
    flags = ["--shapes", *options.shapes, "--sizes", *options.sizes]
    for turn in range(options.turns):
        for name, variables in there.items():
            for shape, size, points, took in job_rounds(ROOT, flags, variables):
                print(f"turn {turn}, {name}: {shape} {size}: {points} points, {took:.2f} CPU-s", flush=True)
                cpu_s[name][f"{shape}, {size}"].append(took)
    store_runs("spark_lines", {"cpu_s": cpu_s})
    print("\n".join(table(cpu_s)))


def small(variables: dict[str, str]) -> dict[str, float]:
    """The figures of `benchmarks.small` with 10,000 clients."""
    run = subprocess.run(
        [sys.executable, "-c", SMALL],
        cwd=ROOT, env=os.environ | variables, stdout=subprocess.PIPE, text=True, check=True,
    )  
    return dict(json.loads(run.stdout.splitlines()[-1]))


def table(cpu_s: dict[str, dict[str, list[float]]]) -> Iterator[str]:
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
