"""Gets the Spark session: the platform's own if there is one, else a local one with the project's jars and tuning."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from kafka_telemetry_lake.pipelines.lake.place import in_s3, s3a_settings
from kafka_telemetry_lake.pipelines.runtime.causes import cause
from kafka_telemetry_lake.pipelines.runtime.class_archive import archive_options
from kafka_telemetry_lake.pipelines.runtime.environment import for_session, user_name
from kafka_telemetry_lake.pipelines.runtime.jars import jars
from kafka_telemetry_lake.pipelines.runtime.java import LANGUAGE, LEAST_HEAP, check_java, found_by_spark, spark_options
from kafka_telemetry_lake.pipelines.runtime.spark_settings import (
    BRIEF_JAVA_OPTIONS,
    JAVA_OPTIONS,
    LOCAL,
    ON_A_CLUSTER,
    ONE_PROCESS,
    SEMANTICS,
    TUNING,
)
from kafka_telemetry_lake.udfs.errors import CannotRunError

log = logging.getLogger(__name__)

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
LOG_PROPERTIES = ("log4j2.configurationFile", "log4j.configurationFile")
QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
LOG_FILES = tuple(f"log4j2.{kind}" for kind in ("properties", "yaml", "yml", "json", "jsn", "xml"))


class SparkStartError(CannotRunError):
    """Spark didn't start; the message has the first cause, in one line."""


def spark_session(
    app_name: str, master: str = "local[*]", driver_memory: str = "2g", lake: str = "", checkpoints: str | None = None,
    *, is_job: bool = False, is_brief: bool = False,
) -> SparkSession:  # fmt: skip
    """Get the running session of a platform (Databricks, spark-submit), or start one, local or on a cluster.

    Args:
        lake: folder or URI of the lake; one in S3 needs more jars and settings.
        checkpoints: folder or URI of its checkpoints; the same holds for them.
        is_job: the session loads all classes of the job, so that they are worth an archive (`class_archive`).
        is_brief: it ends after little work, and leaves no archive. One that is already there is taken as it is.

    Raises:
        JavaMissingError, EnvironmentUnfitError: no suitable Java is installed, or it can't start in this environment;
            nothing has been started.
        SparkStartError: Spark didn't start.
    """
    _log_no_errors()
    builder = SparkSession.builder.appName(app_name).config(map=SEMANTICS)
    uses_s3 = in_s3(lake) or in_s3(checkpoints or "")
    if uses_s3:
        builder = builder.config(map=dict(s3a_settings()))
    if "DATABRICKS_RUNTIME_VERSION" in os.environ or SparkSession.getActiveSession() is not None:
        return builder.getOrCreate()
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # under spark-submit, whose --packages, --master and --conf apply
        return _submitted(builder)
    local = master.startswith("local")
    for_session(local=local)
    brief_options = BRIEF_JAVA_OPTIONS if is_brief and local else ()
    own_options = (*JAVA_OPTIONS, *brief_options, *LANGUAGE, *_home_options())
    check_java((*spark_options(), f"-Xmx{driver_memory}", *own_options), LEAST_HEAP)
    if local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # executors on other machines must reach the driver
        os.environ["PYSPARK_PYTHON"] = sys.executable  # not that of another Spark
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise workers run the python3 on the PATH
    # glibc's allocator has eight arenas a core otherwise, and each retains pages that others could use.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    log_settings = LOG_SETTINGS.as_uri()
    bundles = ("spark", "spark-s3") if uses_s3 else ("spark",)
    class_path = os.pathsep.join(str(jar) for bundle in bundles for jar in jars(bundle))
    archive = archive_options(class_path, write=is_job and not is_brief) if local else ()
    options = " ".join(map(_quoted, (*own_options, *archive, f"-Dlog4j2.configurationFile={log_settings}")))
    builder = (
        builder.master(master)
        .config(map=TUNING | (LOCAL | ONE_PROCESS if local else ON_A_CLUSTER))
        .config("spark.driver.memory", driver_memory)
        .config("spark.driver.extraClassPath", class_path)
        .config("spark.executor.extraClassPath", class_path)
        .config("spark.driver.extraJavaOptions", options)
    )
    with _handler_of_sigint(), found_by_spark(), _java_ignores_sigterm():
        return _started(builder)


def _log_no_errors() -> None:
    """PySpark prints an error of SQL with all its stacks, before it raises it."""
    for name in QUERY_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _started(builder: SparkSession.Builder) -> SparkSession:
    try:
        if user_name() is None:  # before Hadoop asks
            SparkContext._ensure_initialized(conf=SparkConf().setAll(list(builder._options.items())))
            _name_the_user(SparkContext._jvm)
        return builder.getOrCreate()
    except (Py4JError, PySparkException) as error:
        raise SparkStartError(f"Spark doesn't start: {cause(str(error))}") from error


def _name_the_user(java: Any) -> None:
    """Give Hadoop a name for a user whom the system has none for: its own login would fail."""
    users = java.org.apache.hadoop.security.UserGroupInformation
    users.setLoginUser(users.createRemoteUser(str(os.getuid())))


def _home_options() -> tuple[str, ...]:
    """The folder and the name of a user whom the system doesn't know; Java takes ``?`` for both."""
    if user_name() is not None:
        return ()
    return (f"-Duser.home={Path('~').expanduser()}", f"-Duser.name={os.getuid()}")


def _quoted(option: str) -> str:
    """An option of Spark's JVM in quotes: Spark's scripts split the list of options at spaces."""
    return '"' + re.sub(r'["\\]', r"\\\g<0>", option) + '"'


def kill_java() -> None:
    """End the JVM at once if this process has started it. One of a platform or of spark-submit is left to them."""
    java = getattr(SparkContext._gateway, "proc", None)
    if java is not None:
        java.kill()


@contextmanager
def _java_ignores_sigterm() -> Iterator[None]:
    """Let a JVM that starts meanwhile ignore SIGTERM from its first moment on.

    This process ends it. A signal to all processes must not end it in the middle of a batch, and a JVM that gets one
    while it starts prints an error of its own. Signals ignored before ``exec`` stay ignored (POSIX), HotSpot's too.
    PySpark has no option for it, but its fork runs Python's hooks.
    """
    _forks_java.set()
    try:
        yield
    finally:
        _forks_java.clear()


def _after_fork() -> None:
    if _forks_java.is_set():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


_forks_java = threading.Event()
os.register_at_fork(after_in_child=_after_fork)


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
