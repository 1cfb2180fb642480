"""Asks a cluster's brokers for a sign of life, without a JVM: a wrong address is reported before Spark starts.

A listener without TLS is asked for its API versions, which brokers answer before authentication (KIP-35). Of one with
TLS only the handshake is tried, without checking its certificate: that is the Kafka client's, with its own trust store.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass

from kafka_telemetry_lake.pipelines.runtime.kafka_admin import KafkaUnavailableError

TIMEOUT_S = 3.0
CORRELATION_ID = 714
MOST_BYTES = 1 << 20  # of an answer; 64 API versions take 400
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TLS_ALERT = b"\x15\x03"
API_VERSIONS, GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY = 18, 71, 72
CLIENT = b"kafka-telemetry-lake"
NO_TLS = "it does not speak TLS"
NOT_TLS = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE")


@dataclass(frozen=True)
class Advertised:
    """What a broker advertises: API keys, and the highest version that it supports of each feature (KIP-584)."""

    api_keys: frozenset[int]
    features: Mapping[str, int]


def advertised(host: str, port: int, *, tls: bool = False, timeout_s: float = TIMEOUT_S) -> Advertised:
    """Ask a broker what it advertises (ApiVersions request, version 3).

    Brokers answer before authentication. The certificate isn't checked: nothing of this client is sent but its name.

    Raises:
        OSError: no connection, no answer in time, no TLS, or it is refused without a client's certificate.
        ConnectionError: the answer is not that of Kafka 2.4 or later.
    """
    software = bytes([len(CLIENT) + 1]) + CLIENT + b"\x021"  # name and version, each after its length plus one
    with socket.create_connection((host, port), timeout_s) as connection, _maybe_tls(connection, host, tls) as stream:
        answer = _exchange(stream, 3, b"\0" + software + b"\0")
    if not answer:
        raise ConnectionResetError("it closed the connection")
    if not _is_of_kafka(answer):
        raise ConnectionError("it speaks TLS" if answer[:2] == TLS_ALERT else "it answers, but it is not Kafka")
    try:
        return _advertised(answer[8:])
    except (struct.error, IndexError, UnicodeDecodeError):
        raise ConnectionError("it answers, but not as Kafka 2.4 or later does") from None


def _advertised(body: bytes) -> Advertised:
    (error,) = struct.unpack_from(">h", body)
    if error:
        raise ConnectionError(f"ApiVersions has error {error}: Kafka before 2.4?")
    count, position = varint(body, 2)
    api_keys = set()
    for _ in range(count - 1):
        api_keys.add(struct.unpack_from(">h", body, position)[0])
        position = after_tags(body, position + 6)
    features: dict[str, int] = {}
    for tag, begin in _tags(body, position + 4):  # after the throttle time
        if tag == 0:  # SupportedFeatures
            names, at = varint(body, begin)
            for _ in range(names - 1):
                size, at = varint(body, at)
                name, at = body[at : at + size - 1].decode(), at + size - 1
                features[name] = struct.unpack_from(">h", body, at + 2)[0]
                at = after_tags(body, at + 4)
    return Advertised(frozenset(api_keys), features)


def varint(body: bytes, at: int) -> tuple[int, int]:
    """An unsigned number in groups of seven bits (KIP-482), and where it ends. Raises ``IndexError``."""
    number = shift = 0
    while True:
        byte = body[at]
        number, shift, at = number | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return number, at


def _tags(body: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Number and position of each tagged field."""
    count, at = varint(body, at)
    for _ in range(count):
        tag, at = varint(body, at)
        size, at = varint(body, at)
        yield tag, at
        at += size


def after_tags(body: bytes, at: int) -> int:
    """The offset at which the tagged fields (KIP-482) that begin at ``at`` end."""
    count, at = varint(body, at)
    for _ in range(count):
        _, at = varint(body, at)
        size, at = varint(body, at)
        at += size
    return at


