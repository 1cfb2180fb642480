"""Kafka's command-line tools for one cluster, in one JVM."""

from __future__ import annotations

import select
import threading
from pathlib import Path

from kafka_telemetry_lake.sandbox.cluster.java import compile_java, java_command, kafka_class_path
from kafka_telemetry_lake.sandbox.cluster.process import Process
from kafka_telemetry_lake.sandbox.patience import PATIENCE_S
from kafka_telemetry_lake.udfs.errors import CannotRunError

_SOURCE = Path(__file__).with_name("KafkaTools.java")


class KafkaToolError(CannotRunError):
    """A tool ended with a status other than 0; the message is its output."""


def tool_classes(version: str = "4.3.1") -> Path:
    """The program that calls a version's tools, compiled. Raises ``CompileError``, ``JarsUnavailableError``."""
    return compile_java([_SOURCE], kafka_class_path(version))


class KafkaTools:
    """Runs the main classes behind ``bin/kafka-*.sh`` of a Kafka version, one at a time."""

    def __init__(self, version: str, log: Path) -> None:
        class_path = kafka_class_path(version, tool_classes(version))
        self._process = Process(java_command(class_path, "KafkaTools", log=log, level="WARN"), log, pipes=True)
        self._turn = threading.Lock()

    def run(self, main: str, *arguments: str | Path, limit: float = PATIENCE_S) -> str:
        """Runs a tool and returns its output. Raises ``KafkaToolError`` on failure, or after ``limit`` seconds."""
        with self._turn:
            request = "\x1f".join([main, *map(str, arguments)])
            try:
                self._process.stdin.write(request.encode() + b"\n")
                self._process.stdin.flush()
            except OSError:
                raise KafkaToolError(f"the tools' JVM has ended: see {self._process.log}") from None
            if not select.select([self._process.stdout], [], [], limit)[0]:
                self._process.kill()
                raise KafkaToolError(f"{main} gave no answer in {limit:.0f} s: see {self._process.log}")
            head = self._process.stdout.readline().split()
            if not head:
                raise KafkaToolError(f"the tools' JVM has ended: see {self._process.log}")
            status, size = map(int, head)
            printed = self._process.stdout.read(size).decode()
        if status:
            raise KafkaToolError(f"{main} {' '.join(map(str, arguments))}: status {status}\n{printed.strip()}")
        return printed

    def close(self) -> None:
        self._process.kill()  # it has no state to save
