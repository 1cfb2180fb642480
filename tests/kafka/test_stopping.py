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

from tests.support.patience import PATIENCE_S, idle_clock, wait_until

LIMIT_S = 10.0


@pytest.mark.slow
@pytest.mark.parametrize("line", ["starting a Kafka broker", "running Java and librdkafka producers"])
def test_the_demo_ends_with_its_broker_and_clients(line: str, tmp_path: Path) -> None:
    log = tmp_path / "demo.log"
    argv = [sys.executable, "-m", "kafka_telemetry_lake.jobs.cli", "demo", "--lake", str(tmp_path / "lake")]
    with log.open("w") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=output, text=True, start_new_session=True)
    try:
        wait_until(lambda: line in log.read_text(), process=process, said=log.read_text)
        time.sleep(2)
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        with idle_clock() as clock:
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0, log.read_text()
    finally:
        process.kill()
    assert clock.seconds < LIMIT_S
    text = log.read_text()
    assert "Traceback" not in text
    assert text.splitlines()[-1].endswith("demo: stopped")
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert alive == []
