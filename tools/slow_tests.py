"""Chooses the slow tests that CI runs: those of what a change touches, and an eighth of the others, in turn.

    python -m tools.slow_tests          what CI runs: `make test-slow-ci`
    python -m tools.slow_tests --all    each of them: `make test-slow`
    python -m tools.slow_tests --passed note that all have passed at this commit, as `make test-slow` ends

It prints each chosen file with the reason, and writes a file of paths for each lane into `.slow`, which
`pytest @.slow/LANE` reads. A test file is touched if one of its slow tests uses a top-level name that the change
defines otherwise (`tools/code_links.py`), or a name whose strings have the name of another file that was changed.
Files that build or configure the tests touch all.

What the change is compared with: the commit in the environment's CI_BASE; else where it left origin/main; else the
commit in `tests/slow_passed`, at which all slow tests passed; else the last commit that is a day older than HEAD.
The turn of the eighths is CI_RUN, the number of the run, with which all have their turn in eight runs; else the number
of commits, with which each eighth has its turn once in eight commits.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from tools.code_links import PREFIX, Links, Module, Name, module_of, strings

CODE = ("udfs/", "pipelines/", "sandbox/", "jobs/", "dashboards/", "benchmarks/", "tests/", "tools/")
BUILD = re.compile(r"pyproject\.toml|.*\.lock|Makefile|tools/(install\.py|check-machine)|tests/conftest\.py|\.ci/.*")
PASSED = Path("tests/slow_passed")
EIGHTHS = 8
LANES = ("property", "kafka", "kafka-2", "receiver", "spark", "spark-2", "dashboard", "unit", "unit-2")
# Its fast tests run with more examples among the slow ones.
PROPERTIES = "tests/unit/conversion/test_property_engine.py"


def lane_of(path: str) -> str:
    """Lanes run beside each other: parts that take about as long, so that all cores are busy to the end."""
    if path == PROPERTIES:
        return "property"
    if path.startswith("tests/kafka/"):
        if re.match(r"tests/kafka/test_(receiver|hostile|ingest)", path):
            return "receiver"
        return "kafka-2" if re.match(r"tests/kafka/test_[l-z]", path) else "kafka"
    if path.startswith("tests/spark/"):
        return "spark-2" if re.match(r"tests/spark/test_[s-z]", path) else "spark"
    if path.startswith("tests/dashboard/"):
        return "dashboard"  # alone: a browser leaves an event loop, beside which asyncio has none
    return "unit-2" if re.match(r"tests/unit/[j-z]", path) else "unit"


def slow_tests(module: Module) -> set[str]:
    """The names of a test file's slow tests that are no soaks; "*" where marks stand at constants or fixtures."""
    if "slow" in (of_all := _marks(module, "pytestmark")):
        return {"*"} if "soak" not in of_all else set()
    tests = {name for name in module.defined if "slow" in (marks := _marks(module, name)) and "soak" not in marks}
    return {"*"} if any(not name.startswith("test_") for name in tests) else tests


def _marks(module: Module, name: str) -> set[str]:
    """The marks in a function's decorators, or anywhere in an assignment; `soak` only if all parameters have it."""
    found = set[str]()
    for node in module.defined.get(name, ()):
        for part in getattr(node, "decorator_list", [node] if hasattr(node, "value") else []):
            text = ast.unparse(part)
            names = {each.attr for each in ast.walk(part) if isinstance(each, ast.Attribute)}
            found |= names & {"slow"} | ({"soak"} if name == "pytestmark" and "soak" in names else set())
            found |= {"soak"} if text == "pytest.mark.soak" else set()
    return found


def eighth(path: str) -> int:
    return zlib.crc32(path.encode()) % EIGHTHS


