"""`make install` refuses a Python, a Java or a variable of the environment that can't work, in one line each."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kafka_telemetry_lake.pipelines.runtime.jars import DEFAULT_LINE
from kafka_telemetry_lake.pipelines.runtime.java import LOWEST_JAVA, newest_java
from tools.matrix import PYTHONS

pytestmark = pytest.mark.lake

ROOT = Path(__file__).parents[3]
VARIABLES = ("JAVA_HOME", "JAVA_TOOL_OPTIONS", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PYTHONHOME")


def program(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def jdk(folder: Path, version: str) -> str:
    program(folder / "bin" / "java", f"echo 'Picked up X: version \"8\"' >&2; echo 'openjdk version \"{version}\"' >&2")
    return str(folder)


def said(root: Path = ROOT, **environment: str) -> list[str]:
    """What it complains about; checks the exit code."""
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        ["sh", str(root / "tools" / "check-machine")], env={**clean, "PYTHON": sys.executable, **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == bool(done.stderr)
    assert all(line.startswith("make install: ") for line in done.stderr.splitlines())
    return [line.removeprefix("make install: ") for line in done.stderr.splitlines()]


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("1.8.0_392", "Java 8 is too old"), ("16.0.2", "Java 16 is too old"), ("17.0.15", None), ("21", None),
        ("22.0.1", "Java 22 is too new for Spark 4.0"), ("25.0.3", "Java 25 is too new for Spark 4.0"),
    ],
)  # fmt: skip
def test_both_ends_of_java(version: str, problem: str | None, tmp_path: Path) -> None:
    lines = said(JAVA_HOME=jdk(tmp_path / "a jdk", version))
    assert [line.partition(": ")[0] for line in lines] == ([] if problem is None else [problem])
    assert all(re.search(r": install a JDK 17 or 21( \(.+\))?, or set JAVA_HOME to one", line) for line in lines)


@pytest.mark.parametrize(
    ("version", "problem"), [("310", "too old"), ("311", None), ("313", None), ("314", "too new for libraries")]
)
def test_both_ends_of_python(version: str, problem: str | None, tmp_path: Path) -> None:
    python = program(
        tmp_path / "python", f'case "$*" in *version_info*) echo {version};; --version) echo Python {version};; esac'
    )
    lines = said(PYTHON=str(python), JAVA_HOME=jdk(tmp_path / "jdk", "17"))
    assert len(lines) == (problem is not None)
    assert all(problem in line and "make PYTHON=python3.12 install" in line for line in lines if problem)


def test_variables_in_the_way(tmp_path: Path) -> None:
    home = jdk(tmp_path / "jdk", "17")
    assert said(JAVA_HOME=home, PIP_USER="0", PIP_TARGET="") == []
    assert said(JAVA_HOME=home, PIP_USER="1", PIP_TARGET="/x") == [
        "PIP_TARGET=/x is set: unset it",
        "PIP_USER=1 is set: unset it",
    ]
    python = program(tmp_path / "python", "exit 1")
    (line,) = said(JAVA_HOME=home, PYTHON=str(python), PYTHONHOME="/x")
    assert line.startswith(f"{python} doesn't start (PYTHONHOME=/x is set): install Python 3.11")
    program(tmp_path / "jdk" / "bin" / "java", "echo Unrecognized option: -Xx >&2; exit 1")
    (line,) = said(JAVA_HOME=home, JAVA_TOOL_OPTIONS="-Xx")
    assert "says no version but: Unrecognized option: -Xx: unset JAVA_TOOL_OPTIONS=-Xx, or install a JDK" in line


@pytest.mark.parametrize(
    ("installs", "way"),
    [("apt-get", " (apt install default-jdk-headless)"), ("dnf", " (dnf install java-21-openjdk-devel)"), ("true", "")],
)
def test_without_java_one_is_fetched_and_where_it_is_said_to_be_there_must_be_one(
    installs: str, way: str, tmp_path: Path
) -> None:
    for each in ("sh", "uname", "grep", "sed", "head"):
        (tmp_path / each).symlink_to(shutil.which(each) or each)
    program(tmp_path / installs, "")
    assert said(PATH=str(tmp_path)) == []
    assert said(PATH=str(tmp_path), JAVA_HOME="/none") == [
        f"no Java found at '/none/bin/java': install a JDK 17 or 21{way}, or set JAVA_HOME to one, or unset it: where "
        "no Java is found, one is fetched"
    ]


def test_text_files_in_place_of_links(tmp_path: Path) -> None:
    """As a zip of the sources leaves them; the line has what mends it."""
    links = [each.name for each in (ROOT / "kafka_telemetry_lake").iterdir() if each.is_symlink()]
    (tmp_path / "kafka_telemetry_lake").mkdir()
    for name in links:
        (tmp_path / name).mkdir()
        (tmp_path / "kafka_telemetry_lake" / name).write_text(f"../{name}")
    (tmp_path / "tools").mkdir()
    shutil.copy2(ROOT / "tools" / "check-machine", tmp_path / "tools")
    home = jdk(tmp_path / "jdk", "17")
    [line] = said(tmp_path, JAVA_HOME=home)
    assert line.startswith("kafka_telemetry_lake has text files in place of links")
    [remedy] = re.findall(r"run \((.+)\), or clone", line)
    subprocess.run(remedy, shell=True, cwd=tmp_path, check=True)
    assert all((tmp_path / "kafka_telemetry_lake" / name).is_dir() for name in links)
    assert said(tmp_path, JAVA_HOME=home) == []


def test_a_tree_without_links_has_the_same_files(tmp_path: Path) -> None:
    subprocess.run(["make", "--silent", "tree", f"TREE={tmp_path / 'tree'}"], cwd=ROOT, check=True)
    copy = tmp_path / "tree" / "kafka_telemetry_lake"
    assert not [each for each in copy.rglob("*") if each.is_symlink() or each.name == "__pycache__"]
    assert (copy / "udfs" / "errors.py").read_text("utf-8") == (ROOT / "udfs" / "errors.py").read_text("utf-8")


def test_every_place_names_the_same_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    listed = [each.rpartition(" ")[2] for each in project["classifiers"] if ":: Python ::" in each]
    script = (ROOT / "tools" / "check-machine").read_text("utf-8")
    oldest, newest = (int(PYTHONS[each].partition(".")[2]) for each in (0, -1))
    assert tuple(listed) == PYTHONS
    assert project["requires-python"] == f">=3.{oldest},<3.{newest + 1}"
    assert re.findall(r'"\$version" -(?:lt|gt) (\d+)', script) == [
        f"3{oldest}", f"3{newest}", str(LOWEST_JAVA), str(newest_java(DEFAULT_LINE)),
    ]  # fmt: skip
