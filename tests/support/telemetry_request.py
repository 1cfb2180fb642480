"""Raw telemetry requests (KIP-714): what a broker answers to whom, and pushes at any rate and of any bytes."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from kafka_telemetry_lake.pipelines.runtime.kafka_reach import varint
from kafka_telemetry_lake.sandbox.conformance.wire import unsigned
from tests.support.patience import PATIENCE_S


@dataclass(frozen=True)
class Told:
    """An answer, and the port that the broker saw it asked from."""

    subscription_id: int
    push_interval_ms: int
    requested_metrics: tuple[str, ...]
    source_port: int


def ask(port: int, client_instance_id: bytes, client_id: str, software: tuple[str, str]) -> Told:
    """What the broker at a port of 127.0.0.1 tells a client of this name and software (ApiVersions v3)."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        _exchange(connection, 18, 3, client_id, b"".join(map(_compact, software)) + b"\0")
        answer = _exchange(connection, 71, 0, client_id, client_instance_id + b"\0")
        source_port = connection.getsockname()[1]
    error, subscription_id = struct.unpack_from(">4xh16xi", answer, 1)  # after the header's tags and the throttle time
    assert error == 0
    codecs, position = varint(answer, 27)
    position += codecs - 1
    (push_interval_ms,) = struct.unpack_from(">i5x", answer, position)
    count, position = varint(answer, position + 9)
    metrics = []
    for _ in range(count - 1):
        size, position = varint(answer, position)
        metrics.append(answer[position : position + size - 1].decode())
        position += size - 1
    return Told(subscription_id, push_interval_ms, tuple(metrics), source_port)


class RawClient:
    """A context manager with a connection over which bytes are pushed, by one client instance or by many.

    Args:
        port: of a broker at 127.0.0.1.
        source: address from which to connect; None: any. A port of it then serves connections to other ports, too.
    """

    def __init__(self, port: int, client_id: str, source: str | None = None) -> None:
        self._client_id = client_id
        address = None if source is None else (source, 0)
        self._connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S, source_address=address)
        self._ask(18, 3, _compact("raw") + _compact("1") + b"\0")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def subscribed(self, client_instance_id: bytes = bytes(16)) -> tuple[bytes, int]:
        """The client instance id, new for one of zeros, and the id of its subscription."""
        answer = self._ask(71, 0, client_instance_id + b"\0")
        (subscription_id,) = struct.unpack_from(">i", answer, 23)
        return answer[7:23], subscription_id

    def push(self, subscribed: tuple[bytes, int], payload: bytes) -> int:
        """The error code of the answer to a push that is neither terminating nor compressed."""
        instance, subscription_id = subscribed
        head = instance + struct.pack(">i?b", subscription_id, False, 0)
        answer = self._ask(72, 0, head + unsigned(len(payload) + 1) + payload + b"\0")
        (error,) = struct.unpack_from(">h", answer, 5)
        return int(error)

    def _ask(self, key: int, version: int, body: bytes) -> bytes:
        return _exchange(self._connection, key, version, self._client_id, body)


def push_as_new_clients(port: int, payload: bytes, count: int, client_id: str) -> int:
    """Pushes bytes ``count`` times, each as a client instance of its own; how many the broker took without error."""
    with RawClient(port, client_id) as client:
        return sum(client.push(client.subscribed(), payload) == 0 for _ in range(count))


def _exchange(connection: socket.socket, key: int, version: int, client_id: str, body: bytes) -> bytes:
    """The answer after its correlation id."""
    name = client_id.encode()
    request = struct.pack(">hhih", key, version, 7, len(name)) + name + b"\0" + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    with connection.makefile("rb") as stream:
        answer = stream.read(struct.unpack(">i", stream.read(4))[0])
    return answer[4:]


def _compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()
