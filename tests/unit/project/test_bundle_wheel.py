"""The wheel and the sdist, built and installed as users do: in a clean environment without the extras, and by tools."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

from kafka_telemetry_lake.jobs.cli import COMMANDS
from tests.support.patience import PATIENCE_S
from tests.unit.quality.test_quality import outcome, push, write

FOREIGN = ("dashboards", "jobs", "pipelines", "sandbox", "sql", "udfs")
ROOT = Path(__file__).parents[3]
UV = Path(sys.executable).with_name("uv")
# It reads what packages ask for, where pip would fetch the packages.
DRY_RUN = (UV, "pip", "install", "--dry-run", "--quiet", "--python", sys.executable, "--target", "none")
VERSION = f"telemetry-lake {version('kafka-telemetry-lake')}\n"
HELP = """
import sys
from kafka_telemetry_lake.jobs import cli
for name in sys.argv[1:]:
    try:
        cli.main([name, "--help"])
    except SystemExit as end:
        assert end.code == 0, name
"""


@dataclass(frozen=True)
class Built:
    """What a release has of Python."""

    sdist: Path
    wheel: Path
    """built from the sdist"""
    constraints: Path
    """the lock's versions, without its hashes: with hashes pip refuses a wheel that has none"""


def run(*command: str | Path, cwd: Path, **variables: str) -> tuple[int, str, str]:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # the wheel, not the checkout
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=clean | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    return done.returncode, done.stdout, done.stderr


def build(*what: str | Path) -> None:
    code, _, error = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", *what, ROOT, cwd=ROOT)
    assert code == 0, error


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("built")
    build(folder)
    (sdist,) = folder.glob("kafka_telemetry_lake-*.tar.gz")
    (wheel,) = folder.glob("kafka_telemetry_lake-*.whl")
    pinned = re.findall(r"^[^\s#]+==[^\s\\]+", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE)
    constraints = folder / "versions.txt"
    constraints.write_text("\n".join(pinned))
    return Built(sdist, wheel, constraints)


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands in the clean environment that pipx makes."""
    folder = tmp_path_factory.mktemp("wheel")
    homes = {f"PIPX_{name}": str(folder / name) for name in ("HOME", "BIN_DIR", "MAN_DIR")}
    pip = f"--quiet --no-compile --constraint {built.constraints}"
    pipx = (sys.executable, "-m", "pipx", "install", "--python", sys.executable, "--pip-args", pip, built.wheel)
    code, _, error = run(*pipx, cwd=folder, PIPX_DEFAULT_BACKEND="pip", **homes)
    assert code == 0, error
    environment = folder / "HOME" / "venvs" / "kafka-telemetry-lake"
    (site,) = (environment / "lib").glob("python*/site-packages")
    assert not [name for name in FOREIGN if (site / name).exists()], "the wheel installs more than one name"
    for name in FOREIGN:  # on a shared cluster others have packages of such names
        (site / name).mkdir()
        (site / name / "__init__.py").write_text(f"raise ImportError('the {name} of another project')\n")
    return environment / "bin"


@pytest.mark.slow
def test_the_sdist_has_all_that_the_wheel_of_a_checkout_has(built: Built, tmp_path: Path) -> None:
    """The package's folders are links, which a builder may follow twice, or not at all."""
    build(tmp_path, "--wheel")
    (direct,) = tmp_path.glob("*.whl")
    assert direct.read_bytes() == built.wheel.read_bytes()
    with zipfile.ZipFile(direct) as checkout, zipfile.ZipFile(built.wheel) as wheel:
        files = {name: checkout.read(name) for name in checkout.namelist()}
        assert {name: wheel.read(name) for name in wheel.namelist()} == files
    sources = {
        f"kafka_telemetry_lake/{path.relative_to(ROOT)}"
        for layer in FOREIGN
        for path in (ROOT / layer).rglob("*")
        if path.suffix in (".py", ".sql", ".sha256", ".java", ".parquet") and "__pycache__" not in path.parts
    }
    assert sources <= files.keys()
    with tarfile.open(built.sdist) as packed:
        assert not [member.name for member in packed if not member.isfile()]
        outside = {member.name.partition("/")[2] for member in packed if "/kafka_telemetry_lake/" not in member.name}
    conf = {f"conf/{path.name}" for path in (ROOT / "conf").iterdir()}
    assert outside == {*conf, ".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}


@pytest.mark.slow
def test_two_builds_are_the_same_bytes(built: Built, tmp_path: Path) -> None:
    build(tmp_path, "--sdist")
    assert (tmp_path / built.sdist.name).read_bytes() == built.sdist.read_bytes()


@pytest.mark.slow
def test_pipx_and_uvx_install_it(built: Built, installed: Path, tmp_path: Path) -> None:
    (command,) = installed.parents[3].glob("BIN_DIR/telemetry-lake")
    assert run(command, "--version", cwd=tmp_path) == (0, VERSION, "")
    uvx = (UV.with_name("uvx"), "--quiet", "--constraints", built.constraints, "--from", built.sdist)
    assert run(*uvx, "telemetry-lake", "--version", cwd=tmp_path) == (0, VERSION, "")


@pytest.mark.slow
def test_the_extras_fit_together(built: Built, tmp_path: Path) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        (name,) = [each for each in wheel.namelist() if each.endswith(".dist-info/METADATA")]
        extras = email.message_from_bytes(wheel.read(name)).get_all("Provides-Extra")
    other_sparks = ["spark-4-1", "spark-4-2"]  # in place of `spark`: `make test-matrix` installs them
    assert extras == [
        "dashboard", "demo", "dev", "docs", "iceberg", "java", "mcp", "notify", "quality", "readers", "spark",
        *other_sparks,
    ]  # fmt: skip
    together = [extra for extra in extras if extra not in other_sparks]
    all_of_them = f"{built.wheel}[{','.join(together)}]"
    code, _, error = run(*DRY_RUN, "-c", built.constraints, all_of_them, cwd=tmp_path)
    assert code == 0, error


@pytest.mark.slow
def test_the_oldest_python_installs_the_lock(built: Built, tmp_path: Path) -> None:
    """A package may drop a patch release of Python that Linux distributions still have."""
    asked = [line for line in built.constraints.read_text().splitlines() if not line.startswith("pyspark==")]
    requirements = tmp_path / "requirements.txt"  # without pyspark, which is a source archive
    requirements.write_text("\n".join(asked))
    oldest = ("--no-deps", "--python-version", "3.11.0", "--only-binary=:all:")
    code, _, error = run(*DRY_RUN, *oldest, "-r", requirements, cwd=tmp_path)
    assert code == 0, error[-2000:]


@pytest.mark.slow
def test_the_wheel_without_extras(installed: Path, tmp_path: Path) -> None:
    command = installed / "telemetry-lake"
    assert run(command, "--version", cwd=tmp_path) == (0, VERSION, "")
    code, out, error = run(installed / "python", "-c", HELP, *COMMANDS, cwd=tmp_path)
    assert (code, error) == (0, "")
    assert [name for name in COMMANDS if f"usage: telemetry-lake {name} " not in out] == []

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
        ("notify", "--lake", str(lake), "--notify", "notify.yml"): "notify",
    }.items():
        code, _, error = run(command, *arguments, cwd=tmp_path)
        assert (code, len(error.splitlines())) == (2, 1), error
        assert f"pip install 'kafka-telemetry-lake[{extra}]'" in error
    code, _, error = run(installed / "telemetry-lake-task", "quality", "--lake", lake, cwd=tmp_path)
    assert (code, "kafka-telemetry-lake[quality]" in error) == (2, True)
