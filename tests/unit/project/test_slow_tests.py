"""Which slow tests CI runs: what a change touches, by uses between the files' names, and an eighth of the others."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tools import slow_tests
from tools.code_links import Links, Module
from tools.slow_tests import EIGHTHS, LANES, PROPERTIES, Change, Choice, eighth, lane_of

ROOT = Path(__file__).parents[3]
SOURCES = {
    "udfs/rates.py": "LIMIT = 5\nOTHER = 6\ndef rate(): return LIMIT\ndef unused(): return OTHER\n",
    "pipelines/views.py": "FOLDER = 'kafka_telemetry_lake.sql'\ndef text(name): return FOLDER\n",
    "pipelines/lazy.py": "def later():\n    from kafka_telemetry_lake.udfs import rates\n    return rates.rate()\n",
    "jobs/ingest.py": "from kafka_telemetry_lake.udfs.rates import rate\ndef run_job(): rate('see docs/named.md')\n",
    "jobs/settings/ingest.py": "class IngestSettings: pass\n",
    "tests/conftest.py": "import pytest\n@pytest.fixture\ndef lake(): return make()\ndef make(): return 1\n",
    "tests/kafka/test_command.py": "import pytest\n@pytest.mark.slow\ndef test_it(lake): assert run('ingest', lake)\n",
    "tests/spark/test_lazy.py": (
        "import pytest\nfrom kafka_telemetry_lake.pipelines.lazy import later\n"
        "@pytest.mark.slow\ndef test_slow(): assert later()\ndef test_fast(): assert open('made.json')\n"
    ),
    "tests/unit/test_views.py": (
        "import pytest\nfrom kafka_telemetry_lake.pipelines.views import text\n"
        "pytestmark = pytest.mark.slow\ndef test_one(): assert text('lag')\n"
    ),
    "tests/unit/test_named.py": (
        "import pytest\n@pytest.mark.slow\ndef test_named(): assert ask('SELECT * FROM fleet_lag'), open('made.json')\n"
    ),
    "tests/unit/test_patched.py": (
        "import pytest\n@pytest.mark.slow\ndef test_it(patch): patch('kafka_telemetry_lake.udfs.rates.unused')\n"
    ),
    "tests/support/job.py": "def main(): ...\n",
    "tests/unit/test_started.py": (
        "import pytest\n@pytest.mark.slow\ndef test_it(start): start(['-m', 'tests.support.job', 'now'])\n"
    ),
    "tests/unit/test_soak.py": "pytestmark = [pytest.mark.slow, pytest.mark.soak]\ndef test_long(): ...\n",
}
SQL = {"sql/lag.sql": "SELECT 1 AS x", "sql/fleet_lag.sql": "SELECT * FROM lag"}


def touched(path: str, before: str, after: str) -> dict[str, str]:
    """By the end of a line of SOURCES: what is chosen, with its reason, if a text in a file becomes another."""
    content = SOURCES[path]
    assert before in content
    change = Change.of({path: content}, {path: content.replace(before, after)})
    return Choice(SOURCES | {path: content.replace(before, after)}, SQL).touched(change)


def test_a_name_touches_what_uses_it_lazily_or_by_a_command_and_nothing_else() -> None:
    assert touched("udfs/rates.py", "LIMIT = 5", "LIMIT = 7") == {
        "tests/kafka/test_command.py": "test_it uses udfs.rates.LIMIT, links: 3",
        "tests/spark/test_lazy.py": "test_slow uses udfs.rates.LIMIT, links: 3",
    }
    assert touched("udfs/rates.py", "OTHER = 6", "OTHER = 7") == {
        "tests/unit/test_patched.py": "test_it uses udfs.rates.OTHER, links: 2"
    }


def test_a_module_that_is_started_touches_who_starts_it() -> None:
    assert touched("tests/support/job.py", "...", "return 1") == {
        "tests/unit/test_started.py": "test_it uses tests.support.job.main, links: 2"
    }


def test_comments_touch_nothing_and_statements_all_who_import() -> None:
    assert touched("udfs/rates.py", "LIMIT = 5", "LIMIT = 5  # points a second") == {}
    assert set(touched("udfs/rates.py", "LIMIT = 5", "LIMIT = 5\nprint(LIMIT)")) == {
        "tests/kafka/test_command.py", "tests/spark/test_lazy.py", "tests/unit/test_patched.py",
    }  # fmt: skip


def test_a_slow_test_is_touched_by_itself_and_not_by_its_fast_sibling() -> None:
    assert set(touched("tests/spark/test_lazy.py", "assert later()", "assert not later()")) == {
        "tests/spark/test_lazy.py"
    }
    assert touched("tests/spark/test_lazy.py", "'made.json'", "'other.json'") == {}


def test_a_removed_name_is_a_change() -> None:
    old, new = (Module.of("udfs/x.py", text) for text in ("A = 1\nB = 2", "B = 2"))
    assert new.differing(old) == {"A"}
    assert Change.of({"udfs/x.py": "A = 1"}, {}).names == {("udfs.x", "A")}


@pytest.mark.parametrize(
    ("path", "files"),
    [
        ("sql/fleet_lag.sql", {"tests/unit/test_views.py", "tests/unit/test_named.py"}),
        # fleet_lag reads it, and test_views uses what loads all.
        ("sql/lag.sql", {"tests/unit/test_views.py", "tests/unit/test_named.py"}),
        ("sql/alone.sql", {"tests/unit/test_views.py"}),
        ("tests/data/made.json", {"tests/unit/test_named.py"}),
        ("lag/nobody.json", {"tests/unit/test_views.py"}),  # by its folder
        ("benchmarks/lag/nobody.json", set()),
        ("docs/nobody.md", set()),
        ("docs/named.md", set()),  # by a message of the product
    ],
)
def test_other_files_touch_who_names_them(path: str, files: set[str]) -> None:
    assert set(Choice(SOURCES, SQL).touched(Change.of({}, {path: "content"}))) == files


@pytest.mark.parametrize(
    "path", ["pyproject.toml", "requirements.lock", "Makefile", ".ci/run", ".ci/go.lock", "tests/conftest.py"]
)
def test_what_builds_or_configures_touches_all(path: str) -> None:
    choice = Choice(SOURCES, SQL)
    assert choice.touched(Change.of({path: ""}, {path: "x = 1"})) == dict.fromkeys(
        choice.starts, f"{path} was changed: all run"
    )


def test_a_conftest_touches_the_tests_of_its_folder() -> None:
    sources = SOURCES | {"tests/kafka/conftest.py": "X = 1"}
    change = Change.of({"tests/kafka/conftest.py": ""}, {"tests/kafka/conftest.py": "X = 1"})
    assert Choice(sources, SQL).touched(change) == {"tests/kafka/test_command.py": "tests.kafka.conftest was changed"}


def test_soaks_are_no_slow_tests_and_marked_constants_make_all_slow() -> None:
    assert "tests/unit/test_soak.py" not in Choice(SOURCES, SQL).starts
    of = {
        "@pytest.mark.slow\n@pytest.mark.soak\ndef test_a(): ...\n@pytest.mark.slow\ndef test_b(): ...": {"test_b"},
        "SEEDS = [pytest.param(1, marks=pytest.mark.slow)]\ndef test_a(): ...": {"*"},
        "@pytest.mark.parametrize('x', [pytest.param(1, marks=[pytest.mark.slow, pytest.mark.soak])])\n"
        "def test_a(): ...": {"test_a"},
        "def test_a(): ...": set(),
        "TEXT = 'pytest.mark.slow'\ndef test_a(): ...": set(),
        "@pytest.fixture(params=[1, pytest.param(2, marks=pytest.mark.slow)])\ndef x(): ...\ndef test_a(x): ...": {"*"},
    }
    assert {text: slow_tests.slow_tests(Module.of("tests/test_x.py", text)) for text in of} == of


def test_eighths_and_lanes_divide_the_repository_s_slow_tests() -> None:
    every = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    without_strings = {path: re.sub(r"""(["'])(?:\\.|(?!\1).)*\1""", "", text) for path, text in every.items()}
    marked = {path: every[path] for path, text in without_strings.items() if "mark.slow" in text}
    choice = Choice(marked | {PROPERTIES: every[PROPERTIES]}, {})
    soaks = {path for path in marked.keys() - choice.starts.keys() if "mark.soak" in marked[path]}
    assert len(soaks) < len(marked) / 10
    assert choice.starts.keys() - {PROPERTIES} == marked.keys() - soaks - {PROPERTIES}
    sizes = Counter(map(eighth, choice.starts))
    assert len(sizes) == EIGHTHS
    assert max(sizes.values()) < len(choice.starts) / 4
    assert {lane_of(path) for path in choice.starts} == set(LANES)


