"""The Spark session: the platform's own where there is one, else a local one with the project's jars and tuning."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from pipelines.jars import jars
from pipelines.object_store import in_s3, s3a_settings

LOWEST_JAVA = 17
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

Settings = dict[str, bool | float | int | str | None]

# Needed for right results, wherever the session comes from.
SEMANTICS: Settings = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.ansi.enabled": "true",
}
# Static or worth having on one machine; a cluster's own settings win.
LOCAL: Settings = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Arrow's allocator keeps its pages between slices; giving them back costs a tenth of a task.
    "spark.executorEnv.MIMALLOC_PURGE_DELAY": "-1",
    "spark.scheduler.mode": "FAIR",
    # Spark's default renames a checkpoint's files in a way that costs local folders three processes (`chmod`,
    # `readlink`) a file: 0.4 to 0.7 s of each batch on two busy cores.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
    ),
    # The payloads of a batch needn't be sorted by the day that they landed on: no second copy of them.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
    # Of columns whose values hardly repeat Parquet would build a dictionary, and then throw it away.
    **{
        f"spark.hadoop.parquet.enable.dictionary#{column}": "false"
        for column in ("payload", "offset", "landed_at", "received_at", "client_instance_id", "client_address")
    },
    # HotSpot never compiles a method of more than 8,000 bytes: a longer generated loop must be split.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# In one process a heartbeat tells nothing of an executor; but where the machine stood still for two minutes (asleep,
# moved to another host), Spark forgets its executor, and ends the JVM some minutes later.
ONE_PROCESS: Settings = {"spark.storage.blockManagerHeartbeatTimeoutMs": "7d"}


class JavaMissingError(RuntimeError):
    """No Java, or one that is too old for Spark; the message says what to install."""


def check_java() -> None:
    """Raise ``JavaMissingError`` unless Spark would find a JDK of at least ``LOWEST_JAVA``."""
    home = os.environ.get("JAVA_HOME")
    launcher = str(Path(home) / "bin" / "java") if home else "java"
    where = f"JAVA_HOME={home}" if home else "PATH"
    wanted = f"install a JDK {LOWEST_JAVA} or newer and set JAVA_HOME to it"
    if shutil.which(launcher) is None:
        raise JavaMissingError(f"no Java found by {where}: {wanted}")
    told = subprocess.run([launcher, "-version"], capture_output=True, text=True, check=False, timeout=20).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', told)
    if version is None:
        raise JavaMissingError(f"`{launcher} -version` did not tell a version: {wanted}")
    if int(version[1]) < LOWEST_JAVA:
        raise JavaMissingError(f"Java {version[1]} found by {where} is too old: {wanted}")


def spark_session(app_name: str, master: str = "local[*]", driver_memory: str = "2g", lake: str = "") -> SparkSession:
    """Get the running session of a platform (Databricks, spark-submit), or start a local one.

    Args:
        lake: folder or URI of the lake; in S3 it needs further jars and settings.

    Raises:
        JavaMissingError: before anything is started.
    """
    builder = SparkSession.builder.appName(app_name).config(map=SEMANTICS)
    if in_s3(lake):
        builder = builder.config(map=dict(s3a_settings()))
    if "DATABRICKS_RUNTIME_VERSION" in os.environ or SparkSession.getActiveSession() is not None:
        return builder.getOrCreate()
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # under spark-submit: its --packages, --master and --conf hold
        return _submitted(builder).getOrCreate()
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else the workers run whatever python3 is on the PATH
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    log_settings = LOG_SETTINGS.as_uri()
    bundles = ("spark", "spark-s3") if in_s3(lake) else ("spark",)
    class_path = os.pathsep.join(str(jar) for bundle in bundles for jar in jars(bundle))
    return (
        builder.master(master)
        .config(map=LOCAL | (ONE_PROCESS if master.startswith("local") else {}))
        .config("spark.driver.memory", driver_memory)
        .config("spark.driver.extraClassPath", class_path)
        .config("spark.executor.extraClassPath", class_path)
        # Short batches: the parallel collector costs a tenth of G1's CPU.
        .config("spark.driver.extraJavaOptions", f"-XX:+UseParallelGC -Dlog4j2.configurationFile={log_settings}")
        .getOrCreate()
    )


def _submitted(builder: SparkSession.Builder) -> SparkSession.Builder:
    needed: Settings = {key: LOCAL[key] for key in ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")}
    return builder.config(map=needed)
