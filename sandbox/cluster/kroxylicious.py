"""Kroxylicious with the telemetry filter, before the brokers of a local cluster."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kafka_telemetry_lake.pipelines.runtime.jars import jars
from kafka_telemetry_lake.pipelines.runtime.kafka_reach import advertised
from kafka_telemetry_lake.sandbox.cluster.java import compile_java, java_command
from kafka_telemetry_lake.sandbox.cluster.plugin import RECEIVER, ReceiverUnavailableError
from kafka_telemetry_lake.sandbox.cluster.ports import ReservedPorts
from kafka_telemetry_lake.sandbox.cluster.process import Process
from kafka_telemetry_lake.sandbox.cluster.tls import Tls
from kafka_telemetry_lake.sandbox.patience import PATIENCE_S
from kafka_telemetry_lake.udfs.errors import CannotRunError

FILTER = "ClientTelemetryLakeFilter"
_BUNDLE = "kroxylicious-0.12.0"
_LAUNCHER = Path(__file__).with_name("KroxyliciousProxy.java")
_RELEASE = 17


class ProxyError(CannotRunError):
    """The proxy ended or gave no answer; the message has the end of its log."""


def proxy_class_path() -> str:
    """Kroxylicious, the filter and a launcher, compiled.

    Raises ``CompileError``, ``JarsUnavailableError``, ``ReceiverUnavailableError``.
    """
    if not (RECEIVER / "proxy").exists():
        raise ReceiverUnavailableError("no receiver/proxy here: the filter is only in a checkout")
    libraries = str(jars(_BUNDLE)[0].parent / "*")
    modules = RECEIVER / "core", RECEIVER / "proxy"
    sources = sorted(source for module in modules for source in (module / "src" / "main").rglob("*.java"))
    classes = compile_java([_LAUNCHER, *sources], libraries, _RELEASE)
    return os.pathsep.join(map(str, [classes, RECEIVER / "proxy" / "src" / "main" / "resources", libraries]))


class TelemetryProxy:
    """A context manager with one proxy, whose virtual cluster is called ``lake``.

    Args:
        folder: of its configuration and log.
        target: ``host:port`` of one broker.
        config: of the filter; None: a filter without any.
        node_id: that broker's.
        tls: both the proxy's own and what it expects of the broker; None: neither has TLS.
        options: of the JVM, after those of all JVMs of a local cluster.
    """

    def __init__(
        self,
        folder: Path,
        target: str,
        config: Mapping[str, Any] | None,
        node_id: int = 1,
        tls: Tls | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self._options = options
        self._tls = tls
        self.log_file = folder / "proxy.log"
        self._ports = ReservedPorts(2)
        self.bootstrap_port, self.node_port = self._ports.numbers
        definition: dict[str, Any] = {"name": "telemetry", "type": FILTER}
        if config is not None:
            definition["config"] = config
        node = {"name": "all", "start": node_id, "end": node_id}
        gateway = {
            "bootstrapAddress": self.bootstrap_servers,
            "nodeStartPort": self.node_port,
            "nodeIdRanges": [node],
        }
        cluster: dict[str, Any] = {"bootstrapServers": target}
        own: dict[str, Any] = {"name": "all", "portIdentifiesNode": gateway}
        if tls is not None:
            cluster["tls"] = {"trust": _store(tls.truststore, tls.password)}
            own["tls"] = {"key": _store(tls.keystore, tls.password)}
        self._configuration = {
            "filterDefinitions": [definition],
            "defaultFilters": ["telemetry"],
            "virtualClusters": [{"name": "lake", "targetCluster": cluster, "gateways": [own]}],
        }
        self._process: Process | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.bootstrap_port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the proxy is not running"
        return self._process.pid

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._ports.release()

    def start(self) -> None:
        """Returns when it answers. Raises ``ProxyError``."""
        settings = self.folder / "proxy.yml"
        settings.write_text(json.dumps(self._configuration, indent=1))  # which is YAML, too
        launched = (proxy_class_path(), "KroxyliciousProxy", settings)
        command = java_command(*launched, log=self.log_file, options=self._options)
        self._process = Process(command, self.log_file)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                advertised("127.0.0.1", self.bootstrap_port, tls=self._tls is not None, timeout_s=1.0)
                return
            except OSError:
                if not self._process.running or time.monotonic() > deadline:
                    self.stop()
                    raise ProxyError(f"the proxy gave no answer:\n{self.log_tail()}") from None
                time.sleep(0.05)

    def stop(self) -> None:
        """SIGTERM: what is queued lands."""
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log().splitlines()[-lines:])


def _store(file: Path, password: str) -> dict[str, Any]:
    return {"storeFile": str(file), "storePassword": {"password": password}, "storeType": "PKCS12"}


def filter_config(
    landing: str, subscriptions: Path | str, *, require_sasl: bool = True, **settings: object
) -> dict[str, Any]:
    """A filter's configuration: where pushes land, and where subscriptions are (a file, or ``brokers``)."""
    return {
        "subscriptions": str(subscriptions),
        "subscriptionsRefreshMs": 200,
        "requireSasl": require_sasl,
        "landing": {"bootstrap.servers": landing, "status.interval.ms": 1000},
    } | settings


def subscriptions_file(path: Path, subscriptions: Sequence[Mapping[str, object]]) -> Path:
    """Writes a file of subscriptions, as ``sync --subscriptions-file`` reads it, in one step."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"subscriptions": list(subscriptions)}))
    part.replace(path)
    return path
