"""Kafka's Admin client in an existing JVM, for requests to a cluster such as listing its topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError

from kafka_telemetry_lake.pipelines.runtime.kafka_classes import for_jvm, kafka_package
from kafka_telemetry_lake.udfs.errors import CannotRunError

TIMEOUT_MS = 15_000
CONSUMER_SETTINGS = {
    "enable.auto.commit": "false",
    "enable.metrics.push": "false",
    "isolation.level": "read_committed",
    "allow.auto.create.topics": "false",
    "auto.offset.reset": "earliest",
    "default.api.timeout.ms": str(TIMEOUT_MS),
}


class KafkaUnavailableError(CannotRunError):
    """The cluster is unreachable or refuses access; the message says what to check."""


class KafkaRefusedError(KafkaUnavailableError):
    """The brokers answer, but not this: the user may not see it, or they don't know such a request."""


class HasJvm(Protocol):
    """A Spark session, or a JVM without Spark (`java_machine`), through which py4j reaches Kafka's clients."""

    @property
    def _jvm(self) -> Any: ...


@contextmanager
def admin_client(java: HasJvm, bootstrap_servers: str, options: Mapping[str, str]) -> Iterator[Any]:
    """Open an Admin client of the cluster, and close it at the end of the block.

    Args:
        options: options of Spark's Kafka source; those with the prefix ``kafka.`` are the client's (SASL, SSL).

    Raises:
        KafkaUnavailableError: the cluster didn't answer a request in the block.
        KafkaRefusedError: it refused one, or doesn't know it.
    """
    jvm = java._jvm
    properties = client_properties(java, bootstrap_servers, options)
    properties.put("default.api.timeout.ms", str(TIMEOUT_MS))
    try:
        client = kafka_package(jvm).clients.admin.Admin.create(properties)
    except Py4JJavaError as error:
        raise KafkaUnavailableError(f"Kafka client options are wrong: {message_of(error)}") from None
    try:
        yield client
    except Py4JJavaError as error:
        kind = KafkaRefusedError if _is_refusal(error) else KafkaUnavailableError
        raise kind(_explain(error, bootstrap_servers)) from None
    finally:
        client.close(jvm.java.time.Duration.ofSeconds(1))


def client_properties(java: HasJvm, bootstrap_servers: str, options: Mapping[str, str]) -> Any:
    """Java properties for a Kafka client: those in `options` with the prefix ``kafka.``, and the job's own."""
    jvm = java._jvm
    properties = jvm.java.util.Properties()
    properties.put("metadata.recovery.strategy", "rebootstrap")  # KIP-899; older clients don't know it
    for key, value in for_jvm(jvm, options).items():
        if key.startswith("kafka."):
            properties.put(key.removeprefix("kafka."), value)
    properties.put("bootstrap.servers", bootstrap_servers)
    properties.put("request.timeout.ms", str(TIMEOUT_MS))
    properties.put("client.id", "kafka-telemetry-lake")
    return properties


