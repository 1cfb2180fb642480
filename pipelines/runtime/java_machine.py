"""Provides a JVM for Kafka's Admin client: the Spark session's if there is one, else one that starts in a second."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from pyspark.sql import SparkSession

from kafka_telemetry_lake.pipelines.runtime.environment import spark_jars
from kafka_telemetry_lake.pipelines.runtime.jars import jars
from kafka_telemetry_lake.pipelines.runtime.java import LANGUAGE, check_java, java_program
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import HasJvm
from kafka_telemetry_lake.pipelines.runtime.session import LOG_SETTINGS, spark_session


@dataclass(frozen=True)
class _BareJvm:
    """A ``HasJvm`` without Spark."""

    _jvm: Any


@contextmanager
def java_machine(spark: SparkSession | None = None) -> Iterator[HasJvm]:
    """Provide a JVM with Kafka's clients on its class path: that of `spark`, if given.

    Raises:
        JavaMissingError, JarsUnavailableError: nothing has been started.
    """
    if spark is not None:
        yield spark
        return
    platform = {"DATABRICKS_RUNTIME_VERSION", "PYSPARK_GATEWAY_PORT"} & os.environ.keys()
    if platform or SparkSession.getActiveSession() is not None:
        yield spark_session("telemetry-lake sync")
        return
    # Its few calls are over before code of HotSpot's optimizing compiler would pay.
    few_calls = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    options = [*few_calls, *LANGUAGE, f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"]
    check_java(options)
    # Spark ships the codecs and the log binding that Kafka needs.
    class_path = os.pathsep.join([*map(str, jars("spark")), str(spark_jars() / "*")])
    port, token = launch_gateway(
        classpath=class_path,
        java_path=java_program(),
        javaopts=options,
        redirect_stderr=subprocess.DEVNULL,
        die_on_exit=True,
        enable_auth=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    try:
        yield _BareJvm(gateway.jvm)
    finally:
        _shut_down(gateway)


def _shut_down(gateway: JavaGateway) -> None:
    """End the JVM. It may be gone before it has answered, which py4j would log as an error."""
    log = logging.getLogger("py4j")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        gateway.shutdown()
    finally:
        log.setLevel(level)
