"""What commands print reaches every console, and a reader that stops reading, such as `head`, fails none of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.lake

TEXT = "'é😀' || range AS v, MAP {'ü': range} AS m FROM range(1)"
ALL = "SELECT repeat('x', 1000) AS v FROM range(1000)"
ASCII_LOCALE = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
COMMAND = [sys.executable, "-m", "kafka_telemetry_lake.jobs.cli"]


def said(argv: list[str], **environment: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    done = subprocess.run(
        [*COMMAND, *argv], capture_output=True, check=False, timeout=PATIENCE_S, env=os.environ | environment
    )
    return done.returncode, done.stdout.decode("ascii"), done.stderr.decode("ascii")


def begun(argv: list[str]) -> tuple[int, bytes]:
    """Exit code and standard error of a command of whose output only one byte is read."""
    with subprocess.Popen([*COMMAND, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1)
        process.stdout.close()
        error = process.stderr.read()
    return process.returncode, error


@pytest.mark.parametrize(
    ("form", "shown", "environment"),
    [
        ("jsonl", '{"v":"\\u00e9\\ud83d\\ude000","m":{"\\u00fc":0}}\n', {"PYTHONIOENCODING": "ascii"}),
        ("csv", 'v,m\n\\u00e9\\ud83d\\ude000,"{""\\u00fc"": 0}"\n', ASCII_LOCALE),
    ],
)
def test_an_encoding_without_a_character_gets_its_escape(
    tmp_path: Path, form: str, shown: str, environment: dict[str, str]
) -> None:
    query = ["query", "--lake", str(tmp_path), "--format", form, f"SELECT {TEXT}"]
    assert said(query, **environment) == (0, shown, "")
    assert json.loads('"\\u00e9\\ud83d\\ude000"') == "é😀0"


def test_errors_and_names_are_escaped_too(tmp_path: Path) -> None:
    lake = str(tmp_path / "größe")
    code, _, error = said(["query", "--lake", lake, "FROM pushes"], PYTHONIOENCODING="ascii")
    assert (code, error.count("\n")) == (1, 1)
    assert error.startswith(f"telemetry-lake: no lake at {tmp_path}/gr\\u00f6\\u00dfe: create one")


@pytest.mark.parametrize(
    "argv",
    [["query", "--format", "csv"], ["views"],
     *(pytest.param(argv, marks=pytest.mark.slow) for argv in (["query", "--format", "arrow"], ["--help"]))],
)  # fmt: skip
def test_a_reader_that_stops_reading_ends_a_command_quietly(tmp_path: Path, argv: list[str]) -> None:
    query = [*argv, "--lake", str(tmp_path), ALL] if argv[0] == "query" else argv
    assert begun(query) == (0, b"")


def test_a_command_goes_on_without_its_reader() -> None:
    program = """
import sys
from kafka_telemetry_lake.jobs.support.console import prepare_output
prepare_output()
for number in range(1000):
    print("x" * 1000, flush=True)
print("worked to the end", file=sys.stderr)
sys.exit(3)
"""
    argv = [sys.executable, "-c", program]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b"worked to the end\n"
    assert process.returncode == 3


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_an_output_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        argv = [*COMMAND, "query", "--lake", str(tmp_path), "--format", "parquet", ALL]
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert done.stderr == "telemetry-lake: the output can't be written: No space left on device\n"


def test_a_closed_output_is_none_that_is_read(tmp_path: Path) -> None:
    argv = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, "query", "--lake", str(tmp_path), "--format", "csv", ALL]
    done = subprocess.run(argv, stderr=subprocess.PIPE, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_query_that_is_no_text_is_refused(tmp_path: Path) -> None:
    code, _, error = said(["query", "--lake", str(tmp_path), os.fsdecode(b"SELECT '\xff'")])
    assert (code, error) == (2, "telemetry-lake: the query is not text in UTF-8\n")
