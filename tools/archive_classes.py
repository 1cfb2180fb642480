"""Writes HotSpot's archive of the classes that the job loads, which local sessions use: `make archive`.

It ingests the captured pushes once in a JVM that writes the archive when it ends.
"""

from __future__ import annotations

import os
import sys
import tempfile

from pyspark import SparkContext

from kafka_telemetry_lake.jobs.cli import main
from kafka_telemetry_lake.pipelines.runtime.session import class_archive
from kafka_telemetry_lake.pipelines.runtime.spark_settings import QUIET_ARCHIVE


def write_archive() -> int:
    """Returns the exit code of the ingest. A Java without class data sharing writes nothing."""
    archive = class_archive()
    written = archive.with_suffix(".part")
    for file in (archive, written):
        file.unlink(missing_ok=True)
    options = ("-XX:+IgnoreUnrecognizedVMOptions", f"-XX:ArchiveClassesAtExit={written}", *QUIET_ARCHIVE)
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join((os.environ.get("SPARK_SUBMIT_OPTS", ""), *options))
    with tempfile.TemporaryDirectory() as lake:
        code = main(["demo", "--files", "--lake", f"{lake}/lake"])
        java = SparkContext._gateway.proc
        java.stdin.close()  # the JVM ends with its parent
        java.wait()
    if code == 0 and written.exists():
        written.rename(archive)
    return code


if __name__ == "__main__":
    sys.exit(write_archive())
