"""A job compiles its kernels in another process while Spark starts and plans, and says so."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest

from kafka_telemetry_lake.pipelines.ingest import compiling
from kafka_telemetry_lake.pipelines.ingest.compiling import compiled_in_background
from kafka_telemetry_lake.udfs.kernels import numba_cache
from tests.support.patience import wait_until

STARTED = "compiling kernels, once for this user: half a minute on two cores"


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in place of the compiler's process, for an empty cache, with a child; leaves both pids in a file."""
    program = tmp_path / "compiler"
    program.write_text(
        '#!/bin/sh\nsleep "${REST:-0}" &\necho "compiling kernels, once: 10 %"\necho $$ $! > "$0.pids"\nwait\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    monkeypatch.setattr(numba_cache, "is_filled", lambda: False)
    return program


def pids(compiler: Path) -> list[int]:
    file = compiler.with_suffix(".pids")
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"))
    return [int(pid) for pid in file.read_text().split()]


def runs(pid: int) -> bool:
    """False also for a zombie: in a container nobody may reap an orphan."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_compilers_lines_are_said(compiler: Path) -> None:
    said: list[str] = []
    with compiled_in_background(said.append):
        assert said[:1] == [STARTED]
        wait_until(lambda: len(said) == 2)
        wait_until(lambda: not psutil.pid_exists(pids(compiler)[0]))  # it is waited for before the block ends
    assert said == [STARTED, "compiling kernels, once: 10 %"]


@pytest.mark.parametrize("fails", [False, True])
def test_the_end_of_the_block_ends_the_compiler(compiler: Path, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    monkeypatch.setenv("REST", "600")
    with pytest.raises(OSError, match="no broker") if fails else nullcontext(), compiled_in_background(lambda _: None):
        pids(compiler)
        if fails:
            raise OSError("no broker")
    wait_until(lambda: not any(map(runs, pids(compiler))))


def test_a_compiler_that_ends_by_itself_while_it_is_ended(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill_late(pid: int, number: int) -> None:
        wait_until(lambda: not psutil.pid_exists(pid))
        killed.append(pid)
        killpg(pid, number)

    killpg, killed = os.killpg, list[int]()
    monkeypatch.setenv("REST", "0.5")
    monkeypatch.setattr(os, "killpg", kill_late)
    with compiled_in_background(lambda _: None):
        pass
    assert killed


def test_nothing_is_done_where_all_is_compiled(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba_cache, "is_filled", lambda: True)
    said: list[str] = []
    with compiled_in_background(said.append):
        pass
    assert said == []
    assert not compiler.with_suffix(".pids").exists()


@pytest.mark.parametrize(
    ("loadable", "line"),
    [
        (True, "kernels are not compiled: a compiler failed. The first batch compiles them\n"),
        (False, "kernels are not compiled: numba can't be loaded. Conversion is right but slow\n"),
    ],
)
def test_it_says_that_kernels_are_not_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], loadable: bool, line: str
) -> None:
    monkeypatch.setattr(numba_cache, "is_filled", lambda: False)
    monkeypatch.setattr(compiling, "compile_kernels", lambda _: None)
    monkeypatch.setattr(compiling, "COMPILES", loadable)
    compiling.main()
    assert capsys.readouterr().out == line


def test_without_numba_nothing_is_marked_as_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "COMPILES", False)
    monkeypatch.setattr(numba_cache, "fill", lambda *_, **__: pytest.fail("it would be marked"))
    compiling.compile_kernels()
