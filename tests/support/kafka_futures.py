"""What Kafka's Admin answers through py4j, without a JVM: futures with a value, or with a Java exception."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from py4j.protocol import Py4JJavaError

ERRORS = "org.apache.kafka.common.errors."
PROTOCOL = "org.apache.kafka.common.protocol.types."


class RaisedError(Py4JJavaError):  # type: ignore[misc]  # py4j has no types
    """A Java exception of a class."""

    def __init__(self, name: str) -> None:
        kind = SimpleNamespace(getSimpleName=lambda: name.rpartition(".")[2], getName=lambda: name)
        self.java_exception = SimpleNamespace(getCause=lambda: None, getClass=lambda: kind)


class Future:
    """A `KafkaFuture`: its value, or the class of its exception. `waited` has what was waited for, in that order."""

    def __init__(self, value: Any = None, error: str | None = None, waited: list[Any] | None = None) -> None:
        self._value, self._error, self._waited = value, error, waited

    def get(self) -> Any:
        if self._waited is not None:
            self._waited.append(self)
        if self._error is not None:
            raise RaisedError(self._error)
        return self._value
