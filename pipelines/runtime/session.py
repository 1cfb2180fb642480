"""Gets the Spark session: the platform's own if there is one, else a local one with the project's jars and tuning."""

from __future__ import annotations

import logging
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
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from kafka_telemetry_lake.pipelines.lake.object_store import in_s3, s3a_settings
from kafka_telemetry_lake.pipelines.runtime.jars import bundle_of_installed_spark, jars, jars_home
from kafka_telemetry_lake.pipelines.runtime.spark_settings import (
    JAVA_OPTIONS,
    LOCAL,
    ON_A_CLUSTER,
    ONE_PROCESS,
    QUIET_ARCHIVE,
    SEMANTICS,
    TUNING,
)
from kafka_telemetry_lake.udfs.errors import CannotRunError

log = logging.getLogger(__name__)

LOWEST_JAVA = 17
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
LOG_PROPERTIES = ("log4j2.configurationFile", "log4j.configurationFile")
LOG_FILES = tuple(f"log4j2.{kind}" for kind in ("properties", "yaml", "yml", "json", "jsn", "xml"))


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
    """Get the running session of a platform (Databricks, spark-submit), or start one, local or on a cluster.

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
        return _submitted(builder)
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise workers run the python3 on the PATH
    local = master.startswith("local")
    if local:  # executors on other machines must reach the driver
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # glibc's allocator has eight arenas a core otherwise, and each retains pages that others could use.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    log_settings = LOG_SETTINGS.as_uri()
    bundles = ("spark", "spark-s3") if in_s3(lake) else ("spark",)
    class_path = os.pathsep.join(str(jar) for bundle in bundles for jar in jars(bundle))
    options = " ".join((*JAVA_OPTIONS, *_archive_options(), f"-Dlog4j2.configurationFile={log_settings}"))
    builder = (
        builder.master(master)
        .config(map=TUNING | (LOCAL | ONE_PROCESS if local else ON_A_CLUSTER))
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
    return jars_home() / f"{bundle_of_installed_spark('spark')}.jsa"


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


def _submitted(builder: SparkSession.Builder) -> SparkSession:
    """The session under spark-submit: tuning and log are those of a local one where its user has set nothing else."""
    SparkContext._ensure_initialized()
    java, given = SparkContext._jvm, SparkConf()
    assert java is not None
    tuning = TUNING | (ONE_PROCESS if given.get("spark.master", "local").startswith("local") else {})
    quiet = not given.contains("spark.log.level") and not _has_log_settings(java)
    if quiet:  # while the session starts, and in executors
        tuning["spark.log.level"] = "WARN"
    spark = builder.config(map={key: value for key, value in tuning.items() if not given.contains(key)}).getOrCreate()
    if quiet:  # not before: Spark would load its own settings when the session starts
        java.org.apache.logging.log4j.core.config.Configurator.reconfigure(java.java.net.URI(LOG_SETTINGS.as_uri()))
    running = java.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    missing = [option for option in JAVA_OPTIONS if option not in set(running)]
    if missing:
        log.info(
            "session: this JVM lacks options that save CPU time: spark-submit --driver-java-options '%s'",
            " ".join(missing),
        )
    return spark


def _has_log_settings(java: Any) -> bool:
    """Whether the user has Log4j settings: a system property, or a file in Spark's folder of settings."""
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    return any(java.java.lang.System.getProperty(name) for name in LOG_PROPERTIES) or any(
        loader.getResource(name) is not None for name in LOG_FILES
    )