@dataclass(frozen=True)
class Change:
    """What was changed: Python's top-level names, other files; `everything` is the build file that touches all."""

    names: frozenset[Name] = frozenset()
    files: frozenset[str] = frozenset()
    everything: str = ""

    @classmethod
    def of(cls, before: Mapping[str, str], after: Mapping[str, str]) -> Change:
        """By path the content of the files that differ, without those that aren't there."""
        paths = before.keys() | after.keys()
        names = set[Name]()
        for path in paths:
            if path.endswith(".py") and path.startswith(CODE):
                old, new = (Module.of(path, each.get(path, "")) for each in (before, after))
                names |= {(module_of(path), name) for name in new.differing(old)}
        others = frozenset(path for path in paths if not path.endswith(".py"))
        return cls(frozenset(names), others, min(filter(BUILD.fullmatch, paths), default=""))


class Choice:
    """Which slow test files to run, each with its reason; `sources` are Python files, `sql` the other files of sql/."""

    def __init__(self, sources: Mapping[str, str], sql: Mapping[str, str]) -> None:
        self._links, self._sql = Links(sources), sql
        self.starts: dict[str, set[str]] = {}
        for path in sorted(sources):
            if path.startswith("tests/") and PurePosixPath(path).name.startswith("test_"):
                names = {"*"} if path == PROPERTIES else slow_tests(self._links.modules[module_of(path)])
                self.starts |= {path: names} if names else {}

    def touched(self, change: Change) -> dict[str, str]:
        """Reason by path."""
        if change.everything:
            return dict.fromkeys(self.starts, f"{change.everything} was changed: all run")
        because = {name: f"{name[0]}.{name[1]}".rstrip(".") for name in change.names}
        for file in sorted(change.files):
            because = dict.fromkeys(self.naming(file), file) | because
        reasons = {path: self._reason(module_of(path), names, because) for path, names in self.starts.items()}
        conftests = {module for module, _ in change.names if module.endswith("conftest")}
        for path in self.starts:
            for above in conftests.intersection(self._links.conftests(module_of(path))):
                reasons[path] = f"{above} was changed"
        return {path: reason for path, reason in reasons.items() if reason}

    def _reason(self, module: str, names: set[str], because: Mapping[Name, str]) -> str:
        for start in sorted(names):
            met = self._links.reached((module, start))
            for found in met:
                if found in because:
                    steps, at = 0, found
                    while met[at] != at:
                        steps, at = steps + 1, met[at]
                    return f"{start.replace('*', 'it')} uses {because[found]}, links: {steps}"
        return ""

    def naming(self, file: str) -> set[Name]:
        """The names whose strings have this file's name: its view's, if it is one of `sql`, or else its folder's."""
        path = PurePosixPath(file)
        words = {path.name}
        if path.suffix == ".java":
            words.add(path.stem)
        if path.parts[0] == "sql":
            return self._with(self._views(path.stem) | words) | self._beside_loaders()
        # Product code names pages only to its users.
        found = self._with(words, "tests." if path.suffix == ".md" else "")
        # A benchmark's figures are read by their names alone: `runs` is a word of many tests.
        for folder in path.parts[-2::-1] if not found and path.parts[0] != "benchmarks" else ():
            if found := self._with({folder}, "tests.", "sandbox.") | self._with({f"{PREFIX}{folder}"}):
                break
        return found

    def _views(self, stem: str) -> set[str]:
        """A view and those that read it, and those that read these; the file of a view may begin with ``_``."""
        found, before = {stem, stem.removeprefix("_")}, set[str]()
        while found != before:
            before = set(found)
            readers = {
                PurePosixPath(path).stem
                for path, text in self._sql.items()
                if not before.isdisjoint(re.findall(r"\w+", text))
            }
            found |= readers | {reader.removeprefix("_") for reader in readers}
        return found

    def _with(self, words: set[str], *modules: str) -> set[Name]:
        """The names in modules that begin so whose strings have one of these words."""
        return {
            name for name, own in self._words.items() if not own.isdisjoint(words) and name[0].startswith(modules or "")
        }

    @cached_property
    def _words(self) -> dict[Name, set[str]]:
        """Words, names of files with their suffix, and dotted names in each name's strings."""
        return {
            (dotted, name): set(re.findall(r"[\w.-]*\w", text)) | set(re.findall(r"\w+", text))
            for dotted, module in self._links.modules.items()
            for name, nodes in [*module.defined.items(), ("", module.other)]
            for text in [" ".join(strings(nodes))]
        }

    def _beside_loaders(self) -> set[Name]:
        """The names of tests that use a module which loads all files of `sql`."""
        loaders = {name[0] for name in self._with({f"{PREFIX}sql"})}
        return {
            name
            for name in self._links.names
            if name[0].startswith("tests.") and any(each in loaders for each, _ in self._links.uses(name))
        }


