"""Real clients of a local cluster: Java's producer, consumer, admin and Streams, and librdkafka."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from jobs.local_clients.client import Client
from jobs.local_cluster.cluster import LocalCluster
from jobs.local_cluster.java import compile_java, java_command
from pipelines.jars import jars

_HERE = Path(__file__).parent
_CLIENT_JARS = ("kafka-clients", "jackson-", "slf4j-", "reload4j", "zstd-jni", "lz4-java", "snappy-java")


class ClientUnavailableError(RuntimeError):
    """A client library is not installed; the message says how to install it."""


class LocalClients:
    """Starts clients against a cluster; those still running at the end of the block are killed.

    A ``client_id`` is used once. ``properties`` are the library's own. ``credentials`` are a user's name and
    password on the SASL listener. Producers send ``records`` records (None: until they are closed) at
    ``rate`` records/s (0: as fast as they can) and tell ``done`` when all are acknowledged; consumers tell it
    after ``records``. Logs are in the cluster's folder.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._folder = cluster.folder / "clients"
        self._clients: list[Client] = []

    def __enter__(self) -> Self:
        self._folder.mkdir(exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            client.kill()

    def java_producer(
        self,
        topic: str,
        client_id: str,
        *,
        records: int | None = None,
        rate: float = 0,
        value_bytes: int = 100,
        properties: Mapping[str, object] | None = None,
        credentials: tuple[str, str] | None = None,
        version: str = "4.3.1",
        without: Sequence[str] = (),
    ) -> Client:
        """``without``: codec jars that the client's class path lacks (``zstd-jni``, ``lz4-java``, ...)."""
        driver = _producer_driver(topic, records, rate, value_bytes)
        return self._java("producer", client_id, driver, properties, credentials, version, without)

    def java_consumer(
        self,
        topic: str,
        client_id: str,
        *,
        group: str,
        records: int = 0,
        properties: Mapping[str, object] | None = None,
        credentials: tuple[str, str] | None = None,
        version: str = "4.3.1",
    ) -> Client:
        """A member of a consumer group that reads the topic from the beginning."""
        group_settings = {"group.id": group, "auto.offset.reset": "earliest"}
        driver = {"topic": topic, "records": records}
        return self._java(
            "consumer", client_id, driver, group_settings | dict(properties or {}), credentials, version
        )

    def java_admin(
        self, client_id: str, *, properties: Mapping[str, object] | None = None, version: str = "4.3.1"
    ) -> Client:
        """An admin client that lists the topics five times a second."""
        return self._java("admin", client_id, {}, properties, None, version)

    def streams_word_count(
        self,
        topic: str,
        output_topic: str,
        application_id: str,
        *,
        properties: Mapping[str, object] | None = None,
    ) -> Client:
        """Kafka Streams' word count; ``started`` tells the ``client_instance_ids`` of its inner clients."""
        streams = [*_client_jars("4.3.1"), *jars("streams-4.3.1")]
        sources = (_HERE / "WordCount.java", _HERE / "TelemetryClient.java")
        classes = compile_java(sources, os.pathsep.join(map(str, streams)))
        log = self._log(application_id)
        settings = self._settings(application_id, {"topic": topic, "output_topic": output_topic})
        settings |= {
            "application.id": application_id,
            "auto.offset.reset": "earliest",
            "state.dir": self._folder / f"{application_id}-state",
            "replication.factor": 1,
            "commit.interval.ms": 200,
        } | dict(properties or {})
        class_path = os.pathsep.join(map(str, [classes, *streams]))
        return self.start(application_id, java_command(class_path, "WordCount", log=log), settings)

    def librdkafka_producer(
        self,
        topic: str,
        client_id: str,
        *,
        records: int | None = None,
        rate: float = 0,
        value_bytes: int = 100,
        properties: Mapping[str, object] | None = None,
        credentials: tuple[str, str] | None = None,
    ) -> Client:
        driver = _producer_driver(topic, records, rate, value_bytes)
        return self._librdkafka("producer", client_id, driver, properties, credentials)

    def librdkafka_consumer(
        self,
        topic: str,
        client_id: str,
        *,
        group: str,
        records: int = 0,
        properties: Mapping[str, object] | None = None,
        credentials: tuple[str, str] | None = None,
    ) -> Client:
        group_settings = {"group.id": group, "auto.offset.reset": "earliest"}
        driver = {"topic": topic, "records": records}
        return self._librdkafka(
            "consumer", client_id, driver, group_settings | dict(properties or {}), credentials
        )

    def start(self, client_id: str, command: Sequence[str | Path], settings: Mapping[str, object]) -> Client:
        """Any other program that speaks as ``Client`` expects."""
        client = Client(client_id, command, settings, self._log(client_id))
        self._clients.append(client)
        return client

    def _java(
        self,
        mode: str,
        client_id: str,
        driver: Mapping[str, object],
        properties: Mapping[str, object] | None,
        credentials: tuple[str, str] | None,
        version: str,
        without: Sequence[str] = (),
    ) -> Client:
        every = _client_jars(version)
        classes = compile_java((_HERE / "TelemetryClient.java",), os.pathsep.join(map(str, every)))
        kept = [jar for jar in every if not jar.name.startswith(tuple(without))]
        class_path = os.pathsep.join(map(str, [classes, *kept]))
        settings = self._settings(client_id, driver, credentials) | dict(properties or {})
        if credentials is not None:
            user, password = credentials
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            settings["sasl.jaas.config"] = f'{module} required username="{user}" password="{password}";'
        command = java_command(class_path, "TelemetryClient", mode, log=self._log(client_id))
        return self.start(client_id, command, settings)

    def _librdkafka(
        self,
        mode: str,
        client_id: str,
        driver: Mapping[str, object],
        properties: Mapping[str, object] | None,
        credentials: tuple[str, str] | None,
    ) -> Client:
        if find_spec("confluent_kafka") is None:
            raise ClientUnavailableError(
                "confluent-kafka is not installed: pip install 'kafka-telemetry-lake[dev]'"
            )
        settings = self._settings(client_id, driver, credentials) | dict(properties or {})
        if credentials is not None:
            settings["sasl.username"], settings["sasl.password"] = credentials
        return self.start(client_id, [sys.executable, _HERE / "librdkafka.py", mode], settings)

    def _settings(
        self, client_id: str, driver: Mapping[str, object], credentials: tuple[str, str] | None = None
    ) -> dict[str, object]:
        settings: dict[str, object] = {f"driver.{key}": value for key, value in driver.items()}
        settings["client.id"] = client_id
        if credentials is None:
            return settings | {"bootstrap.servers": self._cluster.bootstrap_servers}
        return settings | {
            "bootstrap.servers": self._cluster.sasl_bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
        }

    def _log(self, client_id: str) -> Path:
        return self._folder / f"{client_id}.log"


def _producer_driver(topic: str, records: int | None, rate: float, value_bytes: int) -> dict[str, object]:
    return {
        "topic": topic,
        "records": -1 if records is None else records,
        "rate": rate,
        "value_bytes": value_bytes,
    }


def _client_jars(version: str) -> list[Path]:
    found = [jar for jar in jars(f"kafka-{version}") if jar.name.startswith(_CLIENT_JARS)]
    return (
        found if any(jar.name.startswith("reload4j") for jar in found) else [*found, *jars("kafka-logging")]
    )
