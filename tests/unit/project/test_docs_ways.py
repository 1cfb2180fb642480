"""What a payload, a finding and a page of the dashboard go through stays short, and is what the code does."""

from __future__ import annotations

import re

import pytest

from tools.tour import PAGE
from tools.ways import WAYS, Place, entered, main, problems, source, way

MOST_FILES = {"payload": 25, "finding": 10, "page": 17}
SOURCES = {
    "jobs/start.py": """
from importlib import import_module
from kafka_telemetry_lake.pipelines import tables
from kafka_telemetry_lake.pipelines.store import Task, Writer, write as stored
COMMANDS = {"other": "another command"}
def main(writer, task):
    job("other")
    stored(1)
    tables.rows(1)
    writer.add(1)
    task(1)
    len("")
def job(command):
    return import_module(f"jobs.{command}").run
def idle(): len("")
""",
    "jobs/other.py": "def run(): ...",
    "jobs/unnamed.py": "def run(): ...",
    "pipelines/store.py": """
def write(row): ...
def unused(row): ...
class Task:
    def __call__(self, row): ...
class Writer:
    def add(self, row): ...
    def close(self): ...
""",
    "pipelines/tables.py": "def rows(row): ...",
    "pipelines/elsewhere.py": "class Other:\n    def add(self): ...",
}


def read(file: str) -> str:
    if file not in SOURCES:
        raise FileNotFoundError(2, "missing", file)
    return SOURCES[file]


@pytest.mark.parametrize("name", WAYS)
def test_each_hop_of_a_way_is_a_call_that_the_code_makes(name: str) -> None:
    assert list(problems(WAYS[name], source)) == []


@pytest.mark.parametrize(("name", "most"), MOST_FILES.items())
def test_a_way_goes_through_no_more_files(name: str, most: int) -> None:
    assert len(entered(WAYS[name])) <= most, "run: .venv/bin/python -m tools.ways"


def test_the_ways_begin_and_end_where_they_say() -> None:
    ends = {name: {hop.called.name: hop.becomes for hop in hops} for name, hops in WAYS.items()}
    assert {name: hops[0].caller.name for name, hops in WAYS.items()} == {
        "payload": "main", "finding": "evaluate", "page": "main",
    }  # fmt: skip
    assert ends["payload"]["metric_points"] == "rows of table metric_points"
    assert ends["payload"]["LogFiles.add"] == "a version of the table"
    assert ends["finding"]["Rule"] == "a rule, of YAML"
    assert ends["finding"]["append_once"] == "rows of the table"
    assert ends["page"]["parse"] == "a selection"
    assert ends["page"]["draw"] == "the plot, drawn"


@pytest.mark.parametrize(("title", "name"), [("## 2. One payload", "payload"), ("## 4. One finding", "finding")])
def test_the_tour_s_stations_are_on_the_way(title: str, name: str) -> None:
    """So a way can't leave out what the tour shows."""
    (part,) = (part for part in re.split(r"(?m)^(?=## )", PAGE.read_text("utf-8")) if part.startswith(title))
    stations = re.findall(r"\[`(\w+)`\]\(\.\./(\S+?\.py)#", part)
    beside = {"companions"}  # what the job does in its background
    assert len(stations) >= 3
    assert {file for station, file in stations if station not in beside} <= entered(WAYS[name]).keys()


@pytest.mark.parametrize(
    "called",
    [
        "jobs.start:job", "jobs.start:main", "pipelines.store:write", "pipelines.tables:rows",
        "pipelines.store:Writer.add", "pipelines.store:Task.__call__",
    ],
)  # fmt: skip
def test_a_call_is_found(called: str) -> None:
    hops = way(f"jobs.start:main -> {called} = something")
    expected = [] if called != "jobs.start:main" else ["jobs.start:main -> jobs.start:main: main doesn't call it"]
    assert list(problems(hops, read)) == expected


def test_a_module_that_is_imported_by_its_name_is_found_among_the_module_s_words() -> None:
    assert list(problems(way("jobs.start:job -> jobs.other:run = it"), read)) == []
    (problem,) = problems(way("jobs.start:job -> jobs.unnamed:run = it"), read)
    assert problem.endswith("job doesn't call it")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("jobs.start:main -> pipelines.store:unused = it", "main doesn't call it"),
        ("jobs.start:main -> pipelines.store:Writer.close = it", "main doesn't call it"),
        ("jobs.start:idle -> pipelines.store:Task.__call__ = it", "idle doesn't call it"),
        ("jobs.start:main -> pipelines.elsewhere:Other.add = it", "main doesn't call it"),
        ("jobs.start:main -> pipelines.store:gone = it", "pipelines/store.py doesn't define gone"),
        ("jobs.start:gone -> pipelines.store:write = it", "jobs/start.py doesn't define gone"),
        ("jobs.start:main -> pipelines.gone:write = it", "there is no file pipelines/gone.py"),
        ("jobs.start:main -> pipelines.store:write", "it leads nowhere, and nothing changes its form there"),
        (
            "jobs.start:main -> pipelines.store:write = it\njobs.start:job -> jobs.other:run = it",
            "nothing before it enters job",
        ),
    ],
)
def test_a_hop_that_is_not_true_is_a_problem(text: str, problem: str) -> None:
    found = list(problems(way(text), read))
    assert [line.partition(": ")[2] for line in found] == [problem]


def test_files_are_counted_once_in_the_order_of_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    text = """
jobs.start:main -> jobs.start:job
jobs.start:job -> jobs.other:run = it
jobs.start:main -> pipelines.store:write = it
jobs.start:main -> pipelines.store:Writer.add = it"""
    assert entered(way(text)) == {
        "jobs/start.py": ["main", "job"],
        "jobs/other.py": ["run"],
        "pipelines/store.py": ["write", "Writer.add"],
    }
    assert way(text)[0].caller == Place("jobs.start", "main")
    assert main() == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"payload: {len(entered(WAYS['payload']))} files"
    assert printed[1].split()[:3] == ["1", "jobs/cli.py:", "main,"]


def test_a_line_that_is_no_hop_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not a hop: jobs\.start:main"):
        way("jobs.start:main")
