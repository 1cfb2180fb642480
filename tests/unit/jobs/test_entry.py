"""How a command starts and ends: quick help, exit codes, and known errors in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs.cli import COMMANDS, job_of
from kafka_telemetry_lake.jobs.settings.base import JobSettings
from kafka_telemetry_lake.jobs.support.locks import UPKEEP, LakeBusyError, only, only_job
from kafka_telemetry_lake.pipelines.lake.errors import StateMissingError
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.lake

HEAVY = (
    "deltalake",
    "duckdb",
    "great_expectations",
    "numba",
    "numpy",
    "pandas",
    "py4j",
    "pyarrow",
    "pyspark",
    "streamlit",
)
AFTER_HELP = """
import contextlib, io, json, sys
from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs.cli import COMMANDS
seen = {}
for command in COMMANDS:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        for flag in ("--help", "--no-such-flag"):
            with contextlib.suppress(SystemExit):
                cli.main([command, flag])
    seen[command] = out.getvalue(), err.getvalue(), sorted(set(sys.argv[1:]) & set(sys.modules))
print(json.dumps(seen))
"""


def test_help_and_wrong_flags_load_no_heavy_module() -> None:
    argv = [sys.executable, "-c", AFTER_HELP, *HEAVY]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    seen = json.loads(done.stdout)
    assert seen.keys() == COMMANDS.keys()
    for command, (out, err, loaded) in seen.items():
        assert f"usage: telemetry-lake {command}" in out
        assert err.startswith("telemetry-lake: "), command
        assert loaded == [], command


@pytest.mark.parametrize(("error", "code"), [(TelemetryLakeError("why"), 1), (StateMissingError("why"), 2)])
def test_a_known_error_is_one_line_and_its_exit_code(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def job(settings: JobSettings) -> int:
        raise error

    monkeypatch.setattr(cli, "job_of", lambda _: job)
    assert cli.run_command("maintain", ["--lake", "lake"]) == code
    assert capsys.readouterr() == ("", "telemetry-lake: why\n")


def test_an_unknown_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def job(settings: JobSettings) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "job_of", lambda _: job)
    with pytest.raises(ZeroDivisionError):
        cli.run_command("maintain", ["--lake", "lake"])


def test_a_lake_has_one_job_and_one_upkeep_beside_it(tmp_path: Path) -> None:
    lake = str(tmp_path)
    with only_job(lake, "ingest", "busy"), only(UPKEEP, lake, "busy"):
        with pytest.raises(LakeBusyError, match="another job"), only_job(lake, "ingest", "another job"):
            pass
        with pytest.raises(LakeBusyError, match="another upkeep"), only(UPKEEP, lake, "another upkeep"):
            pass
    with only_job(lake, "ingest", "busy"):
        pass


def _errors(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    for each in kind.__subclasses__():
        yield each
        yield from _errors(each)


def test_every_public_error_of_the_upper_layers_has_an_exit_code() -> None:
    for command in COMMANDS:
        job_of(command)
    own = [each for each in _errors(Exception) if each.__module__.startswith("kafka_telemetry_lake.")]
    layers = {each.__name__: each for each in own if each.__module__.split(".")[1] != "udfs"}
    assert {"LakeBusyError", "QueryError", "BrokerError"} <= layers.keys()
    assert [name for name, each in layers.items() if not issubclass(each, TelemetryLakeError)] == []
