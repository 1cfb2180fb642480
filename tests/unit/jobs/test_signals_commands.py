"""Long-running commands, each stopped at many random moments, by either signal: three of four after it has begun.

`SIGNAL_MOMENTS` says how many. Until a command has begun, the signal ends it as it ends any process.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml

from kafka_telemetry_lake.jobs.support.signals import SIGNS
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from tests.support.documented_commands import ROOT
from tests.support.forked_job import ForkedJob
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.unit.iceberg.mirrored import put

pytestmark = [pytest.mark.lake, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(0)]

MOMENTS = int(os.environ.get("SIGNAL_MOMENTS", "1000"))
NOT_BEGUN = {-signal.SIGTERM, -signal.SIGINT, 130, 1}  # 1: Ctrl-C while a module was imported
LONGEST_S = 2.0  # of what is forked from a process that has imported everything
FORKED = {
    "ingest": "--source files:{captured} --lake {new} --trigger-seconds 0.2 --shards 2",
    "export": "--lake {lake} --port {port} --refresh-seconds 0.1",
    "iceberg": "--lake {lake} --to {new} --follow --refresh-seconds 0.1",
    "notify": "--lake {lake} --notify {notify} --follow --poll-seconds 0.1",
    "sync": "--lake {new} --cluster-id c --prices-file {prices} --every-seconds 1",
}
STARTED = {
    "dashboard": ("--lake {lake} --port {port}", 15.0),
    "mcp": ("--lake {lake}", 10.0),
    "ingest": ("--source files:{captured} --lake {new} --trigger-seconds 0.2 --master local[2]", 40.0),
    "demo": ("--files --lake {new}", 40.0),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("signals")
    PUSHES.create(str(folder / "lake"))
    put(folder / "lake")
    content = {"sinks": {"one": {"type": "webhook", "url": "http://127.0.0.1:9"}}}
    (folder / "notify.yml").write_text(yaml.safe_dump(content))
    return {
        "lake": str(folder / "lake"),
        "notify": str(folder / "notify.yml"),
        "prices": str(ROOT / "conf" / "prices.yml"),
        "captured": str(ROOT / "sandbox" / "data" / "captured"),
    }


def handles_sigterm(pid: int) -> bool:
    """Whether the command has begun: from then on it ends by itself."""
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) & 1 << (signal.SIGTERM - 1))


def argv_of(command: str, flags: str, places: dict[str, str], new: Path) -> list[str]:
    return [command, *flags.format(**places, new=new, port=free_port()).split()]


@pytest.mark.parametrize("command", FORKED)
def test_a_follower_ends_at_any_moment(command: str, places: dict[str, str], tmp_path: Path) -> None:
    draw, ended = random.Random(command), Counter[int]()
    for turn in range(MOMENTS):
        log = tmp_path / f"{turn}.log"
        argv = argv_of(command, FORKED[command], places, tmp_path / f"new-{turn}")
        job = ForkedJob("never", tmp_path / "steps", argv, log, {})
        begun = turn % 4 != 0
        while begun and job.poll() is None and not handles_sigterm(job.pid):
            time.sleep(0.001)
        time.sleep(draw.random() * LONGEST_S)
        job.send_signal(draw.choice(SIGNS))
        code = job.wait(PATIENCE_S)
        text = log.read_text() if log.exists() else ""
        assert code in ({0} if begun else {0, *NOT_BEGUN}), text
        assert code != 0 or "Traceback" not in text, text
        ended[code] += 1
        shutil.rmtree(tmp_path / f"new-{turn}", ignore_errors=True)
        log.unlink(missing_ok=True)
    print(command, dict(ended))


@pytest.mark.parametrize("command", STARTED)
def test_a_started_command_ends_at_any_moment(command: str, places: dict[str, str], tmp_path: Path) -> None:
    flags, longest_s = STARTED[command]
    draw, ended = random.Random(command), Counter[int]()
    for turn in range(MOMENTS):
        argv = argv_of(command, flags, places, tmp_path / f"new-{turn}")
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "kafka_telemetry_lake", *argv], stdin=subprocess.PIPE, stdout=log, stderr=log
            )
        time.sleep(draw.random() * longest_s)
        process.send_signal(draw.choice(SIGNS))
        try:
            code = process.wait(PATIENCE_S)
        finally:
            process.kill()
        assert code in {0, *NOT_BEGUN}, (tmp_path / "log").read_text()
        ended[code] += 1
        shutil.rmtree(tmp_path / f"new-{turn}", ignore_errors=True)
    print(command, dict(ended))
