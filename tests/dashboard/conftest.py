"""A served dashboard over a lake of captured pushes, and a headless Chromium to look at it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.dashboard.captured_lake import captured_lake

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
START_S = 120

Serve = Callable[[Path], str]


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return captured_lake(tmp_path_factory.mktemp("dashboard") / "lake")


@pytest.fixture(scope="session")
def serve() -> Iterator[Serve]:
    """Serve a lake; gives the dashboard's address."""
    with ExitStack() as stack:
        yield lambda lake: stack.enter_context(_served(lake))


@contextmanager
def _served(lake: Path) -> Iterator[str]:
    port = free_port()
    argv = [sys.executable, "-m", "kafka_telemetry_lake", "dashboard", "--lake", str(lake), "--port", str(port)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as server:
        try:
            wait_until_served(server, f"http://127.0.0.1:{port}")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def wait_until_served(server: subprocess.Popen[bytes], address: str) -> None:
    """Until the server answers, or fail."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        assert server.poll() is None, f"the dashboard ended with code {server.returncode}"
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(f"not served within {START_S} s")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with sync_playwright() as tools:
        # As root, in a container of CI, Chromium's own sandbox doesn't start.
        args = ["--no-sandbox"] if os.geteuid() == 0 else []
        with tools.chromium.launch(executable_path=CHROMIUM, args=args) as chromium:
            yield chromium
