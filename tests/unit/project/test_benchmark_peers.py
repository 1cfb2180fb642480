"""What the end-to-end benchmark's peers are measured with."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from benchmarks.peers import PeerError, build
from benchmarks.peers.collector import points_in
from benchmarks.peers.cpu import TreeCpu

BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"
SLACK_S = 0.15  # starts of Python, and the kernel's ticks


@contextmanager
def watched(program: str) -> Iterator[TreeCpu]:
    """A Python program that says when it is done with its children, and then waits."""
    argv = [sys.executable, "-S", "-c", f"{program}\nprint(flush=True)\ninput()"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            with TreeCpu(process.pid, interval_s=0.02) as tree:
                assert process.stdout is not None
                assert process.stdout.readline() == "\n"
                yield tree
        finally:
            process.kill()


def child(seconds: float, then: str = "") -> str:
    return f"[sys.executable, '-S', '-c', {BURN.format(seconds=seconds) + then!r}]"


def test_cpu_of_the_process_itself() -> None:
    with watched(BURN.format(seconds=0.5)) as tree:
        assert tree.cpu_s() == pytest.approx(0.5, abs=SLACK_S)


def test_cpu_of_a_child_that_was_waited_for_is_counted_once() -> None:
    with watched(f"import subprocess, sys\nsubprocess.run({child(0.6)})") as tree:
        assert tree.cpu_s() == pytest.approx(0.6, abs=SLACK_S)


def test_cpu_of_children_too_short_to_be_seen() -> None:
    with watched(
        "import os\nfor _ in range(60):\n if not os.fork(): os._exit(sum(range(300_000)) & 0)\n os.wait()"
    ) as tree:
        reaped = tree.cpu_s()
    once = time.process_time()
    sum(range(300_000))
    assert reaped > 60 * (time.process_time() - once) / 3


def test_cpu_of_a_child_that_nobody_waits_for() -> None:
    """Spark's Python workers: the kernel forgets what they used."""
    program = f"""
import signal, subprocess, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
worker = subprocess.Popen({child(0.6, "time.sleep(0.2)")})
while worker.poll() is None: time.sleep(0.01)"""
    with watched(program) as tree:
        assert tree.cpu_s() == pytest.approx(0.6, abs=SLACK_S)


def test_cpu_of_a_grandchild_whose_parent_ended() -> None:
    """It is nobody's child here when it says that it is done."""
    orphan = child(0.6, "import sys\nprint('burnt', file=sys.stderr, flush=True)\ntime.sleep(1)")
    parent = f"import subprocess, sys, time\nsubprocess.Popen({orphan})\ntime.sleep(0.2)"
    program = f"""
import subprocess, sys
parent = subprocess.Popen([sys.executable, '-S', '-c', {parent!r}], stderr=subprocess.PIPE)
parent.wait()
parent.stderr.readline()"""
    with watched(program) as tree:
        assert tree.cpu_s() == pytest.approx(0.6, abs=SLACK_S)


def test_cpu_of_a_whole_life_is_read_before_the_process_is_reaped() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", BURN.format(seconds=0.5)]) as process:
        with TreeCpu(process.pid, interval_s=60) as tree:
            assert tree.cpu_s_at_end() == pytest.approx(0.5, abs=SLACK_S)
        assert process.poll() == 0


def test_a_process_that_does_not_end_in_time_is_an_error() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            with TreeCpu(process.pid) as tree, pytest.raises(TimeoutError, match="still runs"):
                tree.cpu_s_at_end(0.05)
        finally:
            process.kill()


def test_a_peer_is_built_again_only_if_a_source_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "BUILT", tmp_path / "built")
    sources, output = tmp_path / "peer", tmp_path / "output"
    sources.mkdir()
    command = ["sh", "-c", f"cat a.go > {output}; echo >> {tmp_path}/builds"]
    for text, other in (("one", ""), ("one", "not a source"), ("two", "")):
        (sources / "a.go").write_text(text)
        (sources / "notes.txt").write_text(other)
        assert build.built(sources, ["*.go"], command, output).read_text() == text
    assert (tmp_path / "builds").read_text() == "\n" * 2


