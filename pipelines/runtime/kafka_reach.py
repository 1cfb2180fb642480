"""Asks a cluster's brokers for a sign of life, without a JVM: a wrong address is reported before Spark starts.

A listener without TLS is asked for its API versions, which brokers answer before authentication (KIP-35). Of one with
TLS only the handshake is tried, without checking its certificate: that is the Kafka client's, with its own trust store.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed

from kafka_telemetry_lake.pipelines.runtime.kafka_admin import KafkaUnavailableError

TIMEOUT_S = 3.0
CORRELATION_ID = 714
MOST_BYTES = 1 << 20  # of an answer; 64 API versions take 400
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TLS_ALERT = b"\x15\x03"
NOT_TLS = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE")


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
    addresses = dict(zip(servers, map(_address, servers), strict=True))
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


def _address(server: str) -> tuple[str, int]:
    """Host and port of ``host:port``, ``[IPv6]:port`` or ``PROTOCOL://host:port``."""
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
        return f"it closed the connection, as a listener with{'out' if tls else ''} TLS does"
    except OSError as error:
        return error.strerror or str(error)


def _of_plaintext(connection: socket.socket) -> str | None:
    # ApiVersions request, version 0: length, key 18, version, correlation id, client id.
    client = b"kafka-telemetry-lake"
    body = struct.pack(">hhih", 18, 0, CORRELATION_ID, len(client)) + client
    connection.sendall(struct.pack(">i", len(body)) + body)
    answer, size = b"", 8
    # All of it is read: a connection that is closed with bytes unread is reset, and brokers may log that.
    while len(answer) < size and answer[:2] != TLS_ALERT and (part := connection.recv(size - len(answer))):
        answer += part
        if len(answer) == 8 and _is_of_kafka(answer):
            size = 4 + struct.unpack(">i", answer[:4])[0]
    if answer[:2] == TLS_ALERT:
        return "it speaks TLS: set kafka.security.protocol to SSL or SASL_SSL in --kafka-options"
    if not answer:
        raise ConnectionResetError
    return None if _is_of_kafka(answer) else "it answers, but it is not Kafka"


def _is_of_kafka(answer: bytes) -> bool:
    """Whether an answer begins with a size that it may have, and the correlation id."""
    if len(answer) < 8:
        return False
    size, correlation_id = (int(number) for number in struct.unpack(">ii", answer[:8]))
    return 4 <= size <= MOST_BYTES and correlation_id == CORRELATION_ID


def _of_tls(connection: socket.socket, host: str) -> str | None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        context.wrap_socket(connection, server_hostname=host).close()
    except ssl.SSLError as error:  # any other alert is of a listener with TLS, such as one that wants a certificate
        return "it does not speak TLS" if error.reason in NOT_TLS else None
    return None
