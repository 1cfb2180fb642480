"""Ruff, types and the fast tests at the same time: `make check`, for each commit. Prints where its seconds went.

Ruff reads what differs from main. Types are checked by mypy's daemon, which reads what has changed since it was last
asked and ends after an hour; where it fails without an answer, mypy runs by itself. Tests that failed last time come
first. Arguments are pytest's, in place of all fast tests. CI lints everything: `make lint`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from tools.slow_tests import git

BIN = Path(sys.executable).parent
TESTS = ("tests/unit", "-m", "not slow and not lake", "-n", "2")
LAKE = re.compile(r"^pytestmark = .*\bpytest\.mark\.lake\b", re.MULTILINE)
DAEMON = Path(".dmypy.json")
ANSWERS = (0, 1)  # of mypy: nothing found, or errors in what it read; anything else is the daemon's own failure


def run(*argv: str | Path, output: IO[bytes] | None = None) -> tuple[int, float]:
    """The exit code and the CPU seconds of a command and of its children that have ended."""
    with subprocess.Popen(argv, stdout=output, stderr=output) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime


def changed() -> list[str]:
    """Python files that differ from where this branch left main, those that git doesn't know yet included."""
    main = next(filter(None, (git("merge-base", "HEAD", each).strip() for each in ("origin/main", "main"))), "HEAD")
    paths = git("diff", "--name-only", "--diff-filter=d", main, "--", "*.py").split("\n")
    return sorted({*paths, *git("ls-files", "--others", "--exclude-standard", "--", "*.py").split("\n")} - {""})


def ruff(output: IO[bytes]) -> tuple[int, float]:
    files = changed()
    if not files:
        return 0, 0.0
    found = run(BIN / "ruff", "check", *files, output=output)
    formatted = run(BIN / "ruff", "format", "--check", *files, output=output)
    return max(found[0], formatted[0]), found[1] + formatted[1]


def without_lakes() -> list[str]:
    """Options by which pytest doesn't import modules of which it would run nothing: those that are marked `lake`."""
    files = sorted(Path(TESTS[0]).rglob("test_*.py"))
    return [f"--ignore={file}" for file in files if LAKE.search(file.read_text("utf-8"))]


def daemon_cpu_s() -> float:
    """CPU seconds that mypy's daemon has taken so far; 0 if there is none."""
    try:
        fields = Path(f"/proc/{json.loads(DAEMON.read_text())['pid']}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError, KeyError):
        return 0.0
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def types(output: IO[bytes]) -> tuple[int, float]:
    before = daemon_cpu_s()
    code, seconds = run(BIN / "dmypy", "--status-file", DAEMON, "run", "--timeout", "3600", output=output)
    seconds += max(0.0, daemon_cpu_s() - before)
    if code in ANSWERS:
        return code, seconds
    code, more = run(BIN / "mypy", output=output)
    return code, seconds + more


def main(argv: list[str]) -> int:
    """Run the three, print what failed and what each took; returns 1 if one failed."""
    began = time.monotonic()
    with ThreadPoolExecutor(2) as pool, tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as typed:

        def timed(step: str, output: IO[bytes]) -> tuple[int, float, float]:
            code, seconds = {"ruff": ruff, "types": types}[step](output)
            return code, seconds, time.monotonic() - began

        steps = {"ruff": pool.submit(timed, "ruff", said), "types": pool.submit(timed, "types", typed)}
        os.environ["TEST_LANE"] = "check"  # so that pytest says which files took them
        code, seconds = run(BIN / "pytest", "--ff", *(argv or [*TESTS, *without_lakes()]))
        took = {"tests": (code, seconds, time.monotonic() - began)}
        for (step, future), output in zip(steps.items(), (said, typed), strict=True):
            took[step] = future.result()
            output.seek(0)
            if took[step][0]:
                print(output.read().decode(errors="replace"), end="")
    for step, (code, seconds, wall) in took.items():
        print(f"{step:6} {wall:5.0f} s {seconds:6.1f} CPU-s  {'FAILED' if code else 'ok'}")
    return int(any(code for code, _, _ in took.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
