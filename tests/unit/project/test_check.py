"""`make check`: which files ruff reads, what happens without mypy's daemon, and what is printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import IO

import pytest

from tools import check
from tools.slow_tests import git

Ran = list[tuple[str, ...]]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> tuple[Ran, dict[str, int]]:
    """The commands that are run, in place of them; by the name of a program its exit code, which is 0 otherwise."""
    commands: Ran = []
    codes: dict[str, int] = {}

    def run(*argv: str | Path, output: IO[bytes] | None = None) -> tuple[int, float]:
        name = Path(argv[0]).name
        commands.append((name, *map(str, argv[1:])))
        if output is not None:
            output.write(f"said by {name}\n".encode())
        return codes.get(name, 0), 1.5

    monkeypatch.setattr(check, "run", run)
    monkeypatch.setenv("TEST_LANE", "")
    monkeypatch.setattr(check, "changed", lambda: ["udfs/a.py"])
    return commands, codes


def test_ruff_reads_what_differs_from_main_and_new_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    git("init", "-q", "-b", "main")
    for name in ("same.py", "changed.py", "gone.py"):
        (tmp_path / name).write_text("A = 1\n")
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    git("add", ".")
    git(*who, "commit", "-q", "-m", "x")
    git("checkout", "-q", "-b", "work")
    (tmp_path / "committed.py").write_text("B = 1\n")
    git("add", ".")
    git(*who, "commit", "-q", "-m", "y")
    (tmp_path / "changed.py").write_text("A = 2\n")
    (tmp_path / "gone.py").unlink()
    (tmp_path / "new.py").write_text("")
    (tmp_path / "new.txt").write_text("")
    assert check.changed() == ["changed.py", "committed.py", "new.py"]


def test_modules_of_whole_lakes_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "tests" / "unit" / "a"
    folder.mkdir(parents=True)
    (folder / "test_one.py").write_text("import pytest\npytestmark = pytest.mark.lake  # it starts commands\n")
    (folder / "test_two.py").write_text("import pytest\n@pytest.mark.lake\ndef test_a(): ...\n")
    assert check.without_lakes() == ["--ignore=tests/unit/a/test_one.py"]


def test_all_pass(ran: tuple[Ran, dict[str, int]], capsys: pytest.CaptureFixture[str]) -> None:
    commands, _ = ran
    assert check.main([]) == 0
    assert {each[0] for each in commands} == {"ruff", "dmypy", "pytest"}
    (tests,) = [each for each in commands if each[0] == "pytest"]
    assert tests[: 2 + len(check.TESTS)] == ("pytest", "--ff", *check.TESTS)
    assert ("ruff", "format", "--check", "udfs/a.py") in commands
    said = re.sub(r" +\d s", " 0 s", capsys.readouterr().out)
    assert said == "tests 0 s    1.5 CPU-s  ok\nruff 0 s    3.0 CPU-s  ok\ntypes 0 s    1.5 CPU-s  ok\n"


@pytest.mark.parametrize(("program", "step"), [("ruff", "ruff"), ("dmypy", "types"), ("pytest", "tests")])
def test_what_fails_says_so(
    ran: tuple[Ran, dict[str, int]], capsys: pytest.CaptureFixture[str], program: str, step: str
) -> None:
    ran[1][program] = 1
    assert check.main(["tests/unit/otlp"]) == 1
    said = capsys.readouterr().out
    assert re.search(rf"^{step} .* FAILED$", said, re.MULTILINE)
    assert said.count("FAILED") == 1
    assert (f"said by {program}" in said) == (program != "pytest")  # which prints while it runs


@pytest.mark.parametrize(("mypy", "result"), [(0, "ok"), (1, "FAILED")])
def test_mypy_runs_by_itself_where_its_daemon_fails(
    ran: tuple[Ran, dict[str, int]], capsys: pytest.CaptureFixture[str], mypy: int, result: str
) -> None:
    commands, codes = ran
    codes |= {"dmypy": 2, "mypy": mypy}
    assert check.main([]) == mypy
    assert ("mypy",) in commands
    assert re.search(rf"^types .* 3\.0 CPU-s  {result}$", capsys.readouterr().out, re.MULTILINE)
