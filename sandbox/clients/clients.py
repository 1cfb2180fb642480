"""Real clients of a local cluster: Java's (share consumers, Streams and Connect included) and librdkafka's."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from kafka_telemetry_lake.pipelines.runtime.jars import jars
from kafka_telemetry_lake.sandbox.clients.client import Client
from kafka_telemetry_lake.sandbox.clients.connect_worker import ConnectWorker
from kafka_telemetry_lake.sandbox.cluster.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.java import compile_java, java_command
from kafka_telemetry_lake.udfs.errors import CannotRunError

Library = Literal["java", "librdkafka"]
Properties = Mapping[str, object]

_HERE = Path(__file__).parent
_CLIENT_JARS = ("kafka-clients", "jackson-", "slf4j-", "reload4j", "zstd-jni", "lz4-java", "snappy-java")


class ClientUnavailableError(CannotRunError):
    """A client library is not installed; the message says how to install it."""


class LocalClients:
    """Starts clients against a cluster; those still running at the end of the block are killed.

    A ``client_id`` may be used only once. ``properties`` are the library's own and override all others.
    ``credentials`` are a user's name and password on the SASL listener. ``version`` is that of the Java clients.
    ``without`` names codec jars to leave out of their class path (``zstd-jni``, ``lz4-java``, ``snappy-java``).
    ``bootstrap_servers`` are those of a proxy before the cluster. Logs are in the cluster's folder.
    """

    def __init__(self, cluster: LocalCluster, bootstrap_servers: str | None = None) -> None:
        self._cluster = cluster
        self._bootstrap_servers = bootstrap_servers or cluster.bootstrap_servers
        self._sasl_bootstrap_servers = bootstrap_servers or cluster.sasl_bootstrap_servers
        self._folder = cluster.folder / "clients"
        self._clients: list[Client] = []
        self._workers: list[ConnectWorker] = []

    def __enter__(self) -> Self:
        self._folder.mkdir(exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            client.kill()
        for worker in self._workers:
            worker.kill()

    def producer(
        self,
        library: Library,
        topic: str,
        client_id: str,
        *,
        records: int | None = None,
        rate: float = 0,
        value_bytes: int = 100,
        properties: Properties | None = None,
        credentials: tuple[str, str] | None = None,
        version: str = "4.3.1",
        without: Sequence[str] = (),
    ) -> Client:
        """Sends ``records`` (None: until it is closed) at ``rate`` records/s (0: as fast as it can).

        Reports ``done`` when all are acknowledged or failed, then idles until it is closed.
        """
        settings = {
            "driver.topic": topic,
            "driver.records": -1 if records is None else records,
            "driver.rate": rate,
            "driver.value_bytes": value_bytes,
            **self._address(library, credentials),
            **(properties or {}),
        }
        return self._start(library, "producer", client_id, settings, version=version, without=without)

    def consumer(
        self,
        library: Library,
        topic: str,
        client_id: str,
        *,
        group: str,
        records: int = 0,
        properties: Properties | None = None,
        credentials: tuple[str, str] | None = None,
        version: str = "4.3.1",
        without: Sequence[str] = (),
    ) -> Client:
        """A member of a group that reads the topic from its beginning; reports ``done`` after ``records``."""
        settings = {
            "driver.topic": topic,
            "driver.records": records,
            "group.id": group,
            "auto.offset.reset": "earliest",
            **self._address(library, credentials),
            **(properties or {}),
        }
        return self._start(library, "consumer", client_id, settings, version=version, without=without)

    def admin(self, client_id: str, *, properties: Properties | None = None, version: str = "4.3.1") -> Client:
        """A Java admin client that lists the topics five times a second. It pushes, unlike an admin by default."""
        settings = {"enable.metrics.push": "true", **(properties or {})}
        return self._start("java", "admin", client_id, settings, version=version)

    def word_count(
        self,
        topic: str,
        output_topic: str,
        application_id: str,
        *,
        properties: Properties | None = None,
        name: str | None = None,
    ) -> Client:
        """Kafka Streams' word count; ``started`` contains the ``client_instance_ids`` of its inner clients.

        ``name`` tells several processes of one application apart; it is the prefix of their client ids.
        """
        name = name or application_id
        settings = {
            "driver.topic": topic,
            "driver.output_topic": output_topic,
            "application.id": application_id,
            "auto.offset.reset": "earliest",
            "state.dir": self._folder / f"{name}-state",
            "commit.interval.ms": 200,
            **(properties or {}),
        }
        class_path = [*_client_jars("4.3.1"), *jars("streams-4.3.1")]
        command = self._java(("WordCount", "TelemetryClient"), class_path, class_path, name)
        return self.start(name, command, settings)

    def share_consumer(
        self, topic: str, client_id: str, *, group: str, reject_every: int = 0, properties: Properties | None = None
    ) -> Client:
        """A Java member of a share group that accepts records, and rejects each `reject_every`-th; 0: none.

        ``closing`` has ``accepted`` and ``rejected``, the records that it acknowledged.
        """
        settings = {"driver.topic": topic, "driver.reject_every": reject_every, "group.id": group, **(properties or {})}
        jars_ = _client_jars("4.3.1")
        return self.start(client_id, self._java(("ShareMember", "TelemetryClient"), jars_, jars_, client_id), settings)

    def connect_worker(
        self, group: str, connectors: Mapping[str, Properties], *, default_partitions: bool = False
    ) -> ConnectWorker:
        """A worker of Kafka Connect, in distributed mode, that runs connectors of a file or into a file."""
        worker = ConnectWorker(self._bootstrap_servers, self._folder, group, default_partitions=default_partitions)
        self._workers.append(worker)
        for name, properties in connectors.items():
            worker.create(name, properties)
        return worker

    def start(self, client_id: str, command: Sequence[str | Path], settings: Properties) -> Client:
        """Starts a program that prints ``Client``'s events; its settings include client id and bootstrap servers."""
        complete = {"client.id": client_id, "bootstrap.servers": self._bootstrap_servers, **settings}
        client = Client(client_id, command, complete, self._log(client_id))
        self._clients.append(client)
        return client

    def _start(
        self,
        library: Library,
        mode: str,
        client_id: str,
        settings: Properties,
        *,
        version: str,
        without: Sequence[str] = (),
    ) -> Client:
        if library == "librdkafka":
            if find_spec("confluent_kafka") is None:
                install = "pip install 'kafka-telemetry-lake[demo]'"
                raise ClientUnavailableError(f"confluent-kafka is not installed: {install}")
            return self.start(client_id, [sys.executable, _HERE / "librdkafka.py", mode], settings)
        every = _client_jars(version)
        chosen = [jar for jar in every if not jar.name.startswith(tuple(without))]
        return self.start(client_id, [*self._java(("TelemetryClient",), every, chosen, client_id), mode], settings)

    def _java(
        self, sources: Sequence[str], compile_with: Sequence[Path], run_with: Sequence[Path], client_id: str
    ) -> list[str]:
        files = [_HERE / f"{source}.java" for source in sources]
        classes = compile_java(files, os.pathsep.join(map(str, compile_with)))
        return java_command(os.pathsep.join(map(str, [classes, *run_with])), sources[0], log=self._log(client_id))

    def _address(self, library: Library, credentials: tuple[str, str] | None) -> dict[str, object]:
        if credentials is None:
            return {}
        user, password = credentials
        sasl: dict[str, object] = {
            "bootstrap.servers": self._sasl_bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
        }
        if library == "librdkafka":
            return sasl | {"sasl.username": user, "sasl.password": password}
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return sasl | {"sasl.jaas.config": f'{module} required username="{user}" password="{password}";'}

    def _log(self, client_id: str) -> Path:
        return self._folder / f"{client_id}.log"


def _client_jars(version: str) -> list[Path]:
    client_jars = [jar for jar in jars(f"kafka-{version}") if jar.name.startswith(_CLIENT_JARS)]
    if not any(jar.name.startswith("reload4j") for jar in client_jars):
        client_jars += jars("kafka-logging")
    return client_jars
