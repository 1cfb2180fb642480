"""What the end-to-end benchmark's peers are measured with."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from benchmarks.peers import PeerError, build
from benchmarks.peers.collector import points_in
from benchmarks.peers.cpu import TreeCpu
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.slow  # it starts processes that burn CPU

BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"
SLACK_S = 0.15  # the kernel's ticks
DONE = "\nimport time\nprint(time.process_time(), flush=True)\ninput()"
Looks = Callable[[TreeCpu], object]


@contextmanager
def watched(
    program: str, meanwhile: Looks = lambda _: None, interval_s: float = 0.02
) -> Iterator[tuple[TreeCpu, float]]:
    """A Python program that says when it is done with its children, and then waits; gives its own CPU-seconds, too.

    Args:
        meanwhile: called while it runs.
    """
    argv = [sys.executable, "-S", "-c", program + DONE]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            with TreeCpu(process.pid, interval_s) as tree:
                assert process.stdout is not None
                meanwhile(tree)
                yield tree, float(process.stdout.readline())
        finally:
            process.kill()


class Gates:
    """Named pipes: who opens one waits until the test has opened it, too."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.paths = {name: folder / name for name in names}
        for path in self.paths.values():
            os.mkfifo(path)

    def arrive(self, name: str, says: str = "0") -> str:
        """Code of a program: it waits here, and says something."""
        return f"with open({str(self.paths[name])!r}, 'w') as gate: gate.write(str({says}))\n"

    def open(self, name: str) -> str:
        """Wait until a program is there, and let it go on; what it says."""
        return self.paths[name].read_text()


def child(seconds: float, then: str = "") -> str:
    return f"[sys.executable, '-S', '-c', {BURN.format(seconds=seconds) + then!r}]"


def test_cpu_of_children_too_short_to_be_seen() -> None:
    with watched(
        "import os\nfor _ in range(60):\n if not os.fork(): os._exit(sum(range(300_000)) & 0)\n os.wait()"
    ) as (tree, _):
        reaped = tree.cpu_s()
    once = time.process_time()
    sum(range(300_000))
    assert reaped > 60 * (time.process_time() - once) / 3


def test_cpu_of_a_child_that_nobody_waits_for(tmp_path: Path) -> None:
    """Spark's Python workers: the kernel forgets what they used."""
    gates = Gates(tmp_path, "burnt", "looked")
    program = f"""
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
subprocess.Popen({child(0.6, gates.arrive("burnt") + gates.arrive("looked"))}).wait()"""

    def look(tree: TreeCpu) -> None:
        gates.open("burnt")
        tree.cpu_s()
        gates.open("looked")

    with watched(program, look) as (tree, own_s):
        assert tree.cpu_s() == pytest.approx(own_s + 0.6, abs=SLACK_S)


def test_a_child_that_ends_with_its_own_child_counts_it_once(tmp_path: Path) -> None:
    """The child was last seen before it had waited for the grandchild."""
    gates = Gates(tmp_path, "burnt", "looked")
    grandchild = child(0.6, gates.arrive("burnt") + gates.arrive("looked"))
    parent = f"import os, subprocess, sys\nsubprocess.run({grandchild})\nos._exit(0)"
    program = f"import subprocess, sys\nsubprocess.run([sys.executable, '-S', '-c', {parent!r}])"

    def look(tree: TreeCpu) -> None:
        gates.open("burnt")
        tree.cpu_s()
        gates.open("looked")

    with watched(program, look, interval_s=60) as (tree, own_s):
        assert tree.cpu_s() == pytest.approx(own_s + 0.6, abs=2 * SLACK_S)  # the child's own start is in it


def test_cpu_of_a_grandchild_whose_parent_ended(tmp_path: Path) -> None:
    """It is nobody's child here when it says that it is done."""
    gates = Gates(tmp_path, "begun", "looked", "burnt", "end")
    burn = BURN.format(seconds=0.6) + gates.arrive("burnt") + gates.arrive("end")
    orphan = f"[sys.executable, '-S', '-c', {gates.arrive('begun') + burn!r}]"
    parent = f"import subprocess, sys\nsubprocess.Popen({orphan})\n{gates.arrive('looked', 'time.process_time()')}"
    program = (
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-S', '-c', {'import time' + chr(10) + parent!r}])"
    )
    others_s = 0.0

    def look(tree: TreeCpu) -> None:
        nonlocal others_s
        gates.open("begun")
        tree.cpu_s()
        others_s = float(gates.open("looked"))
        gates.open("burnt")

    with watched(program, look) as (tree, own_s):
        assert tree.cpu_s() == pytest.approx(own_s + others_s + 0.6, abs=SLACK_S)
        gates.open("end")


def test_cpu_of_a_whole_life_is_read_before_the_process_is_reaped() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", BURN.format(seconds=0.5)]) as process:
        with TreeCpu(process.pid, interval_s=60) as tree:
            assert tree.cpu_s_at_end(PATIENCE_S) == pytest.approx(0.5, abs=SLACK_S)
        assert process.poll() == 0


def test_a_process_that_does_not_end_in_time_is_an_error() -> None:
    with subprocess.Popen(["sleep", "3600"]) as process:
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


def test_a_fork_counts_once_it_lives_on() -> None:
    """Before it runs another program its pages are its parent's."""
    program = (
        "import os, time\nheld = b'x' * 100_000_000\nprint(flush=True)\ninput()\nif not os.fork(): time.sleep(3600)"
    )
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
    program = "import os, time\nheld = b'x' * 100_000_000\nfor _ in range(3):\n if not os.fork(): time.sleep(3600)"
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


def test_points_of_the_collectors_file_and_a_cut_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "metrics.binpb"
    file.write_bytes(_message(gauges=3, counters=2) + _message(gauges=0, counters=300) + _message(gauges=0, counters=0))
    assert points_in(file) == 305
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
