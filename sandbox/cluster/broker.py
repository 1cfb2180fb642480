"""One KRaft broker as a process."""

from __future__ import annotations

import re
import time
from pathlib import Path

from kafka_telemetry_lake.pipelines.runtime.kafka_reach import advertised
from kafka_telemetry_lake.sandbox.cluster.process import Process
from kafka_telemetry_lake.sandbox.patience import PATIENCE_S
from kafka_telemetry_lake.udfs.errors import CannotRunError

_ERRORS = re.compile(r" (ERROR|FATAL) |Exception|Error:|^\s+at |Caused by")


class BrokerError(CannotRunError):
    """A broker ended or gave no answer; the message contains its log's last relevant lines."""


class Broker:
    """A broker that can be stopped, killed, paused and started again on the same ports and folder."""

    def __init__(self, node_id: int, port: int, folder: Path) -> None:
        self.node_id = node_id
        self.port = port
        self.log_file = folder / "broker.log"
        self.command: list[str] = []
        self._process: Process | None = None

    @property
    def pid(self) -> int | None:
        """None while it isn't running."""
        return self._process.pid if self._process is not None and self._process.running else None

    def launch(self) -> None:
        """Starts the process without waiting for it."""
        if self.pid is None:
            self._process = Process(self.command, self.log_file)

    def wait_ready(self, limit: float = PATIENCE_S) -> None:
        """Returns when the broker answers requests. Raises ``BrokerError``."""
        deadline = time.monotonic() + limit
        while True:
            try:
                self.api_keys(timeout=1.0)
                return
            except OSError:
                if self.pid is None:
                    raise BrokerError(f"broker {self.node_id} ended at start:\n{self.log_tail()}") from None
                if time.monotonic() > deadline:
                    late = f"broker {self.node_id} gave no answer in {limit:.0f} s"
                    raise BrokerError(f"{late}:\n{self.log_tail()}") from None
                time.sleep(0.05)

    def start(self, limit: float = PATIENCE_S) -> None:
        self.launch()
        self.wait_ready(limit)

    def stop(self, limit: float = 20.0) -> None:
        """A controlled shutdown; killed after ``limit`` seconds."""
        if self._process is not None:
            self._process.stop(limit)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def pause(self) -> None:
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        if self._process is not None:
            self._process.resume()

    def api_keys(self, timeout: float = PATIENCE_S) -> frozenset[int]:
        """The API keys that the broker advertises. Raises ``OSError``."""
        return advertised("127.0.0.1", self.port, timeout_s=timeout).api_keys

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of the log that report errors, or if there are none, its last lines."""
        text = self.log_file.read_text(errors="replace").splitlines() if self.log_file.exists() else []
        errors = [line for line in text if _ERRORS.search(line)]
        return "\n".join((errors or text)[-lines:])