def test_a_peer_that_cannot_be_built_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "BUILT", tmp_path / "built")
    with pytest.raises(PeerError, match="no `no-such-compiler` on the PATH"):
        build.built(tmp_path, ["*.go"], ["no-such-compiler"], tmp_path / "output")
    with pytest.raises(PeerError, match="could not be built"):
        build.built(tmp_path, ["*.go"], ["false"], tmp_path / "output")


def test_memory_is_the_peak_of_the_sum() -> None:
    hold = "import time\nheld = b'x' * 100_000_000\ntime.sleep(0.5)"
    program = (
        f"import subprocess, sys\nheld = b'x' * 100_000_000\nsubprocess.run([sys.executable, '-S', '-c', {hold!r}])"
    )
    with watched(program) as tree:
        pass
    assert 200_000_000 < tree.peak_rss_bytes < 260_000_000


def test_a_fork_counts_once_it_lives_on() -> None:
    """Before it runs another program its pages are its parent's."""
    program = "import os, time\nheld = b'x' * 100_000_000\nprint(flush=True)\ninput()\nif not os.fork(): time.sleep(60)"
    argv = [sys.executable, "-S", "-c", f"{program}\nprint(flush=True)\ninput()"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdout.readline()
            with TreeCpu(process.pid, interval_s=60) as tree:
                process.stdin.write("\n")
                process.stdin.flush()
                process.stdout.readline()
                tree.cpu_s()
                assert 100_000_000 < tree.peak_rss_bytes < 160_000_000
                tree.cpu_s()
                assert 200_000_000 < tree.peak_rss_bytes < 260_000_000
        finally:
            for child in psutil.Process(process.pid).children():
                child.kill()
            process.kill()


def test_a_process_that_still_runs_in_its_parents_memory_does_not_count(tmp_path: Path) -> None:
    """A JVM starts programs by vfork; a busy machine takes long to exec them."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    waits = f"[(os.POSIX_SPAWN_OPEN, 0, {str(gate)!r}, os.O_RDONLY, 0)]"
    program = f"import os\nheld = b'x' * 100_000_000\nos.posix_spawn('/bin/true', ['true'], {{}}, file_actions={waits})"
    with subprocess.Popen([sys.executable, "-S", "-c", program]) as process:
        watched_process = psutil.Process(process.pid)
        while not watched_process.children():
            time.sleep(0.01)
        with TreeCpu(process.pid, interval_s=60, proportional=True) as tree:
            tree.cpu_s()
            tree.cpu_s()
        with gate.open("w"):
            process.wait()
    assert 100_000_000 < tree.peak_rss_bytes < 160_000_000
    assert 100_000_000 < tree.peak_pss_bytes < 160_000_000


def test_pages_that_forks_share_count_once_in_the_proportional_size() -> None:
    program = "import os, time\nheld = b'x' * 100_000_000\nfor _ in range(3):\n if not os.fork(): time.sleep(60)"
    argv = [sys.executable, "-S", "-c", f"{program}\nprint(flush=True)\ninput()"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            with TreeCpu(process.pid, interval_s=60, proportional=True) as tree:
                tree.cpu_s()
                tree.cpu_s()
        finally:
            for child in psutil.Process(process.pid).children():
                child.kill()
            process.kill()
    assert 400_000_000 < tree.peak_rss_bytes < 500_000_000
    assert 100_000_000 < tree.peak_pss_bytes < 160_000_000


def test_points_of_the_collectors_file(tmp_path: Path) -> None:
    file = tmp_path / "metrics.binpb"
    file.write_bytes(_message(gauges=3, counters=2) + _message(gauges=0, counters=300) + _message(gauges=0, counters=0))
    assert points_in(file) == 305


def test_a_cut_file_of_the_collector_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "metrics.binpb"
    file.write_bytes(_message(gauges=3, counters=2)[:-1])
    with pytest.raises(PeerError, match="ends inside a message"):
        points_in(file)


def _message(gauges: int, counters: int) -> bytes:
    data = MetricsData()
    metrics = data.resource_metrics.add().scope_metrics.add().metrics
    metrics.add(name="without points")
    for value in range(gauges):
        metrics.add(name="gauge").gauge.data_points.add(as_double=value)
    counter = metrics.add(name="counter").sum
    for value in range(counters):
        counter.data_points.add(as_int=value)
    text = data.SerializeToString()
    return struct.pack(">I", len(text)) + text
