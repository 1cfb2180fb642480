"""The bytes of the scripted receiver, beside what a client of its own reads and writes."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack, suppress

import pytest

from kafka_telemetry_lake.pipelines.runtime.kafka_reach import API_VERSIONS
from kafka_telemetry_lake.sandbox.conformance.receiver import ScriptedReceiver
from kafka_telemetry_lake.sandbox.conformance.wire import (
    NO_INSTANCE,
    Push,
    Subscription,
    asking_instance,
    header,
    push_of,
    software_of,
    subscription_answer,
    with_telemetry,
)
from tests.support.patience import PATIENCE_S

INSTANCE = bytes(range(16))
PRODUCE, FETCH = 0, 1
SUBSCRIPTION = Subscription(7, 1000, ("a.", "b"), (4, 1), delta=False, max_bytes=300)


def request(key: int, version: int, body: bytes, client_id: bytes = b"me", tags: bytes = b"\0") -> bytes:
    return struct.pack(">hhih", key, version, 5, len(client_id)) + client_id + tags + body


def test_a_push_is_read() -> None:
    long = b"x" * 200  # whose size takes two bytes
    body = INSTANCE + struct.pack(">i?b", -3, True, 4) + b"\xc9\x01" + long + b"\0"
    frame = request(72, 0, body)
    assert header(frame) == (72, 0, 5)
    assert asking_instance(frame) == INSTANCE
    assert push_of(frame) == Push(-3, True, 4, long)
    with_tag = request(72, 0, body, client_id=b"", tags=b"\x01\x00\x02ab")
    without_name = struct.pack(">hhih", 72, 0, 5, -1) + b"\0" + body
    for other in (with_tag, without_name, request(72, 0, body, client_id=b"x" * 300)):
        assert (asking_instance(other), push_of(other).metrics) == (INSTANCE, long)


def test_the_software_is_said_from_version_3_on() -> None:
    names = b"\x04abc\x021\0"
    assert software_of(request(API_VERSIONS, 3, names)) == ("abc", "1")
    assert software_of(request(API_VERSIONS, 2, b"", tags=b"")) == ("", "")
    assert software_of(request(FETCH, 12, names)) == ("", "")


@pytest.mark.parametrize("cut", [1, 2, 5, 200])
def test_a_push_that_is_cut_off(cut: int) -> None:
    body = INSTANCE + struct.pack(">i?b", 7, True, 4) + b"\xc9\x01" + b"x" * 200 + b"\0"
    frame = request(72, 0, body)
    assert push_of(frame).metrics == b"x" * 200
    with pytest.raises((ValueError, IndexError)):
        push_of(frame[: -1 - cut])
    with pytest.raises(ValueError, match="client instance id"):
        asking_instance(request(71, 0, INSTANCE[:-1]))


def test_a_subscription_has_the_bytes_of_the_protocol() -> None:
    assert subscription_answer(5, INSTANCE, SUBSCRIPTION) == (
        struct.pack(">ibih", 5, 0, 0, 0) + INSTANCE + struct.pack(">i", 7) + b"\x03\x04\x01"
        + struct.pack(">ii?", 1000, 300, False) + b"\x03\x03a.\x02b" + b"\0"
    )  # fmt: skip


def test_api_versions_offers_telemetry() -> None:
    flexible = b"\0\0\0\x05\0\0" + b"\x03" + struct.pack(">hhhb", 0, 3, 9, 0) + struct.pack(">hhhb", 72, 0, 0, 0)
    end = struct.pack(">i", 0) + b"\0"
    offered = with_telemetry(flexible + end, 3)
    assert offered == flexible.replace(b"\x03", b"\x04", 1) + struct.pack(">hhhb", 71, 0, 0, 0) + end
    assert with_telemetry(offered, 4) == offered
    plain = struct.pack(">ihi", 5, 0, 1) + struct.pack(">hhh", 0, 3, 9)
    both = struct.pack(">hhh", 71, 0, 0) + struct.pack(">hhh", 72, 0, 0)
    assert with_telemetry(plain + b"\0\0\0\0", 2) == struct.pack(">ihi", 5, 0, 3) + plain[10:] + both + b"\0\0\0\0"
    refused = struct.pack(">ihi", 5, 35, 0)
    assert with_telemetry(refused, 0) == refused


def test_what_the_receiver_answers() -> None:
    """Through a connection as clients have it; the broker behind is asked for its API versions alone."""
    with socket.create_server(("127.0.0.1", 0)) as broker, ExitStack() as stack:
        receiver = stack.enter_context(ScriptedReceiver(broker.getsockname()[1], SUBSCRIPTION))

        def connect() -> tuple[socket.socket, socket.socket]:
            client = socket.create_connection(("127.0.0.1", receiver.bootstrap_port), PATIENCE_S)
            return stack.enter_context(client), stack.enter_context(broker.accept()[0])

        def ask(client: socket.socket, key: int, body: bytes) -> bytes:
            frame = request(key, 0, body)
            client.sendall(struct.pack(">i", len(frame)) + frame)
            return answer(client)

        def answer(client: socket.socket) -> bytes:
            (size,) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
            return client.recv(size, socket.MSG_WAITALL)

        client, behind = connect()
        given = ask(client, 71, NO_INSTANCE + b"\0")
        instance = given[11:27]
        assert given == subscription_answer(5, instance, SUBSCRIPTION)
        assert instance != NO_INSTANCE
        assert ask(client, 71, instance + b"\0")[11:27] == instance

        def push(subscription_id: int, size: int = 1) -> int:
            body = instance + struct.pack(">i?b", subscription_id, False, 0)
            size_bytes = bytes([size + 1]) if size < 127 else b"\xad\x02"
            (error,) = struct.unpack_from(">h", ask(client, 72, body + size_bytes + bytes(size) + b"\0"), 9)
            return int(error)

        receiver.errors.append(87)
        assert [push(7), push(7), push(8), push(7, 300)] == [87, 0, 117, 0]
        receiver.subscription = Subscription(7, 1000, (), max_bytes=299)
        assert push(7, 300) == 118
        assert [each.error for each in receiver.exchanges] == [0, 0, 87, 0, 117, 0, 118]
        with receiver.changed:  # which is notified of an answer right after it is sent
            assert receiver.changed.wait_for(lambda: receiver.exchanges[-1].answered is not None, PATIENCE_S)
        assert all(each.answered is not None and each.answered >= each.at for each in receiver.exchanges)

        # What can't be read is recorded, and the broker's to answer.
        bad = [
            request(72, 0, instance + struct.pack(">i?b", 7, False, 0) + b"\x05x"),
            request(71, 0, instance[:4]),
            request(API_VERSIONS, 3, b"\x03\xff\xfe\x021\0"),
        ]
        for frame in bad:
            client.sendall(struct.pack(">i", len(frame)) + frame)
            assert behind.recv(4 + len(frame), socket.MSG_WAITALL)[4:] == frame
            refused = struct.pack(">ihi", 5, 42, 0)
            behind.sendall(struct.pack(">i", len(refused)) + refused)
            assert answer(client) == refused
        assert receiver.malformed == [
            "PushTelemetry: the metrics end after 1 of 4 bytes",
            "GetTelemetrySubscriptions: the client instance id ends after 4 of 16 bytes",
            "ApiVersions: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
        ]
        assert len(receiver.exchanges) == 7
        assert push(7, 1) == 0

        # An answer waits for those to earlier requests.
        produce, asked = request(PRODUCE, 9, b""), request(71, 0, instance + b"\0")
        client.sendall(
            b"".join(struct.pack(">i", len(each)) + each for each in (produce, asked.replace(b"\0\x05", b"\0\x06", 1)))
        )
        assert behind.recv(4 + len(produce), socket.MSG_WAITALL)[4:] == produce
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(PATIENCE_S)
        behind.sendall(struct.pack(">ii", 4, 5))
        assert [answer(client)[:4], answer(client)[:4]] == [b"\0\0\0\x05", b"\0\0\0\x06"]

        receiver.cut_all()
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""
        connect()
