"""Where ``telemetry-lake query`` gets its SQL from: the command line, a file, stdin, or a prompt on a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kafka_telemetry_lake.jobs.support import query_prompt
from kafka_telemetry_lake.jobs.support.query_prompt import Completer, ask_repeatedly
from kafka_telemetry_lake.pipelines.query.query_errors import QueryError
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES, QUARANTINE
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.lake

COMMAND = [sys.executable, "-m", "kafka_telemetry_lake", "query", "--lake"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("input") / "lake")
    for table in (PUSHES, QUARANTINE):
        table.create(folder)
    rows = pa.Table.from_pylist([{"client_id": "orders", "client_instance_id": "one"}], PUSHES.stored)
    write_deltalake(PUSHES.uri(folder), rows, mode="append")
    return folder


def run(lake: str, *flags: str, stdin: bytes = b"") -> tuple[int, bytes, str]:
    done = subprocess.run([*COMMAND, lake, *flags], input=stdin, capture_output=True, check=False)
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.mark.slow
def test_a_file_and_stdin(lake: str, tmp_path: Path) -> None:
    file = tmp_path / "q.sql"
    file.write_text("\ufeff-- who?\nSELECT client_id\nFROM pushes;\n", encoding="utf-8")
    assert run(lake, "--format", "csv", "--file", str(file)) == (0, b"client_id\norders\n", "")
    assert run(lake, "--format", "csv", stdin=b"SELECT count(*) AS n FROM pushes;\n") == (0, b"n\n1\n", "")


@pytest.mark.slow
def test_parquet_goes_through_a_pipe(lake: str) -> None:
    code, out, err = run(lake, "--format", "parquet", "SELECT client_id FROM pushes")
    assert (code, err) == (0, "")
    assert pa.parquet.read_table(pa.py_buffer(out)).to_pylist() == [{"client_id": "orders"}]


class Terminal:
    """A process on a terminal of its own."""

    def __init__(self, argv: list[str]) -> None:
        self.side, other = pty.openpty()
        environment = {**os.environ, "TERM": "dumb"}
        self.process = subprocess.Popen(argv, stdin=other, stdout=other, stderr=other, env=environment)
        os.close(other)
        self.screen = ""

    def type(self, text: str, *shown: str) -> None:
        """Type a text, then wait until the screen shows others, in this order, that weren't there before."""
        seen = len(self.screen)
        os.write(self.side, text.encode())
        end = time.monotonic() + PATIENCE_S
        for each in shown:
            while (at := self.screen.find(each, seen)) < 0:
                assert time.monotonic() < end, self.screen
                if select.select([self.side], [], [], 0.5)[0]:
                    self.screen += os.read(self.side, 65536).decode()
            seen = at + len(each)


@pytest.fixture
def terminal(lake: str) -> Iterator[Terminal]:
    one = Terminal([*COMMAND, lake])
    yield one
    one.process.kill()
    one.process.wait()
    os.close(one.side)


@pytest.mark.slow
def test_the_prompt_answers_completes_and_survives_errors(terminal: Terminal) -> None:
    terminal.type("", "lake > ")
    terminal.type("SELECT client_id\n", "... ")
    terminal.type("FROM pushes;\n", "orders", "1 row", "lake > ")
    terminal.type("SELECT * FROM puses;\n", "did you mean pushes", "lake > ")
    terminal.type("SELECT count(*) FROM quara\t", "ntine")
    terminal.type(";\n", "1 row", "lake > ")
    terminal.type("exit\n", "exit")
    assert terminal.process.wait(PATIENCE_S) == 0


def test_binary_formats_are_not_written_to_a_terminal(lake: str) -> None:
    one = Terminal([*COMMAND, lake, "--format", "parquet", "SELECT 1"])
    try:
        one.type("", "parquet is binary: redirect it, such as > rows.parquet")
        assert one.process.wait(PATIENCE_S) == 2
    finally:
        os.close(one.side)


@pytest.mark.slow
def test_names_are_completed(lake: str) -> None:
    completer = Completer(lake)

    def completions(text: str) -> list[str | None]:
        return [completer.complete(text, state) for state in range(4)]

    assert completions("finding")[:2] == ["finding", "finding_changes"]
    assert completions("findings")[0] == "findings"
    assert completions("CLIENT_INSTANCE")[0] == "client_instance_id"
    assert completions("records_fai") == ["records_failed", None, None, None]
    assert completions("sel") == ["SELECT", None, None, None]
    assert completions("nothing_like_it") == [None] * 4


def test_typed_lines_become_queries(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    typed: Iterator[str | KeyboardInterrupt] = iter(
        ["", "SELECT 1", "  AS n;", "SELECT 9", KeyboardInterrupt(), "SELECT 2 AS m;", "quit;", "SELECT 3;"]
    )

    def read(prompt: str) -> str:
        line = next(typed)
        if isinstance(line, KeyboardInterrupt):  # Ctrl-C drops what is typed so far
            raise line
        return line

    monkeypatch.setattr("builtins.input", read)
    monkeypatch.setattr(query_prompt, "readline", None)
    asked: list[str] = []
    ask_repeatedly(lake, asked.append)
    assert asked == ["SELECT 1\n  AS n;", "SELECT 2 AS m;"]


@pytest.mark.parametrize("problem", [QueryError("no such table"), KeyboardInterrupt()])
def test_neither_an_error_nor_ctrl_c_ends_the_prompt(
    lake: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], problem: BaseException
) -> None:
    typed = iter(["SELECT 1;", "SELECT 2;"])

    def read(prompt: str) -> str:
        if (line := next(typed, None)) is None:
            raise EOFError
        return line

    def answer(sql: str) -> None:
        asked.append(sql)
        raise problem

    asked: list[str] = []
    monkeypatch.setattr("builtins.input", read)
    monkeypatch.setattr(query_prompt, "readline", None)
    ask_repeatedly(lake, answer)
    assert asked == ["SELECT 1;", "SELECT 2;"]
    said = "telemetry-lake: no such table" if isinstance(problem, QueryError) else "interrupted"
    assert capsys.readouterr().err.splitlines().count(said) == 2


def test_a_prompt_needs_a_lake(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="no lake at"):
        ask_repeatedly(str(tmp_path), print)
