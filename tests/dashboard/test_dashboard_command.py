"""What the command says when it can't serve: one line that a person can act on."""

from __future__ import annotations

import socket
from pathlib import Path

import pyarrow as pa
import pytest

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from tests.support.captured_lake import write_lake


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    code = run_command("dashboard", list(argv))
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    return code, err


def test_a_missing_lake(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, said = run(capsys, "--lake", str(tmp_path / "none"))
    assert code == 2
    assert f"no lake at {tmp_path / 'none'}: create one with `telemetry-lake demo`" in said


def test_a_taken_port(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", pa.Table.from_pylist([], PUSHES.schema))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, said = run(capsys, "--lake", str(lake), "--port", str(port))
    assert code == 2
    assert f"port {port} is in use: choose another with --port" in said


def test_an_address_of_another_machine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", pa.Table.from_pylist([], PUSHES.schema))
    code, said = run(capsys, "--lake", str(lake), "--host", "192.0.2.1")
    assert code == 2
    assert "can't listen on 192.0.2.1:8501" in said


@pytest.mark.parametrize(("flag", "value"), [("--port", "0"), ("--port", "http")])
def test_a_wrong_port(capsys: pytest.CaptureFixture[str], tmp_path: Path, flag: str, value: str) -> None:
    code, said = run(capsys, "--lake", str(tmp_path), flag, value)
    assert code == 2
    assert "port: " in said
