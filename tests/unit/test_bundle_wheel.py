"""The wheel, built and installed in a clean environment without its extras: commands, a query, and what they miss."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from jobs.cli import COMMANDS
from tests.unit.test_quality import outcome, push, write

ROOT = Path(__file__).parent.parent.parent


def run(*command: str | Path, cwd: Path) -> tuple[int, str, str]:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False, timeout=400)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the clean environment's commands."""
    folder = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    code, _, error = run(*build, cwd=folder)
    assert code == 0, error
    (wheel,) = folder.glob("kafka_telemetry_lake-*.whl")
    venv.create(folder / "venv", with_pip=True)
    pip = (folder / "venv" / "bin" / "pip", "install", "--quiet", "-c", ROOT / "requirements.lock", wheel)
    code, _, error = run(*pip, cwd=folder)
    assert code == 0, error
    return folder / "venv" / "bin"


@pytest.mark.slow
def test_the_wheel_without_extras(installed: Path, tmp_path: Path) -> None:
    command = installed / "telemetry-lake"
    for name in COMMANDS:
        code, out, error = run(command, name, "--help", cwd=tmp_path)
        assert (code, error) == (0, ""), name
        assert f"usage: telemetry-lake {name}" in out

    lake = tmp_path / "lake"
    write(lake, pushes=[push(0), push(1)], push_outcomes=[outcome(0), outcome(1)])
    sql = "SELECT client_id, count(*) AS pushes FROM pushes GROUP BY 1"
    assert run(command, "query", "--lake", lake, "--format", "csv", sql, cwd=tmp_path) == (
        0, "client_id,pushes\norders,2\n", "",
    )  # fmt: skip
    code, out, _ = run(
        command, "query", "--lake", lake, "--format", "csv", "SELECT count(*) FROM findings", cwd=tmp_path
    )
    assert (code, out.splitlines()[-1]) == (0, "0")  # a view: sql/ is in the wheel

    code, out, error = run(command, "maintain", "--lake", lake, cwd=tmp_path)
    assert (code, error) == (0, ""), error
    assert "maintain: pushes: no day dropped, 0 files compacted, 0 deleted" in out

    (tmp_path / "in").mkdir()
    for arguments, extra in {
        ("ingest", "--source", "files:in", "--lake", "new"): "spark",
        ("quality", "--lake", str(lake)): "quality",
        ("dashboard", "--lake", str(lake)): "dashboard",
    }.items():
        code, _, error = run(command, *arguments, cwd=tmp_path)
        assert (code, len(error.splitlines())) == (2, 1), error
        assert f"pip install 'kafka-telemetry-lake[{extra}]'" in error
    code, _, error = run(installed / "telemetry-lake-task", "quality", "--lake", lake, cwd=tmp_path)
    assert (code, "kafka-telemetry-lake[quality]" in error) == (2, True)
