"""A KRaft cluster of one or two brokers on this machine, from Maven's artifacts."""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from kafka_telemetry_lake.pipelines.runtime.kafka_reach import GET_TELEMETRY_SUBSCRIPTIONS
from kafka_telemetry_lake.sandbox.cluster.broker import Broker, BrokerError
from kafka_telemetry_lake.sandbox.cluster.java import java_command, kafka_class_path
from kafka_telemetry_lake.sandbox.cluster.ports import ReservedPorts
from kafka_telemetry_lake.sandbox.cluster.tls import Tls, make_tls
from kafka_telemetry_lake.sandbox.cluster.tools import KafkaToolError, KafkaTools
from kafka_telemetry_lake.sandbox.patience import PATIENCE_S

LANDING_TOPICS = ("client-telemetry", "client-telemetry-status", "client-quotas")
_RECEIVER = "io.github.kafkatelemetrylake.receiver.ClientTelemetryLake"
_TOPICS = "org.apache.kafka.tools.TopicCommand"
_SUBSCRIPTIONS = "org.apache.kafka.tools.ClientMetricsCommand"
_CONFIGS = "kafka.admin.ConfigCommand"
_TOOLS_OF = {"4.4.0": "4.3.1"}  # the tools of a release that has none of its own on Maven Central


