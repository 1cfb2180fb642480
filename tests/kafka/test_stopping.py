"""Ctrl-C on the demo: it ends soon, quietly, and its broker and clients with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

LIMIT_S = 10.0


@pytest.mark.slow
@pytest.mark.parametrize("line", ["starting a Kafka broker", "running Java and librdkafka producers"])
def test_the_demo_ends_with_its_broker_and_clients(line: str, tmp_path: Path) -> None:
    log = tmp_path / "demo.log"
    argv = [sys.executable, "-m", "kafka_telemetry_lake.jobs.cli", "demo", "--lake", str(tmp_path / "lake")]
    with log.open("w") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=output, text=True, start_new_session=True)
    try:
        deadline = time.monotonic() + 240
        while line not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        time.sleep(2)
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        os.killpg(process.pid, signal.SIGINT)
        began = time.monotonic()
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
    assert time.monotonic() - began < LIMIT_S
    text = log.read_text()
    assert "Traceback" not in text
    assert text.splitlines()[-1].endswith("demo: stopped")
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
