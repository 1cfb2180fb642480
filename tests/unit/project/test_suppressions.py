"""A check is switched off on one line, for a named rule, with the reason beside it."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = ("udfs", "pipelines", "sandbox", "jobs", "dashboards", "tests", "benchmarks", "tools")
SUPPRESSION = re.compile(r"#\s*(noqa|type:\s*ignore|ruff:|mypy:|pylint:)", re.IGNORECASE)
REASONED = re.compile(
    r"# (noqa: [A-Z]+\d+(, ?[A-Z]+\d+)*|type: ignore\[[a-z-]+(, ?[a-z-]+)*\])"
    r"(  # (noqa: [A-Z]+\d+|type: ignore\[[a-z-]+\]))?"  # one line may need both
    r"  # (?!noqa|type:)\w.*"
)


def unreasoned(source: str) -> list[str]:
    """The comments that suppress a check without a rule's name, or without a reason after it."""
    if not SUPPRESSION.search(source):  # as in most files, which need not be cut into tokens
        return []
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return [each for each in comments if SUPPRESSION.search(each) and not REASONED.fullmatch(each)]


def _files() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from (ROOT / folder).rglob("*.py")


def test_every_suppression_names_its_rule_and_its_reason() -> None:
    wrong = {str(file.relative_to(ROOT)): unreasoned(file.read_text("utf-8")) for file in _files()}
    assert {name: lines for name, lines in wrong.items() if lines} == {}


def test_what_counts_as_a_reason() -> None:
    good = "x = 1  # noqa: N802  # Spark's name\ny = f()  # type: ignore[arg-type]  # files name no cluster\n"
    assert unreasoned(good) == []
    bad = [
        "# noqa", "# noqa: N802", "# noqa: N802  Spark's name", "# type: ignore", "# type: ignore  # no rule",
        "# type: ignore[misc]", "# type: ignore[misc]  # noqa: N802", "# ruff: noqa", "# mypy: ignore-errors",
    ]  # fmt: skip
    assert unreasoned("".join(f"x = 1  {comment}\n" for comment in bad)) == bad
