"""A JVM with Kafka's clients, as far as a topic's sink uses them: what was sent, and failures at will."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from py4j.protocol import Py4JJavaError, Py4JNetworkError


@dataclass
class Kafka:
    """A cluster, and the JVM with its clients.

    Attributes:
        fails: called with each record (key and value) instead of the topic; what it raises is the topic's answer.
        refuses: raised when a producer is made.
        is_gone: the JVM has ended.
    """

    topics: set[str] = field(default_factory=lambda: {"findings"})
    records: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    fails: Callable[[str, str], None] = lambda _key, _value: None
    refuses: Py4JJavaError | None = None
    is_gone: bool = False
    properties: list[dict[str, str]] = field(default_factory=list)
    machines: int = 0
    open_now: int = 0
    closed: int = 0

    @contextmanager
    def machine(self) -> Iterator[Any]:
        self.machines, self.open_now, self.is_gone = self.machines + 1, self.open_now + 1, False
        try:
            yield SimpleNamespace(_jvm=self._jvm())
        finally:
            self.open_now -= 1

    def error(self, kind: str, message: str) -> Py4JJavaError:
        """What py4j raises for a Java exception that wraps one of this class. It can be asked while the JVM runs."""

        def cause() -> Any:
            if not self.open_now:
                raise Py4JNetworkError("Gateway is not connected.")
            return found

        of_kind = SimpleNamespace(getSimpleName=lambda: kind)
        found = SimpleNamespace(getCause=lambda: None, getMessage=lambda: message, getClass=lambda: of_kind)
        wrapping = SimpleNamespace(getCause=cause, _target_id="o1")
        return Py4JJavaError("An error occurred while calling o1.get.\n", wrapping)

    def changes(self) -> list[tuple[str, str]]:
        return [(value["subject"], value["change"]) for _, value in self.records]

    def _jvm(self) -> Any:
        class Properties(dict[str, str]):
            def put(self, key: str, value: str) -> None:
                self[key] = value

        kafka = SimpleNamespace(
            clients=SimpleNamespace(
                producer=SimpleNamespace(KafkaProducer=self._producer, ProducerRecord=lambda *parts: parts),
                admin=SimpleNamespace(Admin=SimpleNamespace(create=lambda _properties: self._admin())),
            )
        )
        return SimpleNamespace(
            java=SimpleNamespace(
                util=SimpleNamespace(Properties=Properties),
                time=SimpleNamespace(Duration=SimpleNamespace(ofSeconds=lambda seconds: seconds)),
            ),
            org=SimpleNamespace(apache=SimpleNamespace(kafka=kafka)),
            kafkashaded=MagicMock(),  # py4j makes a package of any name
        )

    def _admin(self) -> Any:
        names = SimpleNamespace(names=lambda: SimpleNamespace(get=lambda: self.topics))
        return SimpleNamespace(listTopics=lambda: names, close=lambda _patience: None)

    def _producer(self, properties: dict[str, str]) -> Any:
        if self.refuses is not None:
            raise self.refuses
        self.properties.append(dict(properties))
        return SimpleNamespace(partitionsFor=self._partitions, send=self._send, close=self._close)

    def _partitions(self, topic: str) -> None:
        if self.is_gone:
            raise Py4JNetworkError("Answer from Java side is empty")
        if topic not in self.topics:
            raise self.error("TimeoutException", f"Topic {topic} not present in metadata after 30000 ms.")

    def _send(self, record: tuple[str, str, str]) -> Any:
        topic, key, value = record
        assert topic in self.topics

        def get() -> None:
            self.fails(key, value)
            self.records.append((key, json.loads(value)))

        return SimpleNamespace(get=get)

    def _close(self, _patience: int) -> None:
        self.closed += 1
        if self.is_gone:
            raise Py4JNetworkError("An error occurred while trying to connect to the Java server")
