"""One worker of Kafka Connect as a process, in distributed mode."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka_telemetry_lake.pipelines.runtime.jars import jars
from kafka_telemetry_lake.sandbox.clients.client import ClientError
from kafka_telemetry_lake.sandbox.cluster.java import java_command, kafka_class_path
from kafka_telemetry_lake.sandbox.cluster.ports import ReservedPorts
from kafka_telemetry_lake.sandbox.cluster.process import Process
from kafka_telemetry_lake.sandbox.patience import PATIENCE_S

_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the environment may name a proxy
_STRINGS = "org.apache.kafka.connect.storage.StringConverter"


class ConnectWorker:
    """A worker that has Kafka's own connectors from and to a file (``FileStreamSource``, ``FileStreamSink``).

    Its internal topics have one partition each, unless they have Kafka's ``default_partitions`` (25, 5 and 1).
    """

    def __init__(self, bootstrap_servers: str, folder: Path, group: str, *, default_partitions: bool = False) -> None:
        self._ports = ReservedPorts(1)
        (port,) = self._ports.numbers
        self._address = f"http://127.0.0.1:{port}"
        self._log = folder / f"{group}.log"
        settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "listeners": self._address,
            "key.converter": _STRINGS,
            "value.converter": _STRINGS,
            "offset.flush.interval.ms": 1000,
            "plugin.path": jars("connect-file-4.3.1")[0],
        }
        for kind in ("offset", "config", "status"):
            settings[f"{kind}.storage.topic"] = f"{group}-{kind}s"
            settings[f"{kind}.storage.replication.factor"] = 1
        for kind in () if default_partitions else ("offset", "status"):
            settings[f"{kind}.storage.partitions"] = 1
        file = folder / f"{group}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        command = java_command(
            kafka_class_path("4.3.1"), "org.apache.kafka.connect.cli.ConnectDistributed", file,
            log=self._log,
        )  # fmt: skip
        self._process = Process(command, self._log)

    def create(self, name: str, properties: Mapping[str, object], limit: float = PATIENCE_S) -> None:
        """Create or change a connector, and wait until all of its tasks run. Raises ``ClientError``."""
        texts = {key: str(value) for key, value in properties.items()}
        deadline = time.monotonic() + limit
        self._until(deadline, "PUT", f"/connectors/{name}/config", texts)
        while True:
            status = self._until(deadline, "GET", f"/connectors/{name}/status")
            if status["tasks"] and all(task["state"] == "RUNNING" for task in status["tasks"]):
                return
            time.sleep(0.2)

    def _until(self, deadline: float, method: str, path: str, body: Any = None) -> Any:
        """The answer, as soon as the worker gives one: it rejects requests while it starts and while it rebalances."""
        while True:
            request = urllib.request.Request(self._address + path, method=method)
            if body is not None:
                request.data = json.dumps(body).encode()
                request.add_header("Content-Type", "application/json")
            try:
                with _DIRECTLY.open(request, timeout=10) as answer:
                    return json.load(answer)
            except OSError as error:  # HTTPError is one
                if not self._process.running or time.monotonic() > deadline:
                    tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])
                    raise ClientError(f"Connect: {method} {path}: {error}\n{tail}") from None
                time.sleep(0.2)

    def close(self, limit: float = 30.0) -> None:
        """Stop it normally: its clients close, those that would send a terminating push do."""
        self._process.stop(limit)
        self._ports.release()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._ports.release()
