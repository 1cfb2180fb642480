"""Each script of `findings/` has the form that its README states."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "findings"
SCRIPTS = sorted(FOLDER.glob("*.sh"))
COMPARED = """diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen"""
# What installs or fetches, and what a pinned package looks like there.
UNPINNED = {
    r"pip\"? install (.*)": re.compile(r"['\"]?[\w.\[\],-]+==[\w.$]+['\"]?"),
    r"^ *jars lib (.*)": re.compile(r"\"?[\w.$]+:[\w.-]+:[\w.]+(:\w+)?\"?|\"\$\{wanted\[@\]\}\""),
    r"go get (.*)": re.compile(r"[\w./-]+@v[\w.-]+"),
}
MACHINE_PATH = re.compile(r"(?<![\w.$}/])/(home|root|Users|work|opt|srv|mnt|tmp|data)/\w+")


def script_named(name: str) -> str:
    return (FOLDER / name).read_text("utf-8")


def table_rows() -> dict[str, list[str]]:
    """Cells of the README's table, by script."""
    rows = re.findall(r"^\| `(\w+\.sh)` \| (.+) \|$", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE)
    return {name: cells.split(" | ") for name, cells in rows}


def packages(line: str) -> list[str]:
    """The packages that a line installs without an exact version."""
    for command, pinned in UNPINNED.items():
        if found := re.search(command, re.sub(r"\d?>.*", "", line)):
            words = [word for word in found[1].split() if not word.startswith("-")]
            return [word for word in words if not pinned.fullmatch(word)]
    return []


def test_the_readme_lists_each_script_once() -> None:
    assert list(table_rows()) == [script.name for script in SCRIPTS]
    assert all(len(cells) == 3 and all(cells) for cells in table_rows().values())
    assert {each.name for each in FOLDER.iterdir()} == {script.name for script in SCRIPTS} | {"README.md", "support"}


@pytest.mark.parametrize("name", [script.name for script in SCRIPTS])
def test_a_script_has_the_form(name: str) -> None:
    text = script_named(name)
    comment, code = text.split("\nset -euo pipefail\n")
    assert os.access(FOLDER / name, os.X_OK)
    assert all(line.startswith("#") for line in comment.splitlines())
    assert re.match(
        r"#!/bin/bash\n# [^\n]+\n#\n# Version: .*\d[\s\S]*\n# Behaviour: [\s\S]+\n# Right: [\s\S]+"
        r"\n# Output \(\d{4}-\d\d-\d\d\):\n(#   [^\n]+\n?)+\Z",
        comment,
    )
    assert code.startswith('script=$(realpath "$0")\nwork=$(mktemp -d)\n')
    assert 'rm -rf "$work"\' EXIT\ncd "$work"\n' in code
    assert code.endswith(f"\n{COMPARED}\n")
    assert MACHINE_PATH.findall(text) == []
    assert max(map(len, text.splitlines())) <= 160


@pytest.mark.parametrize("name", [script.name for script in SCRIPTS])
def test_a_script_installs_exact_versions_which_its_comment_names(name: str) -> None:
    comment, code = script_named(name).split("\nset -euo pipefail\n")
    lines = code.replace("\\\n", " ").splitlines()
    assert {line: packages(line) for line in lines if packages(line)} == {}
    stated = set(re.findall(r"\d+(?:\.\d+)+(?:[\w.-]*\w)?", table_rows()[name][0]))
    assert stated
    assert stated <= set(re.findall(r"\d+(?:\.\d+)+(?:[\w.-]*\w)?", comment))


def test_bash_can_parse_them() -> None:
    assert SCRIPTS
    for script in SCRIPTS:
        subprocess.run(["bash", "-n", script], check=True)


def test_what_counts_as_an_exact_version_and_as_a_machine_path() -> None:
    assert packages("venv/bin/pip install -q 'pyiceberg[sql-sqlite,pyarrow]==0.12.0' pyarrow==26.0.1") == []
    assert packages("venv/bin/pip install -q pyarrow duckdb~=2.0 2> warnings") == ["pyarrow", "duckdb~=2.0"]
    assert packages("jars lib org.slf4j:slf4j-api:1.7.36 org.slf4j:slf4j-api") == ["org.slf4j:slf4j-api"]
    assert packages("go get github.com/twmb/franz-go@latest x.org/y@v1.2.3") == ["github.com/twmb/franz-go@latest"]
    lines = "cd /home/someone", "file=/tmp/x", 'cd "$work/data/x"', "https://example.org/data/x"
    assert [bool(MACHINE_PATH.search(line)) for line in lines] == [True, True, False, False]
