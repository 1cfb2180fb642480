"""A job compiles its kernels in another process while Spark starts and plans, and says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafka_telemetry_lake.pipelines.ingest import compiling, operator_task
from kafka_telemetry_lake.pipelines.ingest.compiling import compiled_in_background
from kafka_telemetry_lake.udfs.kernels import numba_cache

STARTED = "compiling kernels, once for this user: half a minute on two cores"


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in place of the compiler's process, for an empty cache; it leaves its pid in a file beside it."""
    program = tmp_path / "compiler"
    program.write_text('#!/bin/sh\necho $$ > "$0.pid"\necho "compiling kernels, once: 10 %"\nexec sleep "${REST:-0}"\n')
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    monkeypatch.setattr(numba_cache, "is_filled", lambda: False)
    return program


def wait_for_start(compiler: Path) -> None:
    while not compiler.with_suffix(".pid").exists() or not compiler.with_suffix(".pid").read_text():
        pass


def has_ended(compiler: Path) -> bool:
    wait_for_start(compiler)
    pid = int(compiler.with_suffix(".pid").read_text())
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_the_compilers_lines_are_said(compiler: Path) -> None:
    said: list[str] = []
    with compiled_in_background(said.append):
        assert said[:1] == [STARTED]
        while len(said) < 2:
            pass
    assert said == [STARTED, "compiling kernels, once: 10 %"]


def test_the_end_of_the_block_ends_the_compiler(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REST", "600")
    with compiled_in_background(lambda _: None):
        wait_for_start(compiler)
    assert has_ended(compiler)


def test_a_start_that_fails_ends_the_compiler(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REST", "600")

    def start() -> None:
        with compiled_in_background(lambda _: None):
            wait_for_start(compiler)
            raise OSError("no broker")

    with pytest.raises(OSError, match="no broker"):
        start()
    assert has_ended(compiler)


def test_nothing_is_done_where_all_is_compiled(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba_cache, "is_filled", lambda: True)
    said: list[str] = []
    with compiled_in_background(said.append):
        pass
    assert said == []
    assert not compiler.with_suffix(".pid").exists()


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
    monkeypatch.setattr(operator_task, "COMPILES", False)
    monkeypatch.setattr(numba_cache, "fill", lambda *_, **__: pytest.fail("it would be marked"))
    operator_task.compile_kernels()
