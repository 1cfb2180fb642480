"""The commands that README and docs print: each has a test or a reason why none; those without Spark run here."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path

import pytest

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.pipelines.tables.pipeline_metrics import PIPELINE_METRICS
from kafka_telemetry_lake.pipelines.tables.quality import QUALITY_RESULTS
from tests.support.captured_lake import captured_lake
from tests.support.documented_commands import HERE, PAGE, ROOT, TRIED, Command, commands, page, tried
from tests.support.lake_tables import table

pytestmark = pytest.mark.lake

RUN = {command.text: command for command in commands() if tried(command) == HERE}
# What the example is printed for: the captured pushes are long past.
FAILS = {"--stale-hours 2": "BROKEN pushes: the newest push landed within --stale-hours"}


def test_the_list_is_that_of_the_pages() -> None:
    assert PAGE.read_text("utf-8") == page(), "run python -m tests.support.documented_commands"
    assert len(list(commands())) > 50


def test_every_test_that_is_named_is_there() -> None:
    for _, by in TRIED:
        for file, name in re.findall(r"((?:tests|\.ci)/[\w/.-]+?\w)(?:::(\w+))?(?=[ ;,]|$)", by):
            assert (ROOT / file).exists(), by
            assert not name or f"def {name}(" in (ROOT / file).read_text("utf-8"), by


def test_a_command_that_nothing_tries_would_be_found() -> None:
    with pytest.raises(KeyError, match="telemetry-lake conjure"):
        tried(Command("page.md", "telemetry-lake conjure --lake my-lake"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = captured_lake(tmp_path_factory.mktemp("docs") / "lake")
    for name in (QUALITY_RESULTS, PIPELINE_METRICS):  # a running lake has them
        name.create(str(lake))
    return lake


def test_the_picture_of_a_finding_is_a_finding(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = (ROOT / "docs" / "images" / "finding.svg").read_text("utf-8")
    texts = re.findall(r"<text[^>]*>(.*?)</text>", picture)
    client = texts[texts.index("client id") + 1]
    query = "SELECT severity, finding, 'client id', client_id, 'evidence', evidence, 'advice', advice FROM findings"
    assert cli.main(["query", "--lake", str(made), "--format", "csv", f"{query} WHERE client_id = '{client}'"]) == 0
    (row,) = csv.reader(capsys.readouterr().out.splitlines()[1:])
    assert " ".join(texts) == " ".join(row)


@pytest.mark.parametrize("text", RUN)
def test_it_runs_as_it_is_printed(
    text: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    words = RUN[text].words[1:]
    lake = made if words[0] == "query" else shutil.copytree(made, tmp_path / "lake")
    places = {"--lake": str(lake), "--docs": str(tmp_path / "pages")}
    if "--subscriptions-file" in words:
        places["--subscriptions-file"] = str(ROOT / "conf" / "subscriptions.yml")
    for at, word in enumerate(words[:-1]):
        if word in places:
            words[at + 1] = places[word]
    code = cli.main(words)
    out, err = capsys.readouterr()
    failure = next((message for flag, message in FAILS.items() if flag in text), None)
    assert code == (0 if failure is None else 1), err
    assert failure is None or failure in err
    if words[0] in ("sync", "maintain"):  # these log what they do
        names = set() if "--check" in words or words[0] == "maintain" else {"everything-of-one", "producers"}
        there = (lake / "subscriptions").is_dir()
        assert there == bool(names)
        assert not there or set(table(lake, "subscriptions")["name"].to_pylist()) == names
    else:
        assert out
