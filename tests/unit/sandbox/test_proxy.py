"""The proxy between clients and brokers."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import time

import pytest

from kafka_telemetry_lake.sandbox.cluster.proxy import METADATA, AddressProxy
from tests.support.patience import PATIENCE_S


def test_a_proxy_with_open_connections_closes_them_and_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as broker,
        contextlib.ExitStack() as clients,
        caplog.at_level(logging.INFO, "asyncio"),
    ):
        upstream = broker.getsockname()[1]
        with AddressProxy([upstream], moves=1) as proxy:
            address = "127.0.0.1", proxy.addresses[upstream]
            answered = clients.enter_context(socket.create_connection(address, PATIENCE_S))
            behind = clients.enter_context(broker.accept()[0])
            proxy.vanish()
            discarded = clients.enter_context(socket.create_connection(address, PATIENCE_S))
            time.sleep(0.1)  # until the proxy has accepted it; one that it hasn't gets a reset
        for each in (answered, discarded, behind):
            each.settimeout(PATIENCE_S)
            with contextlib.suppress(ConnectionResetError):
                assert each.recv(1) == b""
    assert caplog.messages == []


def test_a_connection_passes_on_no_answer_from_one_that_is_withheld_on() -> None:
    """Clients would take an answer that is left out for a fault, and later ones for answers to other requests."""
    produce = 0
    with socket.create_server(("127.0.0.1", 0)) as broker, contextlib.ExitStack() as stack:
        upstream = broker.getsockname()[1]
        proxy = stack.enter_context(AddressProxy([upstream], moves=1))
        proxy.unanswered = frozenset({METADATA})

        def connected() -> tuple[socket.socket, socket.socket]:
            client = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.addresses[upstream]), PATIENCE_S))
            return client, stack.enter_context(broker.accept()[0])

        def is_answered(client: socket.socket, behind: socket.socket, key: int, expected: bool) -> bool:
            """Whether the client gets the answer to a request; half a second shows that it doesn't."""
            client.sendall(struct.pack(">ihhi", 8, key, 0, 7))
            assert behind.recv(12, socket.MSG_WAITALL) == struct.pack(">ihhi", 8, key, 0, 7), "requests arrive"
            behind.sendall(struct.pack(">ii", 4, 7))
            client.settimeout(PATIENCE_S if expected else 0.5)
            with contextlib.suppress(TimeoutError):
                return client.recv(8, socket.MSG_WAITALL) == struct.pack(">ii", 4, 7)
            return False

        one, other = connected(), connected()
        for key, expected in ((produce, True), (METADATA, False), (produce, False)):
            assert is_answered(*one, key, expected) is expected
        assert is_answered(*other, produce, True)
        proxy.unanswered = frozenset()
        assert is_answered(*connected(), METADATA, True)
