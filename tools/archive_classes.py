"""`make archive`: has a job leave the archive of its classes (pipelines/runtime/class_archive.py), and waits for it."""

from __future__ import annotations

import os
import sys
import tempfile

from pyspark import SparkContext

from kafka_telemetry_lake.jobs.cli import main
from kafka_telemetry_lake.pipelines.runtime.class_archive import class_archive, note_of
from kafka_telemetry_lake.pipelines.runtime.jars import jars


def write_archive() -> int:
    """Returns the exit code of the job. A Java without class data sharing writes nothing."""
    note_of(class_archive(os.pathsep.join(map(str, jars("spark"))))).touch()
    with tempfile.TemporaryDirectory() as lake:
        code = main(["demo", "--files", "--lake", f"{lake}/lake"])
        java = SparkContext._gateway.proc
        java.stdin.close()  # the JVM ends with its parent
        java.wait()
    return code


if __name__ == "__main__":
    sys.exit(write_archive())