def test_imports_of_functions_relative_ones_and_packages() -> None:
    links = Links(
        {
            "udfs/__init__.py": "from .a import x as y",
            "udfs/a.py": "x = 1\nif __name__ == '__main__':\n    x()",
            "udfs/b.py": "from kafka_telemetry_lake import udfs\nfrom . import a\ndef f(): return udfs.y, a.x",
            "udfs/c.py": "if TYPE_CHECKING:\n    from .b import f\ndef g() -> 'f': ...",
            "udfs/d.py": "from . import a\ndef g(): return patched(a), '-m kafka_telemetry_lake.udfs.b'",
        }
    )
    assert {("udfs.a", "x"), ("udfs", "y")} <= links.reached(("udfs.b", "f")).keys()
    assert ("udfs.a", "__main__") not in links.reached(("udfs.b", "f"))
    assert ("udfs.b", "f") not in links.reached(("udfs.c", "g"))
    assert {("udfs.a", "*"), ("udfs.b", "*"), ("udfs.b", "f")} <= links.reached(("udfs.d", "g")).keys()
    assert links.resolve("kafka_telemetry_lake.udfs.a") == ("udfs.a", "")
    assert links.resolve("kafka_telemetry_lake.udfs.a.gone") == ("udfs.a", "*")
    assert links.resolve("numpy.float64") is None


