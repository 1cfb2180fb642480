"""Kafka's Admin client, in the Spark session's JVM: what the job asks of a cluster before it reads from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_MS = 15_000


class KafkaUnavailableError(RuntimeError):
    """The cluster can't be asked: unreachable, or it refuses us; the message says what to look at."""


@contextmanager
def admin_client(spark: SparkSession, bootstrap_servers: str, options: Mapping[str, str]) -> Iterator[Any]:
    """An Admin client of the cluster, closed at the end.

    Args:
        options: options of Spark's Kafka source; those with the prefix ``kafka.`` are the client's (SASL, SSL).

    Raises:
        KafkaUnavailableError: from anything asked inside the block that the cluster doesn't answer or refuses.
    """
    jvm: Any = spark._jvm
    properties = client_properties(spark, bootstrap_servers, options)
    properties.put("default.api.timeout.ms", str(TIMEOUT_MS))
    try:
        client = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
    except Py4JJavaError as error:
        raise KafkaUnavailableError(f"Kafka client options are wrong: {message_of(error)}") from None
    try:
        yield client
    except Py4JJavaError as error:
        raise KafkaUnavailableError(_explain(error, bootstrap_servers)) from None
    finally:
        client.close(jvm.java.time.Duration.ofSeconds(1))


def client_properties(spark: SparkSession, bootstrap_servers: str, options: Mapping[str, str]) -> Any:
    """Properties of a client in the session's JVM: those of `options` that begin with ``kafka.``, and the job's own."""
    jvm: Any = spark._jvm  # the session's gateway has no public name
    properties = jvm.java.util.Properties()
    properties.put("metadata.recovery.strategy", "rebootstrap")  # KIP-899; older clients don't know it
    for key, value in options.items():
        if key.startswith("kafka."):
            properties.put(key.removeprefix("kafka."), value)
    properties.put("bootstrap.servers", bootstrap_servers)
    properties.put("request.timeout.ms", str(TIMEOUT_MS))
    properties.put("client.id", "kafka-telemetry-lake")
    return properties


def existing_topics(spark: SparkSession, bootstrap_servers: str, options: Mapping[str, str]) -> set[str]:
    """Names of the topics that we may see. Raises ``KafkaUnavailableError``."""
    with admin_client(spark, bootstrap_servers, options) as client:
        return set(client.listTopics().names().get())


def _explain(error: Py4JJavaError, bootstrap_servers: str) -> str:
    cause = _root(error)
    name = cause.getClass().getSimpleName()
    if "Authentication" in name or "Authorization" in name:
        return f"the brokers at {bootstrap_servers} refuse us ({name}): check kafka_options and the ACLs of this user"
    if name in ("TimeoutException", "DisconnectException"):
        return (
            f"no broker answers at {bootstrap_servers} within {TIMEOUT_MS // 1000} s: check the address, that the "
            "broker runs, and that kafka.security.protocol in kafka_options is that of the listener"
        )
    return f"asking the brokers at {bootstrap_servers} failed: {message_of(error)}"


def _root(error: Py4JJavaError) -> Any:
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return cause


def message_of(error: Py4JJavaError) -> str:
    """The first line of the root cause. Kafka's configuration errors name the key, and passwords are hidden types."""
    cause = _root(error)
    return f"{cause.getClass().getSimpleName()}: {str(cause.getMessage()).splitlines()[0][:300]}"
