"""README and docs: commands that they print are there, links lead somewhere, the schema is that of the tables."""

from __future__ import annotations

import importlib
import pkgutil
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_telemetry_lake.jobs.cli import COMMANDS, settings_of
from kafka_telemetry_lake.pipelines import tables
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG, MEANINGS
from kafka_telemetry_lake.pipelines.tables.table import Table
from kafka_telemetry_lake.udfs.conversion.points import Reason
from tools import schema_docs

ROOT = Path(__file__).parents[3]
OF_ROOT = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md"]
PAGES = sorted([*OF_ROOT, *(ROOT / "docs").glob("*.md")])
CODE = re.compile(r"```[\w-]*\n(.*?)```|((?:^ {4}\S.*\n)+)|`([^`\n]+)`", re.DOTALL | re.MULTILINE)


def lines(page: Path) -> Iterator[str]:
    """Lines of code, those continued by a backslash put together."""
    for block in CODE.finditer(page.read_text("utf-8")):
        text = next(part for part in block.groups() if part)
        yield from (line.strip() for line in text.replace("\\\n", " ").splitlines())


def telemetry_lake_commands(page: Path) -> Iterator[list[str]]:
    """The words after the program's name."""
    for line in lines(page):
        if found := re.match(r"(?:\$ )?(?:[\w/.-]*/)?telemetry-lake (.*)", line):
            yield words(found[1])


def words(text: str) -> list[str]:
    try:
        found = shlex.split(text, comments=True)
    except ValueError:  # a query that goes on in the next line
        found = text.split()
    end = next((at for at, word in enumerate(found) if word in ("|", ";", "&&", ">", "2>")), len(found))
    return found[:end]


def problems(command: list[str]) -> Iterator[str]:
    if command[:1] and command[0].startswith("-"):
        yield from (word for word in command if word not in ("--help", "--version"))
        return
    name, *rest = command or [""]
    if name not in COMMANDS:
        if not re.fullmatch(r"[A-Z_]+|\.\.\.", name):  # COMMAND, a placeholder
            yield name
        return
    fields = settings_of(name).model_fields
    flags = {"--" + (field.alias or key).replace("_", "-") for key, field in fields.items()}
    flags |= {"--no-" + key.replace("_", "-") for key, field in fields.items() if field.annotation is bool}
    for at, word in enumerate(rest):
        flag, _, value = word.partition("=")
        if flag == "--conf":
            file = value or rest[at + 1]
            if "/" in file and not (ROOT / file).is_file():
                yield f"{name} --conf {file}"
        elif flag.startswith("--") and flag not in flags | {"--help"}:
            yield f"{name} {flag}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_with_their_flags_and_make_targets_are_there(page: Path) -> None:
    assert [problem for command in telemetry_lake_commands(page) for problem in problems(command)] == []
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {word for line in lines(page) if line.startswith("make ") for word in line.split("#")[0].split()[1:]}
    assert {word for word in named if re.fullmatch(r"[a-z-]+", word)} <= targets


def test_a_wrong_command_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        'Ask `telemetry-lake qery --lake x`, or\n\n    .venv/bin/telemetry-lake query --lak x "SELECT 1" | head\n\n'
        "```sh\ntelemetry-lake sync --lake x \\\n  --no-chek\ntelemetry-lake maintain --conf conf/none.yml\n```\n",
        "utf-8",
    )
    found = [problem for command in telemetry_lake_commands(page) for problem in problems(command)]
    assert found == ["qery", "query --lak", "sync --no-chek", "maintain --conf conf/none.yml"]


def test_the_documents_print_commands() -> None:
    printed = [command for page in PAGES for command in telemetry_lake_commands(page)]
    assert {command[0] for command in printed if command} >= COMMANDS.keys() - {"demo"}
    assert len(printed) > 30


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if not target.startswith(("http:", "https:", "mailto:")):
            file = page.parent / path if path else page
            assert file.exists(), target
            if file.suffix == ".py":  # test_docs_tour.py looks which line it is
                assert re.fullmatch(r"L\d+|", anchor), target
            elif anchor:
                heads = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE)
                assert anchor in {re.sub(r"[^\w -]", "", head).strip().lower().replace(" ", "-") for head in heads}


def test_benchmarks_that_pages_name_are_there() -> None:
    named = {name for page in PAGES for name in re.findall(r"python -m benchmarks\.(\w+)", page.read_text("utf-8"))}
    assert {name for name in named if not (ROOT / "benchmarks" / f"{name}.py").is_file()} == set()
    assert len(named) > 20


def test_a_decision_is_a_short_record() -> None:
    for record in re.split(r"^### ", (ROOT / "docs" / "decisions.md").read_text("utf-8"), flags=re.MULTILINE)[1:]:
        lines = [line for line in record.partition("\n## ")[0].splitlines()[1:] if line]
        parts = re.findall(r"^- \*\*([\w ]+)", "\n".join(lines), re.MULTILINE)
        assert parts[:2] == ["Context", "Choice"], record
        assert parts[-1] == "Look again when", record
        assert len(lines) <= 14, record


def test_the_schema_is_that_of_the_tables() -> None:
    assert schema_docs.PAGE.read_text("utf-8") == schema_docs.page(), "run python -m tools.schema_docs"


def test_every_table_and_column_has_a_meaning() -> None:
    for name, schema in CATALOG.items():
        assert MEANINGS[name]
        for field in schema:
            assert (field.metadata or {}).get(b"comment"), f"{name}.{field.name}"


def test_every_table_is_in_the_catalog() -> None:
    modules = [
        importlib.import_module(f"{tables.__name__}.{each.name}") for each in pkgutil.iter_modules(tables.__path__)
    ]
    defined = {value.name for module in modules for value in vars(module).values() if isinstance(value, Table)}
    assert defined - CATALOG.keys() == set()


def test_every_reason_is_described() -> None:
    text = (ROOT / "docs" / "semantics.md").read_text("utf-8")
    assert [reason.name for reason in Reason if reason and f"| point | `{reason.name}` |" not in text] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_setting_has_a_help_text(command: str) -> None:
    assert [name for name, field in settings_of(command).model_fields.items() if not field.description] == []


def test_the_walks_through_the_code_name_files_that_are_there() -> None:
    walks = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8").partition("## File by file")[2]
    folder, files = "", []
    for name in re.findall(r"`([\w/]+(?:/|\.py))`", walks):
        if name.endswith("/"):
            folder = name
        else:
            files.append(ROOT / (name if "/" in name else f"{folder}{name}"))
    assert len(files) > 30
    assert [file for file in files if not file.is_file()] == []
