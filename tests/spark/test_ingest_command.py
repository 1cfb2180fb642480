"""The command as a supervisor meets it: killed, stopped, started twice."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
import yaml

from tests.conftest import Ingest
from tests.support.lake_tables import rollup_sums, table
from tests.support.landing_records import captured, write
from tests.support.patience import PATIENCE_S, idle_clock, wait_until
from tests.unit.notify.changed_findings import change, http_sink, record

TABLES = ("pushes", "metric_points", "push_outcomes", "client_events", "quarantine")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start ``telemetry-lake ingest`` over tmp_path/in into tmp_path/lake; whatever still runs at the end is killed."""
    running: list[subprocess.Popen[str]] = []

    def start_ingest(*flags: str, stops_at: str = "") -> subprocess.Popen[str]:
        stopped = ["tests.support.stopped_job", stops_at, str(tmp_path / "steps")]
        argv = [sys.executable, "-m", *(stopped if stops_at else ["kafka_telemetry_lake.jobs.cli"]), "ingest",
                "--source", f"files:{tmp_path / 'in'}", "--source-name", "test",
                "--lake", str(tmp_path / "lake"), "--master", "local[2]", *flags]  # fmt: skip
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        running.append(process)
        return process

    yield start_ingest
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_for(there: Callable[[], object], process: subprocess.Popen[str]) -> None:
    wait_until(
        there, process=process, said=lambda: "waited too long" if process.poll() is None else process.communicate()[0]
    )


@pytest.mark.slow
def test_killed_in_the_middle_and_repeated_gives_the_same_tables(
    ingest: Ingest, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    landed = captured().slice(0, 600)
    for number in range(3):
        write(tmp_path / "in", f"{number}.parquet", landed.slice(number * 200, 200))
    ingest(tmp_path / "in", tmp_path / "whole")
    lake = tmp_path / "lake"
    tasks_have_written = "add metric_points/_delta_log/00000000000000000002.json"
    points_are_committed = "add push_outcomes/_delta_log/00000000000000000004.json"  # the third is the job's epoch
    for moment, has_points in ((tasks_have_written, False), (points_are_committed, True)):
        process = start("--once", stops_at=moment)
        wait_for(partial(_is_stopped, process), process)
        process.kill()
        process.wait()
        assert any(lake.glob("metric_points/landed_date=*/*.parquet"))
        assert (_count(lake, "metric_points") > 0, _count(lake, "push_outcomes")) == (has_points, 0)
    process = start("--once")
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output
    for name in TABLES:
        assert _rows(lake, name) == _rows(tmp_path / "whole", name), name
    for name in ("metric_rollups_1m", "metric_rollups_1h"):
        assert rollup_sums(lake, name) == rollup_sums(tmp_path / "whole", name), name
    assert table(lake, "pushes").num_rows == 600


@pytest.mark.slow
def test_follows_a_growing_folder_refuses_a_second_job_and_stops_cleanly_beside_a_sink_that_hangs(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    lake, released = tmp_path / "lake", threading.Event()
    write(tmp_path / "in", "0.parquet", captured().slice(0, 100))
    with http_sink() as hook, http_sink() as hangs:
        hangs.answer = lambda _request: 200 if released.wait(PATIENCE_S) else 500
        sinks = {name: {"type": "webhook", "url": each.url} for name, each in {"hook": hook, "hangs": hangs}.items()}
        (tmp_path / "notify.yml").write_text(yaml.safe_dump({"sinks": sinks}))
        flags = ["--trigger-seconds", "1", "--findings-minutes", "0.02", "--notify", str(tmp_path / "notify.yml")]
        process = start(*flags)
        wait_for(lambda: _count(lake, "push_outcomes") == 100, process)
        second = start("--once")
        refused, _ = second.communicate(timeout=PATIENCE_S)
        record(str(lake), change("orders"))
        wait_for(lambda: hangs.requests and ("orders", "opened") in hook.changes(), process)
        write(tmp_path / "in", "1.parquet", captured().slice(100, 100))
        wait_for(lambda: _count(lake, "push_outcomes") == 200, process)
        with idle_clock() as clock:
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=PATIENCE_S)
        released.set()
    assert second.returncode == 2
    assert "another job is writing this lake" in refused
    assert process.returncode == 0, output
    assert clock.seconds < 10
    assert "ingest: stopped" in output
    assert "Traceback" not in output


def _is_stopped(process: subprocess.Popen[str]) -> bool:
    return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED


def _count(lake: Path, name: str) -> int:
    return table(lake, name).num_rows if (lake / name / "_delta_log").exists() else 0


def _rows(lake: Path, name: str) -> list[str]:
    return sorted(str(sorted(row.items())) for row in table(lake, name).to_pylist())