@contextmanager
def consumer(
    java: HasJvm, bootstrap_servers: str, options: Mapping[str, str], *, binary: bool = False, **settings: str
) -> Iterator[Any]:
    """Open a consumer without a group, which reads committed records and creates no topic.

    Args:
        binary: give keys and values as bytes, not as text.
        settings: more of the consumer's settings.
    """
    jvm = java._jvm
    properties = client_properties(java, bootstrap_servers, options)
    kind = f"org.apache.kafka.common.serialization.{'ByteArray' if binary else 'String'}Deserializer"
    for key, value in for_jvm(jvm, {"key.deserializer": kind, "value.deserializer": kind}).items():
        properties.put(key, value)
    for key, value in {**CONSUMER_SETTINGS, **settings}.items():
        properties.put(key, value)
    opened = kafka_package(jvm).clients.consumer.KafkaConsumer(properties)
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def topic_consumer(
    java: HasJvm, bootstrap_servers: str, options: Mapping[str, str], topic: str, binary: bool = False
) -> Iterator[tuple[Any, Any, tuple[int, ...]]]:
    """Open a consumer without a group, and assign it the partitions of a topic that have a leader.

    Args:
        binary: give keys and values as bytes, not as text.

    Yields:
        The consumer, its partitions, and the numbers of those without a leader, which nobody can read now.

    Raises:
        KafkaUnavailableError: the cluster didn't answer, or refused, a request in the block.
    """
    jvm = java._jvm
    try:
        with consumer(java, bootstrap_servers, options, binary=binary) as opened:
            partitions, without_leader = jvm.java.util.ArrayList(), []
            for each in opened.partitionsFor(topic):
                if is_leaderless(each.leader()):
                    without_leader.append(int(each.partition()))
                else:
                    partitions.add(kafka_package(jvm).common.TopicPartition(topic, each.partition()))
            opened.assign(partitions)
            yield opened, partitions, tuple(without_leader)
    except Py4JJavaError as error:
        raise KafkaUnavailableError(f"reading topic {topic} failed: {message_of(error)}") from None


def is_leaderless(leader: Any) -> bool:
    """Whether a partition's leader, as Kafka's clients give it, is none."""
    return leader is None or bool(leader.isEmpty())


def existing_topics(java: HasJvm, bootstrap_servers: str, options: Mapping[str, str]) -> set[str]:
    """Names of the topics that this user may see. Raises ``KafkaUnavailableError``."""
    with admin_client(java, bootstrap_servers, options) as client:
        return set(client.listTopics().names().get())


def create_topic(
    java: HasJvm,
    bootstrap_servers: str,
    options: Mapping[str, str],
    name: str,
    partitions: int,
    replication_factor: int,
    config: Mapping[str, str],
) -> None:
    """Create a topic. Needs Create on it or on the cluster. Raises ``KafkaUnavailableError``."""
    jvm = java._jvm
    entries, topics = jvm.java.util.HashMap(), jvm.java.util.ArrayList()
    for key, value in config.items():
        entries.put(key, value)
    topics.add(kafka_package(jvm).clients.admin.NewTopic(name, partitions, replication_factor).configs(entries))
    with admin_client(java, bootstrap_servers, options) as client:
        client.createTopics(topics).all().get()


def cluster_id(java: HasJvm, bootstrap_servers: str, options: Mapping[str, str]) -> str:
    """The id of the cluster. Raises ``KafkaUnavailableError``."""
    with admin_client(java, bootstrap_servers, options) as client:
        return str(client.describeCluster().clusterId().get())


def _is_refusal(error: Py4JJavaError) -> bool:
    name = str(root_of(error).getClass().getSimpleName())
    return "Authorization" in name or name == "UnsupportedVersionException"


def _explain(error: Py4JJavaError, bootstrap_servers: str) -> str:
    cause = root_of(error)
    name = cause.getClass().getSimpleName()
    if "Authentication" in name or "Authorization" in name:
        return f"the brokers at {bootstrap_servers} refuse access ({name}): check kafka_options and this user's ACLs"
    if name in ("TimeoutException", "DisconnectException"):
        return (
            f"no broker answers at {bootstrap_servers} within {TIMEOUT_MS // 1000} s: check the address, that the "
            "broker runs, and that kafka.security.protocol in kafka_options matches the listener"
        )
    return f"a request to the brokers at {bootstrap_servers} failed: {message_of(error)}"


def root_of(error: Py4JJavaError) -> Any:
    """The first cause, a Java exception."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return cause


def message_of(error: Py4JJavaError) -> str:
    """Type and first line of the root cause. It contains no secrets: Kafka's errors hide the values of passwords."""
    cause = root_of(error)
    return f"{cause.getClass().getSimpleName()}: {str(cause.getMessage()).splitlines()[0][:300]}"
