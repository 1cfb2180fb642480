"""docs/rules.md: every rule code that is used is defined there, and every rule has a test of its name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "rules.md"
USED_IN = {"udfs": (".py",), "pipelines": (".py",), "jobs": (".py",), "sql": (".sql",), "tests": (".py", ".md")}
LETTERS = "IPCDLQMB"
CODE = re.compile(rf"(?<![\w.-])[{LETTERS}]\d{{1,2}}(?!\w)")
TEST_OF = re.compile(rf"test_((?:[{LETTERS.lower()}]\d{{1,2}}_)+)")
HEADING = re.compile(rf"^### ([{LETTERS}]\d{{1,2}}) \S.*$", re.MULTILINE)
# What looks like a code and is none: a file, and the text around it.
NO_CODES = {
    ("tests/oracle/READINGS.md", "L0 is"),  # a series' last total
}

LINE = re.compile(r"#L\d+\)")  # of a link to a line of code


@cache
def rules() -> dict[str, str]:
    """The text of each rule."""
    parts = HEADING.split(PAGE.read_text("utf-8"))
    codes, texts = parts[1::2], parts[2::2]
    assert len(codes) == len(set(codes))
    return dict(zip(codes, texts, strict=True))


@cache
def functions() -> dict[str, set[str]]:
    """The files of each test function's name."""
    found: dict[str, set[str]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.setdefault(node.name, set()).add(file.relative_to(ROOT).as_posix())
    return found


def codes_of(name: str) -> set[str]:
    """The rules that a test is named after."""
    match = TEST_OF.match(name)
    return {code.upper() for code in match[1].split("_") if code} if match else set()


def used(text: str, file: str = "") -> set[str]:
    for name, context in NO_CODES:
        if name == file:
            text = text.replace(context, "")
    return set(CODE.findall(LINE.sub("", text)))


def texts() -> Iterator[tuple[str, str]]:
    """Path and text of each file that may name a rule."""
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    for folder, endings in USED_IN.items():
        files += [file for file in (ROOT / folder).rglob("*") if file.suffix in endings]
    for file in files:
        if file not in (PAGE, Path(__file__)):
            yield file.relative_to(ROOT).as_posix(), file.read_text("utf-8")


def test_every_code_that_is_used_is_defined() -> None:
    unknown = {path: sorted(used(text, path) - rules().keys()) for path, text in texts()}
    assert {path: codes for path, codes in unknown.items() if codes} == {}
    named = {code for name in functions() for code in codes_of(name)}
    assert named - rules().keys() == set()
    assert used(PAGE.read_text("utf-8")) - rules().keys() == set()


def test_every_rule_is_named_where_it_is_implemented() -> None:
    code = {found for path, text in texts() if path.startswith(("udfs/", "pipelines/", "sql/")) for found in used(text)}
    assert rules().keys() - code == set()


@pytest.mark.parametrize("code", rules())
def test_every_rule_has_an_example_a_source_and_tests_of_its_name(code: str) -> None:
    text = rules()[code]
    for part in ("- Example: ", "- Source: ", "- Tests: "):
        assert text.count(part) == 1, part
    named = re.findall(r"`(test_\w+)`", text.partition("- Tests: ")[2])
    assert [name for name in named if name not in functions()] == []
    assert named
    assert [name for name in named if code not in codes_of(name)] == []


def test_numbers_of_a_letter_have_no_hole() -> None:
    for letter in LETTERS:
        numbers = [int(code[1:]) for code in rules() if code[0] == letter]
        assert numbers == list(range(numbers[0], len(numbers) + numbers[0])), letter


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("(C5)", {"C5"}),
        ("Rules C1 to C6, C9: I4's", {"C1", "C6", "C9", "I4"}),
        ("udfs/x.py:P3 and **L12**", {"P3", "L12"}),
        ("S3, T0, F11, UTC5, C100, a-C5, x.C5, C5x", set()),
    ],
)
def test_what_counts_as_a_code(text: str, codes: set[str]) -> None:
    assert used(text) == codes


def test_names_of_tests_begin_with_their_rules() -> None:
    assert codes_of("test_c7_c8_state_keeps_the_last") == {"C7", "C8"}
    assert codes_of("test_crc32c_check_value") == codes_of("test_state_of_c5_") == set()
