"""What clients call themselves, wherever it is printed: spelled out, never obeyed."""

from __future__ import annotations

import io
import json
import logging
import sys

import pytest
from rich.console import Console

from kafka_telemetry_lake.dashboards.show import plain
from kafka_telemetry_lake.jobs.support import demo_report
from kafka_telemetry_lake.jobs.support.console import JsonLines, TextLines, fail
from kafka_telemetry_lake.pipelines.query.formats import write_csv, write_jsonl, write_table
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.query.printable import printable, printable_json
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

# Escape sequences in 7 and in 8 bits, a line of its own, a change of direction, HTML, Markdown and rich's markup.
NAME = "a\x1b[2J\x9b31m\n12:00:00 all is well\r\u202e\x00\U000e0041<b>[red]é"
SPELLED = "a\\x1b[2J\\x9b31m\\n12:00:00 all is well\\r\\u202e\\x00\\U000e0041<b>[red]é"
SQL = "SELECT 'a' || chr(27) || '[2J' || chr(155) || chr(10) || chr(8238) || '<b>[red]é' AS name, 1 AS n"
ASKED = "a\x1b[2J\x9b\n\u202e<b>[red]é"


def test_what_does_not_print_is_spelled_out_and_json_is_the_same_value() -> None:
    assert printable("orders é 日本") == "orders é 日本"
    assert printable(NAME) == SPELLED
    assert printable("a\n\tb\x1b", keep="\n") == "a\n\\tb\\x1b"
    text = printable_json({"name": NAME})
    assert text.isprintable()
    assert json.loads(text) == {"name": NAME}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_tables_and_json_lines_and_csv_on_a_terminal(tmp_path: object) -> None:
    for write in (write_table, write_jsonl):
        out = io.StringIO()
        write(run_query(str(tmp_path), SQL), out)
        assert out.getvalue().replace("\n", "").isprintable()
    assert json.loads(out.getvalue())["name"] == ASKED
    terminal = Terminal()
    write_csv(run_query(str(tmp_path), SQL), terminal)
    assert terminal.getvalue().splitlines() == ["name,n", "a\\x1b[2J\\x9b\\n\\u202e<b>[red]é,1"]
    piped = io.StringIO()
    write_csv(run_query(str(tmp_path), SQL), piped)  # a program gets what is stored
    assert piped.getvalue() == f'name,n\n"{ASKED}",1\n'


def test_a_message_is_one_line_of_a_log() -> None:
    record = logging.LogRecord("telemetry-lake", logging.INFO, "f", 1, "client %s", (NAME,), None)
    assert TextLines("%(message)s").format(record) == f"client {SPELLED}"
    line = JsonLines().format(record)
    assert line.isprintable()
    assert json.loads(line)["message"] == f"client {NAME}"
    try:
        raise ValueError(NAME)
    except ValueError:
        record.exc_info = sys.exc_info()
    first, *trace = TextLines("%(message)s").format(record).splitlines()
    assert first == f"client {SPELLED}"
    assert all(line.isprintable() for line in trace)


def test_errors_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert fail(TelemetryLakeError(f"no such client {NAME}")) == 1
    assert capsys.readouterr().err.replace("\n", "").isprintable()


def test_the_demos_report(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    console = Console(file=out, width=200)
    monkeypatch.setattr(demo_report, "Console", lambda **_: console)
    row = {"clients": 3, "client_id": NAME}
    monkeypatch.setattr(demo_report, "_answer", lambda *_: [row])
    demo_report.report("lake")
    assert SPELLED in out.getvalue()
    assert "[red]" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_the_dashboards_text() -> None:
    shown = plain(NAME)
    assert shown.isprintable()
    assert r"\<b\>" in shown
    assert r"\[red\]" in shown


@pytest.mark.parametrize(("started_as", "again"), [
    (".venv/bin/telemetry-lake", ".venv/bin/telemetry-lake"),
    ("/home/me/.local/bin/telemetry-lake", "telemetry-lake"),
    ("/lib/kafka_telemetry_lake/__main__.py", "telemetry-lake"),
])  # fmt: skip
def test_the_report_s_commands_run_as_the_demo_was_started(started_as: str, again: str) -> None:
    assert demo_report.program(started_as) == again