def git(*argv: str) -> str:
    """What git prints, or nothing where it fails."""
    return subprocess.run(["git", *argv], capture_output=True, text=True, check=False, errors="replace").stdout


def base() -> tuple[str, str]:
    """The commit that the change is compared with, if there is one, and how it was found."""
    if (given := os.environ.get("CI_BASE")) and (commit := git("rev-parse", "--verify", f"{given}^{{commit}}").strip()):
        return commit, "CI_BASE"
    head = git("rev-parse", "HEAD").strip()
    if (commit := git("merge-base", "HEAD", "origin/main").strip()) and commit != head:
        return commit, "origin/main"
    passed = PASSED.read_text("utf-8").strip() if PASSED.is_file() else ""
    if passed and git("merge-base", passed, "HEAD").strip() == passed:
        return passed, f"{PASSED}: all slow tests passed"
    day = int(git("log", "-1", "--format=%ct") or 0) - 86400
    return git("rev-list", "-1", f"--before={day}", "HEAD").strip(), "the last commit that is a day older"


def change_since(commit: str) -> Change:
    """What the working tree has otherwise than a commit."""
    paths = git("diff", "--name-only", "--no-renames", commit).split("\n")
    paths += git("ls-files", "--others", "--exclude-standard").split("\n")
    before = {path: git("show", f"{commit}:{path}") for path in filter(None, paths)}
    after = {path: Path(path).read_text("utf-8", "replace") for path in before if Path(path).is_file()}
    return Change.of({path: text for path, text in before.items() if text}, after)


def note_passed() -> int:
    """Write `tests/slow_passed`, to be committed: the commit whose files are those that were tested."""
    if git("status", "--porcelain").strip():
        print(f"{PASSED} is left as it is: not all files are those of a commit")
    else:
        PASSED.write_text(git("rev-parse", "HEAD"), "utf-8")
        print(f"{PASSED} names this commit now: commit it, and CI compares with it")
    return 0


def main(argv: list[str]) -> int:
    """Print the choice and write the lanes' files."""
    if "--passed" in argv:
        return note_passed()
    tracked = git("ls-files", "--cached", "--others", "--exclude-standard").split("\n")
    paths = [path for path in tracked if Path(path).is_file()]
    choice = Choice(
        {path: Path(path).read_text("utf-8") for path in paths if path.startswith(CODE) and path.endswith(".py")},
        {path: Path(path).read_text("utf-8") for path in paths if path.startswith("sql/")},
    )
    turn = int(os.environ.get("CI_RUN") or git("rev-list", "--count", "HEAD") or 0) % EIGHTHS
    if "--all" in argv:
        chosen = dict.fromkeys(choice.starts, "all run")
    else:
        commit, how = base()
        chosen = choice.touched(change_since(commit)) if commit else {}
        print(f"changed since {commit[:12]} ({how})" if commit else "no commit is known to compare with")
        chosen |= {path: f"eighth {turn + 1}" for path in choice.starts if eighth(path) == turn and path not in chosen}
    folder = Path(".slow")
    folder.mkdir(exist_ok=True)
    for lane in LANES:
        own = sorted(path for path in chosen if lane_of(path) == lane)
        (folder / lane).write_text("".join(f"{path}\n" for path in own), "utf-8")
        if "--all" not in argv:
            print("".join(f"{lane:9} {path}: {chosen[path]}\n" for path in own), end="")
    left = [path for path in choice.starts if path not in chosen]
    left_out = f"{len(left)} of {len(choice.starts)} slow test files left out" + ": " * bool(left) + " ".join(left)
    (folder / "left-out").write_text(f"{left_out}\n", "utf-8")
    print(left_out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
