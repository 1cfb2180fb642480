"""The wheel, built and installed in a clean environment without its extras: commands, a query, and what they miss."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from kafka_telemetry_lake.jobs.commands import COMMANDS
from tests.unit.quality.test_quality import outcome, push, write

FOREIGN = ("dashboards", "jobs", "pipelines", "sandbox", "sql", "udfs")
ROOT = Path(__file__).parents[3]


def run(*command: str | Path, cwd: Path) -> tuple[int, str, str]:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # the wheel, not the checkout
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=clean, capture_output=True, text=True, check=False, timeout=400
    )
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
    # The lock's versions without its hashes: with hashes pip refuses a wheel that has none.
    pinned = re.findall(r"^[^\s#]+==[^\s\\]+", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE)
    (folder / "versions.txt").write_text("\n".join(pinned))
    pip = (folder / "venv" / "bin" / "pip", "install", "--quiet", "-c", folder / "versions.txt", wheel)
    code, _, error = run(*pip, cwd=folder)
    assert code == 0, error
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    assert not [name for name in FOREIGN if (site / name).exists()], "the wheel installs more than one name"
    for name in FOREIGN:  # on a shared cluster others have packages of such names
        (site / name).mkdir()
        (site / name / "__init__.py").write_text(f"raise ImportError('the {name} of another project')\n")
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
    assert "maintain: pushes: no days dropped, 0 files compacted, 0 files deleted" in out

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
