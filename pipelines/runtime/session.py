"""Gets the Spark session: the platform's own if there is one, else a local one with the project's jars and tuning."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from kafka_telemetry_lake.pipelines.lake.object_store import in_s3, s3a_settings
from kafka_telemetry_lake.pipelines.runtime.jars import jars, jars_home
from kafka_telemetry_lake.udfs.errors import CannotRunError

LOWEST_JAVA = 17
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

Settings = dict[str, bool | float | int | str | None]

# Needed for correct results in any session.
SEMANTICS: Settings = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.ansi.enabled": "true",
    # Rows go to Python tasks in Arrow batches, whose columns can't exceed 2 GiB: by default a batch has 10,000 rows of
    # any size, and a payload may have a MiB. The number of rows bounds them where Spark doesn't know the other setting.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(32 << 20),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    # Printed plans and Spark's event log contain the options of a Kafka source. A value may contain any character, so
    # everything up to the source's columns is redacted, or else the rest of the plan.
    "spark.sql.redaction.string.regex": r"(?is)kafka\.(sasl|ssl)\..*?(?=, \[key#|\z)",
}
# Only for local sessions: static settings, and tuning for one machine. A cluster has its own.
LOCAL: Settings = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Milliseconds for which Arrow's allocator retains free pages for the next slice: returning them at once costs a
    # tenth of a task. At its end a task returns them all (`operator_task`); with -1 a worker would retain its peak.
    "spark.executorEnv.MIMALLOC_PURGE_DELAY": "100",
    "spark.scheduler.mode": "FAIR",
    # In local folders, Spark's default starts three processes (`chmod`, `readlink`) to rename a file of the checkpoint,
    # which takes 0.4 to 0.7 s of each batch on two busy cores.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
    ),
    # Avoids sorting a batch by landed date, which would copy its payloads.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
    # For these columns, whose values rarely repeat, Parquet would build a dictionary and then discard it.
    **{
        f"spark.hadoop.parquet.enable.dictionary#{column}": "false"
        for column in ("payload", "offset", "landed_at", "received_at", "client_instance_id", "client_address")
    },
    # HotSpot doesn't compile methods of more than 8,000 bytes, so Spark must split longer generated loops.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What Spark keeps for its own pages, which aren't served: updates with each event, and a thousand plans.
    "spark.ui.liveUpdate.period": "-1",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.sql.streaming.ui.enabled": "false",
    # A job of small batches rarely collects its whole heap, which grows by what is no longer needed. Spark asks for a
    # collection that often; `MaxHeapFreeRatio` returns what it frees.
    "spark.cleaner.periodicGC.interval": "2min",
}
# In one process, heartbeats say nothing about the executor. But when the machine has been suspended for two minutes
# (asleep, moved to another host), Spark drops its executor for missing heartbeats and ends the JVM minutes later.
ONE_PROCESS: Settings = {"spark.storage.blockManagerHeartbeatTimeoutMs": "7d"}

JAVA_OPTIONS = (
    # With short batches, the parallel collector uses a tenth of G1's CPU time.
    "-XX:+UseParallelGC",
    # Records pass through the heap and hardly any object stays, but the collector never gives a young generation back.
    "-XX:MaxNewSize=160m",
    "-XX:MaxHeapFreeRatio=50",
    # In the first minutes of a small fleet HotSpot's optimizing compiler is among the dearest threads, for code that
    # runs once a batch. Four times its default thresholds leave it the loops over records.
    "-XX:Tier4InvocationThreshold=20000",
    "-XX:Tier4MinInvocationThreshold=2400",
    "-XX:Tier4CompileThreshold=60000",
    "-XX:Tier4BackEdgeThreshold=160000",
)
# HotSpot would print that it can't use the archive.
QUIET_ARCHIVE = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


class JavaMissingError(CannotRunError):
    """Java is missing, or too old for Spark; the message says what to install."""


def check_java() -> int:
    """The version of the Java that Spark would find. Raises ``JavaMissingError`` if it is below ``LOWEST_JAVA``."""
    home = os.environ.get("JAVA_HOME")
    launcher = str(Path(home) / "bin" / "java") if home else "java"
    where = f"JAVA_HOME={home}" if home else "PATH"
    wanted = f"install a JDK {LOWEST_JAVA} or newer and set JAVA_HOME to it"
    if shutil.which(launcher) is None:
        raise JavaMissingError(f"no Java found by {where}: {wanted}")
    output = subprocess.run([launcher, "-version"], capture_output=True, text=True, check=False, timeout=20).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', output)
    if version is None:
        raise JavaMissingError(f"`{launcher} -version` printed no version: {wanted}")
    if int(version[1]) < LOWEST_JAVA:
        raise JavaMissingError(f"Java {version[1]} found by {where} is too old: {wanted}")
    return int(version[1])


def spark_session(app_name: str, master: str = "local[*]", driver_memory: str = "2g", lake: str = "") -> SparkSession:
    """Get the running session of a platform (Databricks, spark-submit), or start a local one.

    Args:
        lake: folder or URI of the lake; a lake in S3 needs more jars and settings.

    Raises:
        JavaMissingError: no suitable Java is installed; nothing has been started.
    """
    builder = SparkSession.builder.appName(app_name).config(map=SEMANTICS)
    if in_s3(lake):
        builder = builder.config(map=dict(s3a_settings()))
    if "DATABRICKS_RUNTIME_VERSION" in os.environ or SparkSession.getActiveSession() is not None:
        return builder.getOrCreate()
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # under spark-submit, whose --packages, --master and --conf apply
        return _submitted(builder).getOrCreate()
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise workers run the python3 on the PATH
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # glibc's allocator has eight arenas a core otherwise, and each retains pages that others could use.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    log_settings = LOG_SETTINGS.as_uri()
    bundles = ("spark", "spark-s3") if in_s3(lake) else ("spark",)
    class_path = os.pathsep.join(str(jar) for bundle in bundles for jar in jars(bundle))
    options = " ".join((*JAVA_OPTIONS, *_archive_options(), f"-Dlog4j2.configurationFile={log_settings}"))
    builder = (
        builder.master(master)
        .config(map=LOCAL | (ONE_PROCESS if master.startswith("local") else {}))
        .config("spark.driver.memory", driver_memory)
        .config("spark.driver.extraClassPath", class_path)
        .config("spark.executor.extraClassPath", class_path)
        .config("spark.driver.extraJavaOptions", options)
    )
    with _handler_of_sigint():
        spark = builder.getOrCreate()
    _ignore_sigterm(spark)
    return spark


def class_archive() -> Path:
    """HotSpot's archive of the classes that the job loads (class data sharing, JEP 350), which ``make archive`` writes.

    With it a local session takes 7 CPU-s less to start, write and read a table. HotSpot ignores an archive of other
    jars or of another Java.
    """
    return jars_home() / "spark.jsa"


def _archive_options() -> tuple[str, ...]:
    archive = class_archive()
    return (f"-XX:SharedArchiveFile={archive}", *QUIET_ARCHIVE) if archive.exists() else ()


def kill_java() -> None:
    """End the JVM at once if this process has started it. One of a platform or of spark-submit is left to them."""
    java = getattr(SparkContext._gateway, "proc", None)
    if java is not None:
        java.kill()


def _ignore_sigterm(spark: SparkSession) -> None:
    """In the JVM, which this process ends: a signal to all processes must not end it in the middle of a batch."""
    java = spark.sparkContext._jvm
    assert java is not None
    java.sun.misc.Signal.handle(java.sun.misc.Signal("TERM"), java.sun.misc.SignalHandler.SIG_IGN)


@contextmanager
def _handler_of_sigint() -> Iterator[None]:
    """Retain the handler of SIGINT: Spark sets one that calls its JVM, maybe in the middle of another call."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _submitted(builder: SparkSession.Builder) -> SparkSession.Builder:
    needed: Settings = {key: LOCAL[key] for key in ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")}
    return builder.config(map=needed)