def test_what_is_compared_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(hours: int) -> str:
        who = {"NAME": "a", "EMAIL": "a@b", "DATE": f"{1_800_000_000 + hours * 3600} +0000"}
        env = {f"GIT_{role}_{name}": value for role in ("AUTHOR", "COMMITTER") for name, value in who.items()}
        env |= {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        subprocess.run(["git", "commit", "-q", "--allow-empty", "-m", "x"], cwd=tmp_path, env=env, check=True)
        return slow_tests.git("rev-parse", "HEAD").strip()

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI_BASE", raising=False)
    slow_tests.git("init", "-q")
    old = commit(0)
    assert slow_tests.base() == ("", "the last commit that is a day older")
    new = [commit(30)]
    (tmp_path / "tests").mkdir()
    assert slow_tests.note_passed() == 0
    assert slow_tests.PASSED.read_text() == new[0] + "\n"
    assert slow_tests.note_passed() == 0, "files are other than those of the commit"
    new.append(commit(40))
    assert slow_tests.PASSED.read_text() == new[0] + "\n"
    assert slow_tests.base() == (new[0], "tests/slow_passed: all slow tests passed")
    slow_tests.PASSED.write_text(new[0][::-1])
    assert slow_tests.base() == (old, "the last commit that is a day older"), "that commit isn't here"
    slow_tests.PASSED.unlink()
    slow_tests.git("update-ref", "refs/remotes/origin/main", new[0])
    assert slow_tests.base() == (new[0], "origin/main")
    monkeypatch.setenv("CI_BASE", old[:10])
    assert slow_tests.base() == (old, "CI_BASE")
    (tmp_path / "udfs").mkdir()
    (tmp_path / "udfs" / "x.py").write_text("A = 1")
    assert slow_tests.change_since(old) == Change(frozenset({("udfs.x", "A")}))


def test_tests_with_a_browser_are_in_no_lane_with_those_of_an_event_loop() -> None:
    lanes: dict[str, set[str]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        name = str(path.relative_to(ROOT))
        lanes.setdefault(lane_of(name), set()).add("browser" if name.startswith("tests/dashboard/") else "others")
    assert [lane for lane, what in lanes.items() if "browser" in what] == ["dashboard"]
    assert lanes["dashboard"] == {"browser"}
