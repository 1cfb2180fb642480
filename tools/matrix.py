"""Tests the job with each line of Spark and each Python, and measures the same batches: `make test-matrix`.

Each environment is a venv in `.matrix/`: the versions of the lock, but for pyspark. Arguments choose environments:

    python -m tools.matrix 4.2 4.1-py3.13     Spark 4.2 with every Python, and Spark 4.1 with Python 3.13

It prints the table of docs/versions.md. What the tests print is in `.matrix/<environment>.log`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

from uv import find_uv_bin

from benchmarks.shapes import STOCK
from benchmarks.spark_engine import write_rounds
from kafka_telemetry_lake.pipelines.runtime.jars import SPARK_LINES
from kafka_telemetry_lake.pipelines.runtime.java import java_program

MATRIX = Path(".matrix")
PYTHONS = ("3.11", "3.12", "3.13")
POINTS, ROUNDS = 200_000, 3  # of a batch; the batches before the last warm up
# Of each capability that uses Spark the test that says most: both sources, both engines, SQL, upkeep, S3.
TESTS = (
    "tests/unit/runtime/test_jars.py",
    "tests/spark/test_ingest_captured.py::test_points_kinds_nans_and_terminating_flags_are_those_of_the_index",
    "tests/spark/test_replay_job.py::test_upkeep_beside_the_running_streams",
    "tests/spark/test_operator.py::test_results_count_if_they_are_of_the_pushes_that_the_batch_reads",
    "tests/spark/test_readers.py",
    "tests/spark/test_sql_functions.py",
    "tests/spark/test_storage_s3.py::test_the_whole_job_and_its_upkeep",
    "tests/spark/test_submitted_session.py::test_tuning_and_a_quiet_log",
    "tests/kafka/test_kafka_classes.py",
    "tests/kafka/test_ingest_kafka.py::test_starts_where_configured_and_goes_on_where_it_ended",
    "tests/kafka/test_ingest_kafka.py::test_partitions_added_are_read_from_their_beginning",
    "tests/kafka/test_ingest_kafka.py::test_partitions_added_while_a_batch_waits_do_not_stop_the_job",
    "tests/kafka/test_ingest_kafka.py::test_sasl_options_reach_the_consumer",
    "tests/spark/test_tables_by_name.py::test_captured_pushes",
)
ALONE = ("tests/spark/test_sql_views.py",)  # to plan every view takes most of a session's heap, or all of it


@dataclass(frozen=True)
class Environment:
    """A line of Spark and a Python, both as ``major.minor``."""

    line: str
    python: str

    @property
    def name(self) -> str:
        return f"{self.line}-py{self.python}"

    @property
    def interpreter(self) -> Path:
        return (MATRIX / self.name / "bin" / "python").absolute()

    def install(self) -> bool:
        """Returns False if the machine lacks this Python."""
        uv, folder = find_uv_bin(), MATRIX / self.name
        made = [uv, "venv", "--quiet", "--allow-existing", "--no-python-downloads", "--python", self.python, folder]
        if subprocess.run(made, check=False).returncode:
            return False
        other = folder / "override.txt"
        other.write_text(f"pyspark=={SPARK_LINES[self.line].pyspark}\n", encoding="utf-8")
        install = [uv, "pip", "install", "--quiet", "--python", self.interpreter]
        subprocess.run([*install, "-r", "requirements.lock", "--override", other], check=True)
        subprocess.run([*install, "--no-deps", "--no-build-isolation", "-e", "."], check=True)
        return True

    def test(self) -> str:
        """How many tests passed, failed and were skipped; it may not raise, since other environments follow."""
        counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
        report = MATRIX / f"{self.name}.xml"
        with (MATRIX / f"{self.name}.log").open("w", encoding="utf-8") as log:
            for tests in (TESTS, ALONE):
                report.unlink(missing_ok=True)
                argv = [self.interpreter, "-m", "pytest", *tests, "--timeout=1800", f"--junit-xml={report}"]
                more = {"TEST_DRIVER_MEMORY": "2g"} if tests is ALONE else {}
                subprocess.run(argv, stdout=log, stderr=subprocess.STDOUT, check=False, env=os.environ | more)
                if not report.exists():
                    return "not run"
                (suite,) = ET.parse(report).getroot().iter("testsuite")
                for name in counts:
                    counts[name] += int(suite.get(name, 0))
        failed = counts["failures"] + counts["errors"]
        passed = counts["tests"] - failed - counts["skipped"]
        return f"{passed} passed, {failed} failed, {counts['skipped']} skipped"

    def cost(self, engine: str, source: Path) -> float:
        """CPU seconds of JVM and Python for the last of the rounds in `source`."""
        with tempfile.TemporaryDirectory(prefix="matrix-") as folder:
            Path(folder, "source").symlink_to(source)
            argv = [self.interpreter, "-m", "benchmarks.spark_engine", "--side", engine, "--folder", folder]
            output = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout
        return float(json.loads(output.splitlines()[-1])["rounds"][-1])


def asked_for(names: list[str]) -> list[Environment]:
    """The environments of these names or lines; all, if none is named."""
    every = [Environment(line, python) for line in SPARK_LINES for python in PYTHONS]
    known = {name: None for each in every for name in (each.line, each.name)}
    if unknown := set(names) - known.keys():
        sys.exit(f"no environment {', '.join(sorted(unknown))}: there are {', '.join(known)}")
    return [each for each in every if not names or {each.line, each.name} & set(names)]


def main(asked: list[str]) -> int:
    """Print a row for each environment; returns 1 if a test failed."""
    MATRIX.mkdir(exist_ok=True)
    there = [each for each in asked_for(asked) if each.install()]
    said = subprocess.run([java_program(), "-version"], capture_output=True, text=True, check=True).stderr
    java = said.split('"')[1]
    print("| Spark | connector | Python | Java | tests | wall time, min |\n|---|---|---|---|---|---|")
    failed = False
    for each in there:
        began, spark = time.monotonic(), SPARK_LINES[each.line]
        result = each.test()
        failed |= ", 0 failed," not in result
        minutes = (time.monotonic() - began) / 60
        print(
            f"| {spark.pyspark} | {spark.connector} | {each.python} | {java} | {result} | {minutes:.0f} |", flush=True
        )
    print("\n| Spark | Python | fast engine, CPU-s of a batch | Spark engine, CPU-s of a batch |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="matrix-") as folder:
        source = Path(folder, "source")
        points = write_rounds(source, STOCK.pushes(POINTS), ROUNDS)
        first: list[float] = []
        for each in there:
            costs = [each.cost(engine, source) for engine in ("fast", "spark")]
            first = first or costs
            ratios = [f"{cost:.2f} ({cost / base:.2f})" for cost, base in zip(costs, first, strict=True)]
            print(f"| {SPARK_LINES[each.line].pyspark} | {each.python} | {' | '.join(ratios)} |", flush=True)
    print(f"\n{points:,} points a batch; in brackets the ratio to the first row.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
