"""The dashboard ends soon after Ctrl-C or SIGTERM, even if a browser has stalled in a download."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import streamlit

from tests.dashboard.conftest import wait_until_served
from tests.support.patience import PATIENCE_S, idle_clock
from tests.support.ports import free_port


@pytest.mark.parametrize("sign", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_browser_that_does_not_read_delays_the_end_by_seconds(lake: Path, sign: signal.Signals) -> None:
    port = free_port()
    argv = [sys.executable, "-m", "kafka_telemetry_lake", "dashboard", "--lake", str(lake), "--port", str(port)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as server:
        wait_until_served(server, f"http://127.0.0.1:{port}")
        with socket.create_connection(("127.0.0.1", port)) as page:
            page.sendall(f"GET {_largest_file()} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())  # and never reads it
            time.sleep(1)
            with idle_clock() as clock:
                server.send_signal(sign)
                try:
                    output, _ = server.communicate(timeout=PATIENCE_S)
                finally:
                    server.kill()
    assert server.returncode == 0
    assert clock.seconds < 12
    assert b"Traceback" not in output


def _largest_file() -> str:
    static = Path(streamlit.__file__).parent / "static"
    largest = max((each for each in static.rglob("*") if each.is_file()), key=lambda file: file.stat().st_size)
    return f"/{largest.relative_to(static)}"
