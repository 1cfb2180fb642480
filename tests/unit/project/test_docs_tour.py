"""The tour of the code leads to the lines of what it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.tour import PAGE, NotDefinedError, line_of, with_lines

SOURCE = """
def one(): ...

class A:
    def run(self): ...

class B:
    def run(self): ...
    def stop(self): ...
"""


def test_each_link_has_the_line_of_what_it_names() -> None:
    text = PAGE.read_text("utf-8")
    assert text == with_lines(text), "run: .venv/bin/python -m tools.tour"
    assert text.count(".py#L") >= 15


def test_a_line_is_that_of_the_definition(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(SOURCE)
    page = "[`one`](code.py), [`stop`](code.py#L3), [`one`](other.md), [the class](code.py)"
    assert (
        with_lines(page, tmp_path)
        == "[`one`](code.py#L2), [`stop`](code.py#L9), [`one`](other.md), [the class](code.py)"
    )


@pytest.mark.parametrize("name", ["two", "run"])
def test_what_is_not_there_or_there_twice_is_refused(name: str) -> None:
    with pytest.raises(NotDefinedError, match=f"doesn't define {name}"):
        line_of(name, SOURCE)
