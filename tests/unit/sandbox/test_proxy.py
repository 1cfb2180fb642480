"""The proxy between clients and brokers."""

from __future__ import annotations

import contextlib
import logging
import socket
import time

import pytest

from kafka_telemetry_lake.sandbox.cluster.proxy import AddressProxy


def test_a_proxy_with_open_connections_closes_them_and_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as broker,
        contextlib.ExitStack() as clients,
        caplog.at_level(logging.INFO, "asyncio"),
    ):
        upstream = broker.getsockname()[1]
        with AddressProxy([upstream], moves=1) as proxy:
            address = "127.0.0.1", proxy.addresses[upstream]
            answered = clients.enter_context(socket.create_connection(address, 10))
            behind = clients.enter_context(broker.accept()[0])
            proxy.vanish()
            discarded = clients.enter_context(socket.create_connection(address, 10))
            time.sleep(0.1)  # until the proxy has accepted it
        for each in (answered, discarded, behind):
            each.settimeout(10)
            assert each.recv(1) == b""
    assert caplog.messages == []
