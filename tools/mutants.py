"""Puts mended faults back, one at a time, and sees tests fail: `make mutants`, or `python -m tools.mutants NAME...`.

`tests/mutants.toml` has for each fault a name, the file, the exact text there, what stands in its place in the mutant,
and the tests that must fail then, each of them. Copies of the working tree are changed, never the tree itself. First
all these tests have to pass as things are. Prints each mutant as caught, survived or broken (a test couldn't run), and
returns 1 unless all are caught.

The tests run in forks of this process, which has imported what most of them need, and without numba: loops that it
would compile for half a minute run as plain Python.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.abc import MetaPathFinder
from operator import itemgetter
from pathlib import Path

import pytest

from tools.slow_tests import git

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "tests" / "mutants.toml"
AT_ONCE = 2
IMPORTED = ("hypothesis", "numpy", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "duckdb", "deltalake",
            "sqlglot", "pydantic_settings", "yaml", "opentelemetry.proto.metrics.v1.metrics_pb2")  # fmt: skip
OWN = ("kafka_telemetry_lake", "tests", "tools", "benchmarks")
# Seconds that a test waits for an event, which a mutant may have taken away: without one it may only be late.
PATIENCE_S = 60.0
RESULTS = ("survived", "caught", "broken")


@dataclass(frozen=True)
class Mutant:
    """A fault that was mended once."""

    name: str
    file: str
    text: str
    becomes: str
    tests: tuple[str, ...]

    def put_into(self, tree: Path) -> Callable[[], object]:
        """Change the file in a copy of the repository; returns what changes it back."""
        path = tree / self.file
        content = path.read_text("utf-8")
        if (count := content.count(self.text)) != 1:
            raise ValueError(f"{self.name}: its text occurs {count} times in {self.file}")
        path.write_text(content.replace(self.text, self.becomes), "utf-8")
        return lambda: path.write_text(content, "utf-8")


def mutants(file: Path = FILE) -> list[Mutant]:
    """Those of the file, in its order."""
    return [
        Mutant(name, each["file"], each["text"], each["becomes"], tuple(each["tests"]))
        for name, each in tomllib.loads(file.read_text("utf-8")).items()
    ]


@dataclass(eq=False)  # pytest keeps plugins in sets
class Failures:
    """Which tests failed in what they test: a plugin of pytest. An error in what a test prepares is none."""

    names: set[str] = field(default_factory=set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.when == "call":
            self.names.add(report.nodeid)

    def of(self, test: str) -> bool:
        """Whether a test, or one of its parameters, failed; of a file, one of its tests."""
        return any(name == test or name.startswith((f"{test}[", f"{test}::")) for name in self.names)


class WithoutNumba(MetaPathFinder):
    """Lets an import of numba fail as if it weren't installed."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "numba":
            raise ModuleNotFoundError(name=name)


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the files that git knows or would add, with this tree's jars."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder) / "tree"
        for name in git("-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
            if name and os.path.lexists(ROOT / name):
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
        (tree / ".jars").symlink_to(ROOT / ".jars")
        yield tree


def started(tree: Path, tests: Sequence[str], *, pass_all: bool = False) -> int:
    """Run tests in a fork of this process, in a tree; returns its id.

    Its exit code is a place in `RESULTS`, or with `pass_all` 0 if all tests passed. Its output is in `<tree>.log`.
    """
    if pid := os.fork():
        return pid
    code = RESULTS.index("broken")
    try:
        log = os.open(f"{tree}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(tree)
        for name in [name for name in sys.modules if name.partition(".")[0] in OWN]:
            del sys.modules[name]
        sys.meta_path.insert(0, WithoutNumba())
        sys.path.insert(0, str(tree))
        os.environ["PYTHONPATH"] = str(tree)
        os.environ.pop("TEST_LANE", None)
        if not pass_all:
            vars(import_module("kafka_telemetry_lake.sandbox.patience"))["PATIENCE_S"] = PATIENCE_S
        failures = Failures()
        result = pytest.main(["-p", "no:cacheprovider", "-n", "0", *tests], plugins=[failures])
        if pass_all:
            code = int(result)
        elif result in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            code = RESULTS.index("caught" if all(map(failures.of, tests)) else "survived")
        sys.stdout.flush()
    finally:
        os._exit(code)


def tried(asked: Sequence[Mutant], trees: list[Path]) -> Iterator[tuple[Mutant, str, float]]:
    """Each mutant with what becomes of it and its seconds, as many at a time as there are trees."""
    waiting, running = list(reversed(asked)), dict[int, tuple[Mutant, Path, Callable[[], object], float]]()
    while waiting or running:
        while waiting and trees:
            mutant, tree = waiting.pop(), trees.pop()
            back = mutant.put_into(tree)
            running[started(tree, mutant.tests)] = mutant, tree, back, time.monotonic()
        pid, status = next(filter(itemgetter(0), (os.waitpid(each, os.WNOHANG) for each in running)), (0, 0))
        if not pid:
            time.sleep(0.05)
            continue
        mutant, tree, back, began = running.pop(pid)
        back()
        trees.append(tree)
        code = os.waitstatus_to_exitcode(status)
        yield mutant, RESULTS[code] if 0 <= code < len(RESULTS) else "broken", time.monotonic() - began


def asked_for(names: Sequence[str]) -> list[Mutant]:
    """The mutants whose names contain one of these; all, if none is given."""
    found = [each for each in mutants() if not names or any(name in each.name for name in names)]
    if not found:
        sys.exit(f"no mutant is called so; there are: {', '.join(each.name for each in mutants())}")
    return found


def main(names: list[str]) -> int:
    """Try the mutants of these names."""
    asked = asked_for(names)
    for name in IMPORTED:
        import_module(name)
    with copied() as tree:
        pid = started(tree, sorted({test for each in asked for test in each.tests}), pass_all=True)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
            print(Path(f"{tree}.log").read_text("utf-8"), "without a mutant these tests must pass", sep="\n")
            return 1
        trees = [tree, *(tree.with_name(f"tree{number}") for number in range(1, AT_ONCE))]
        for other in trees[1:]:
            shutil.copytree(tree, other, symlinks=True)
        counts = dict.fromkeys(RESULTS, 0)
        for mutant, result, seconds in tried(asked, trees):
            counts[result] += 1
            print(f"{result:8} {seconds:4.0f} s  {mutant.name}", flush=True)
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    return int(counts["caught"] != len(asked))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