class LocalCluster:
    """A context manager that runs the cluster and cleans up completely afterwards.

    Broker 1 is also the controller, so the cluster survives only the loss of broker 2. ``plugin`` is the
    receiver's jar. ``properties`` are appended to every broker's ``server.properties``. ``sasl_users`` (name to
    password) adds a listener SASL_PLAINTEXT with PLAIN; ``scram_users`` adds one SASL_SSL with SCRAM-SHA-512,
    whose certificate is in ``tls``. The folder with data and logs is removed at the end; if the block fails or
    ``keep_folder`` is set, it is retained and its path is printed on stderr. ``log_requests`` adds every request
    to the brokers' logs, as JSON. ``racks`` are the brokers' ``broker.rack``, in their order.
    Raises ``BrokerError``, ``KafkaToolError``, ``JarsUnavailableError``.
    """

    def __init__(
        self,
        version: str = "4.3.1",
        brokers: int = 1,
        plugin: Path | None = None,
        properties: Mapping[str, object] | None = None,
        *,
        landing_partitions: int = 2,
        sasl_users: Mapping[str, str] | None = None,
        scram_users: Mapping[str, str] | None = None,
        heap_mb: int = 384,
        log_requests: bool = False,
        racks: Sequence[str] = (),
    ) -> None:
        self.version = version
        self.plugin = plugin
        self.landing_partitions = landing_partitions
        self._size = brokers
        self._properties = dict(properties or {})
        self._sasl_users = dict(sasl_users or {})
        self._scram_users = dict(scram_users or {})
        self.tls: Tls | None = None
        self._heap_mb = heap_mb
        self._log_requests = log_requests
        self._racks = racks
        self.keep_folder = False
        self._brokers: list[Broker] = []
        self._tools: KafkaTools | None = None

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="kafka-cluster-"))
        self._ports = ReservedPorts(1 + 3 * self._size)
        self._controller_port, *rest = self._ports.numbers
        self._plain_ports, self._sasl_ports, self._tls_ports = (rest[n::3] for n in range(3))
        try:
            self._start()
        except BaseException as error:
            self.close(failed=error)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(failed=error)

    def close(self, failed: BaseException | None = None) -> None:
        for broker in reversed(self._brokers):  # the controller last: the others need it for a controlled shutdown
            broker.stop()
        if self._tools is not None:
            self._tools.close()
        self._ports.release()
        if failed is None and not self.keep_folder:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            print(f"the local cluster's folder was retained: {self.folder}", file=sys.stderr)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._plain_ports)

    @property
    def sasl_bootstrap_servers(self) -> str:
        """The SASL_PLAINTEXT listener's addresses, for the users in ``sasl_users``."""
        return ",".join(f"127.0.0.1:{port}" for port in self._sasl_ports)

    @property
    def tls_bootstrap_servers(self) -> str:
        """The SASL_SSL listener's addresses, for the users in ``scram_users``."""
        return ",".join(f"127.0.0.1:{port}" for port in self._tls_ports)

    @property
    def brokers(self) -> list[Broker]:
        return list(self._brokers)

    def broker(self, node_id: int) -> Broker:
        """A broker by its node id, which starts at 1."""
        return self._brokers[node_id - 1]

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(f"broker {each.node_id}:\n{each.log_tail(lines)}" for each in self._brokers)

    # Topics, subscriptions and quotas, through Kafka's own tools.

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        replication_factor: int | None = None,
    ) -> None:
        """Creates a topic and waits until it is usable. ``replication_factor`` defaults to the number of brokers."""
        options: list[str] = []
        for key, value in (config or {}).items():
            options += ["--config", f"{key}={value}"]
        if replication_factor is not None:
            options += ["--replication-factor", str(replication_factor)]
        self.tool(_TOPICS, "--create", "--topic", name, "--partitions", str(partitions), *options)
        self._until_topic(name, is_there=True)
        self._until_described(name)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic, and waits until the brokers don't list it."""
        self.tool(_TOPICS, "--delete", "--topic", name)
        self._until_topic(name, is_there=False)

    def _until_described(self, name: str, limit: float = PATIENCE_S) -> None:
        """Waits for all brokers: the tool asks any of them, not always the one that listed the topic."""
        end = time.monotonic() + limit
        answers = 0
        while answers < len(self._brokers):
            try:
                self.tool(_TOPICS, "--describe", "--topic", name)
                answers += 1
            except KafkaToolError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def _until_topic(self, name: str, *, is_there: bool, limit: float = PATIENCE_S) -> None:
        """Waits for the brokers, which learn of a change by the controller a little later."""
        end = time.monotonic() + limit
        while (name in self.topics()) != is_there:
            if time.monotonic() > end:
                raise BrokerError(f"topic {name} is {'not' if is_there else 'still'} there after {limit:.0f} s")
            time.sleep(0.1)

    def topics(self) -> list[str]:
        return self.tool(_TOPICS, "--list").split()

    def subscribe(
        self, name: str, metrics: Sequence[str] = ("*",), interval_ms: int = 1000, match: Sequence[str] = ()
    ) -> None:
        """Creates or replaces a client metrics subscription (KIP-714); ``match`` is a list of ``key=regex``.

        An empty ``match`` matches every client. A client without a subscription asks again only after 5 minutes, so
        subscribe before it starts.
        """
        options = [
            f"--metrics={','.join(metrics)}",
            f"--interval={interval_ms}",
            f"--match={','.join(match)}",
        ]
        self.tool(_SUBSCRIPTIONS, "--alter", "--name", name, *options)

    def unsubscribe(self, name: str) -> None:
        self.tool(_SUBSCRIPTIONS, "--delete", "--name", name)

    def set_quota(self, *, user: str | None = None, client_id: str | None = None, **limits: float | None) -> None:
        """Sets ``producer_byte_rate``, ``consumer_byte_rate`` (bytes/s per broker), ``request_percentage``.

        None removes a limit. The entity is a user, a client id or both; an empty string is the default entity
        (KIP-13, KIP-55).
        """
        entity: list[str] = []
        for kind, name in (("users", user), ("clients", client_id)):
            if name is not None:
                entity += [
                    "--entity-type",
                    kind,
                    *(["--entity-name", name] if name else ["--entity-default"]),
                ]
        changes: list[str] = []
        if added := [f"{key}={value}" for key, value in limits.items() if value is not None]:
            changes += ["--add-config", ",".join(added)]
        if removed := [key for key, value in limits.items() if value is None]:
            changes += ["--delete-config", ",".join(removed)]
        self.tool(_CONFIGS, "--alter", *entity, *changes)

    def tool(self, main: str, *arguments: str) -> str:
        """Runs another of Kafka's tools, by its main class, against this cluster, and returns its output."""
        assert self._tools is not None, "the cluster is not running"
        return self._tools.run(main, "--bootstrap-server", self.bootstrap_servers, *arguments)

    # Start

    def _start(self) -> None:
        self._tools = KafkaTools(_TOOLS_OF.get(self.version, self.version), self.folder / "tools.log")
        cluster_id = _random_id()
        self.tls = make_tls(self.folder) if self._scram_users else None
        scram = [f"SCRAM-SHA-512=[name={name},password={word}]" for name, word in self._scram_users.items()]
        format_options = ["--cluster-id", cluster_id, *(word for each in scram for word in ("--add-scram", each))]
        # A copy: a build may replace the jar while brokers run.
        plugins = [shutil.copy(self.plugin, self.folder)] if self.plugin else []
        class_path = kafka_class_path(self.version, *plugins)
        for node_id in range(1, self._size + 1):
            folder = self.folder / f"broker-{node_id}"
            folder.mkdir()
            settings = folder / "server.properties"
            settings.write_text("".join(f"{k}={v}\n" for k, v in self._server_properties(node_id).items()))
            self._tools.run("kafka.tools.StorageTool", "format", "--config", settings, *format_options)
            broker = Broker(node_id, self._plain_ports[node_id - 1], folder)
            broker.command = java_command(
                class_path, "kafka.Kafka", settings,
                log=broker.log_file, heap_mb=self._heap_mb,
                options=[f"-Dlog.requests={'DEBUG' if self._log_requests else 'OFF'}"],
            )  # fmt: skip
            self._brokers.append(broker)
            broker.launch()
        for broker in self._brokers:
            broker.wait_ready()
        for topic in LANDING_TOPICS:
            self.create_topic(topic, self.landing_partitions, {"max.message.bytes": 17 * 1024 * 1024})
        if self.plugin is not None and GET_TELEMETRY_SUBSCRIPTIONS not in self._brokers[0].api_keys():
            raise BrokerError(f"the broker runs without the receiver plugin:\n{self.log_tail()}")

    def _server_properties(self, node_id: int) -> dict[str, object]:
        listeners = [f"PLAINTEXT://127.0.0.1:{self._plain_ports[node_id - 1]}"]
        properties: dict[str, object] = {
            "node.id": node_id,
            "process.roles": "broker,controller" if node_id == 1 else "broker",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": self.folder / f"broker-{node_id}" / "data",
            "auto.create.topics.enable": "false",
            "default.replication.factor": self._size,
            "offsets.topic.replication.factor": self._size,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": self._size,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": self._size,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "group.consumer.min.heartbeat.interval.ms": 100,
            "group.consumer.heartbeat.interval.ms": 500,
            # A killed broker can register again only after its session has expired.
            "broker.session.timeout.ms": 4000,
            "broker.heartbeat.interval.ms": 500,
            "num.network.threads": 2,
            "num.io.threads": 4,
            "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
            # Records with times of weeks ago stay: without this their segments are deleted 30 s after the start.
            "log.initial.task.delay.ms": 24 * 3600 * 1000,
        }
        if self._sasl_users:
            listeners.append(f"SASL_PLAINTEXT://127.0.0.1:{self._sasl_ports[node_id - 1]}")
            users = " ".join(f'user_{name}="{password}"' for name, password in self._sasl_users.items())
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            properties["sasl.enabled.mechanisms"] = "PLAIN"
            properties["listener.name.sasl_plaintext.plain.sasl.jaas.config"] = f"{module} required {users};"
        if self.tls is not None:
            listeners.append(f"SASL_SSL://127.0.0.1:{self._tls_ports[node_id - 1]}")
            module = "org.apache.kafka.common.security.scram.ScramLoginModule"
            properties |= {
                "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{module} required;",
                "ssl.keystore.location": self.tls.keystore,
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.password": self.tls.password,
            }
        if self._racks:
            properties["broker.rack"] = self._racks[node_id - 1]
        if node_id == 1:
            listeners.append(f"CONTROLLER://127.0.0.1:{self._controller_port}")
        properties["listeners"] = ",".join(listeners)
        if self.plugin is not None:
            entry = "Receiver" if self.version.startswith("3.") else "Exporter"
            properties["metric.reporters"] = f"{_RECEIVER}{entry}"
            # A single broker closes its landing topics before its plugin, which would wait in vain.
            properties["client.telemetry.lander.close.timeout.ms"] = 1000
        return properties | self._properties


def _random_id() -> str:
    """A cluster id in Kafka's format that doesn't start with "-", because the tools would parse that as an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