def check_brokers(bootstrap_servers: str, options: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> None:
    """Return as soon as one of the servers answers as a listener of the configured protocol does.

    Args:
        options: as for `admin_client`; only ``kafka.security.protocol`` is used.

    Raises:
        KafkaUnavailableError: none does; the message has the reason of each.
    """
    protocol = options.get("kafka.security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise KafkaUnavailableError(f"kafka.security.protocol is {protocol}; allowed: {', '.join(PROTOCOLS)}")
    servers = [server.strip() for server in bootstrap_servers.split(",") if server.strip()]
    addresses = dict(zip(servers, map(address_of, servers), strict=True))
    pool = ThreadPoolExecutor(max(1, len(addresses)))
    try:
        asked = {
            pool.submit(_problem, address, protocol.endswith("SSL"), timeout_s): server
            for server, address in addresses.items()
        }
        problems = {}
        for answer in as_completed(asked):
            problem = answer.result()
            if problem is None:
                return
            problems[asked[answer]] = problem
    finally:
        pool.shutdown(wait=False)
    reasons = ", ".join(f"{server}: {problems[server]}" for server in addresses if server in problems)
    raise KafkaUnavailableError(
        f"no Kafka broker answers at {reasons or '(no server named)'}; check --bootstrap-servers, and that "
        f"kafka.security.protocol ({protocol}) is the listener's"
    )


def address_of(server: str) -> tuple[str, int]:
    """Host and port of ``host:port``, ``[IPv6]:port`` or ``PROTOCOL://host:port``.

    Raises:
        KafkaUnavailableError: it is something else.
    """
    host, _, port = server.rpartition("://")[2].rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise KafkaUnavailableError(f"bootstrap_servers: {server} is not host:port, such as broker-1:9092")
    return host.strip("[]"), int(port)


def _problem(address: tuple[str, int], tls: bool, timeout_s: float) -> str | None:
    """Why this isn't a listener of the protocol; None: it is."""
    try:
        with socket.create_connection(address, timeout_s) as connection:
            return _of_tls(connection, address[0]) if tls else _of_plaintext(connection)
    except socket.gaierror:
        return "unknown host"
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except ConnectionRefusedError:
        return "connection refused, nothing listens there"
    except ConnectionError:
        return NO_TLS if tls else "it closed the connection, as a listener with TLS does"
    except OSError as error:
        return error.strerror or str(error)


def _of_plaintext(connection: socket.socket) -> str | None:
    answer = _exchange(connection, 0, b"")
    if answer[:2] == TLS_ALERT:
        return "it speaks TLS: set kafka.security.protocol to SSL or SASL_SSL in --kafka-options"
    if not answer:
        raise ConnectionResetError
    return None if _is_of_kafka(answer) else "it answers, but it is not Kafka"


def _exchange(connection: socket.socket, version: int, rest: bytes) -> bytes:
    """Send an ApiVersions request; returns the whole answer if it is one, else its first bytes."""
    body = struct.pack(">hhih", API_VERSIONS, version, CORRELATION_ID, len(CLIENT)) + CLIENT + rest
    connection.sendall(struct.pack(">i", len(body)) + body)
    answer, size = b"", 8
    # All of it is read: a connection that is closed with bytes unread is reset, and brokers may log that.
    while len(answer) < size and answer[:2] != TLS_ALERT and (part := connection.recv(size - len(answer))):
        answer += part
        if len(answer) == 8 and _is_of_kafka(answer):
            size = 4 + struct.unpack(">i", answer[:4])[0]
    return answer


def _is_of_kafka(answer: bytes) -> bool:
    """Whether an answer begins with a size that it may have, and the correlation id."""
    if len(answer) < 8:
        return False
    size, correlation_id = (int(number) for number in struct.unpack(">ii", answer[:8]))
    return 4 <= size <= MOST_BYTES and correlation_id == CORRELATION_ID


def _of_tls(connection: socket.socket, host: str) -> str | None:
    try:
        with _maybe_tls(connection, host, True):
            return None
    except ssl.SSLZeroReturnError:  # what Python 3.11.2 makes of a connection that ends in the handshake
        return NO_TLS
    except ssl.SSLError as error:  # any other alert is of a listener with TLS, such as one that wants a certificate
        return NO_TLS if error.reason in NOT_TLS else None


@contextmanager
def _maybe_tls(connection: socket.socket, host: str, tls: bool) -> Iterator[socket.socket]:
    if not tls:
        yield connection
        return
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with context.wrap_socket(connection, server_hostname=host) as stream:
        yield stream
