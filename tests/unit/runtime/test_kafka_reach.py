"""Which listeners are a cluster's, as far as a few bytes show it."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping

import pytest

from kafka_telemetry_lake.pipelines.runtime.kafka_admin import KafkaUnavailableError
from kafka_telemetry_lake.pipelines.runtime.kafka_reach import Advertised, advertised, check_brokers
from tests.support.listeners import listening
from tests.support.patience import PATIENCE_S

SSL = {"kafka.security.protocol": "SSL"}
SASL_SSL = {"kafka.security.protocol": "sasl_ssl"}
SASL = {"kafka.security.protocol": "SASL_PLAINTEXT"}


def broker(connection: socket.socket) -> None:
    """Answer an ApiVersions request, in pieces; check that it is one."""
    request = connection.recv(1000)
    assert request[:8] == bytes([0, 0, 0, len(request) - 4, 0, 18, 0, 0])
    for part in (b"\x00\x00\x00", b"\x0a" + request[8:12], b"\x00\x00\x00\x00\x00\x00"):
        connection.sendall(part)
        time.sleep(0.01)


def tls(connection: socket.socket) -> None:
    """A listener with TLS; it has no certificate, so that the handshake ends by an alert."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.wrap_socket(connection, server_side=True)
    except ssl.SSLError:
        connection.close()


def alert(connection: socket.socket) -> None:
    connection.recv(100)
    connection.sendall(b"\x15\x03\x03\x00\x02\x02\x46")


@pytest.mark.parametrize("options", [{}, SASL, {"minPartitions": "2"}])
def test_a_broker_is_found(options: Mapping[str, str]) -> None:
    with listening(broker) as port:
        check_brokers(f"127.0.0.1:{port}", options)
        check_brokers(f"PLAINTEXT://127.0.0.1:{port}, 127.0.0.1:1", options)


@pytest.mark.parametrize("options", [SSL, SASL_SSL])
def test_a_listener_with_tls_is_found_whatever_it_thinks_of_this_client(options: Mapping[str, str]) -> None:
    with listening(tls) as port:
        check_brokers(f"127.0.0.1:{port}", options)


def test_one_broker_is_enough_and_nobody_waits_for_the_others() -> None:
    with listening(lambda _: None) as silent, listening(broker) as port:
        check_brokers(f"127.0.0.1:{silent},127.0.0.1:{port}", {}, timeout_s=2 * PATIENCE_S)


def test_tls_where_none_is_set() -> None:
    with listening(alert) as port, pytest.raises(KafkaUnavailableError, match="it speaks TLS: set kafka"):
        check_brokers(f"127.0.0.1:{port}", {})


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def broker_without_tls(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize("end", [reset, socket.socket.close, broker_without_tls])
def test_a_handshake_that_is_cut_off_is_said_alike_however_it_ends(end: Callable[[socket.socket], None]) -> None:
    """Whether a closed connection is seen as its end or as a reset is chance."""
    with listening(end) as port, pytest.raises(KafkaUnavailableError, match="does not speak TLS"):
        check_brokers(f"127.0.0.1:{port}", SSL)


def test_a_connection_that_ends_in_the_handshake_by_the_error_of_any_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's Python 3.11.2 raises another error, without a reason, than later ones."""

    def ended(*_: object, **__: object) -> None:
        raise ssl.SSLZeroReturnError(6, "TLS/SSL connection has been closed (EOF)")

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", ended)
    with listening(broker_without_tls) as port, pytest.raises(KafkaUnavailableError, match="does not speak TLS"):
        check_brokers(f"127.0.0.1:{port}", SSL)


def test_each_server_has_its_reason() -> None:
    with listening(lambda _: None) as silent, pytest.raises(KafkaUnavailableError) as error:
        check_brokers(f"127.0.0.1:1,127.0.0.1:{silent}", {}, timeout_s=0.2)
    reasons = f"127.0.0.1:1: connection refused, nothing listens there, 127.0.0.1:{silent}: no answer within 0.2 s"
    assert f"no Kafka broker answers at {reasons}; check --bootstrap-servers" in str(error.value)


def answering(body: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        request = connection.recv(1000)
        # Length, key, version 3, correlation id, client id; tags, software name and version, tags.
        assert request == (
            struct.pack(">ihhih", len(request) - 4, 18, 3, 714, 20) + b"kafka-telemetry-lake"
            b"\0" b"\x15kafka-telemetry-lake" b"\x021" b"\0"
        )  # fmt: skip
        connection.sendall(struct.pack(">i", 4 + len(body)) + request[8:12] + body)

    return answer


def test_what_a_broker_advertises() -> None:
    """ApiVersionsResponse v3: API keys, a throttle time, and features in tag 0 behind one that isn't known here."""
    keys = b"".join(struct.pack(">hhh", key, 0, 9) + tags for key, tags in ((18, b"\0"), (71, b"\x01\x05\x02ab")))
    features = b"\x03\x11metadata.version" + struct.pack(">hh", 7, 29) + b"\0\x02x" + struct.pack(">hh", 0, 1) + b"\0"
    tags = b"\x02" + b"\x00" + bytes([len(features)]) + features + b"\x09\x01z"
    with listening(answering(b"\0\0\x03" + keys + bytes(4) + tags)) as port:
        assert advertised("127.0.0.1", port) == Advertised(frozenset({18, 71}), {"metadata.version": 29, "x": 1})


@pytest.mark.parametrize("body", [b"\0\x23" + bytes(6), b"", b"\0\0\x7f", b"\0\0\xff\xff"])
def test_what_else_may_come_is_an_error_of_one_kind(body: bytes) -> None:
    with listening(answering(body)) as port, pytest.raises(ConnectionError, match=r"ApiVersions|as Kafka 2.4"):
        advertised("127.0.0.1", port, timeout_s=PATIENCE_S)


@pytest.mark.parametrize("server", [broker_without_tls, alert])
def test_another_program_is_no_broker(server: Callable[[socket.socket], None]) -> None:
    with listening(server) as port, pytest.raises(ConnectionError, match=r"not Kafka|speaks TLS"):
        advertised("127.0.0.1", port)
