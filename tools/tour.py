"""``python -m tools.tour``: set the lines of the functions and classes that docs/tour.md names.

A link whose text is a name of Python, in backticks, and whose target is a file of Python, gets the line on which the
file defines that name: at the top, or in a class where only one has it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "tour.md"
_LINK = re.compile(r"\[`(?P<name>\w+)`\]\((?P<file>[^)#]+\.py)(?:#L\d+)?\)")


class NotDefinedError(LookupError):
    """A file doesn't define a name that the page names, or defines it more than once below its top."""


def with_lines(text: str, folder: Path = PAGE.parent) -> str:
    """The page's text with the lines as they are now.

    Raises:
        NotDefinedError: a link names what its file doesn't define.
    """

    def link(found: re.Match[str]) -> str:
        line = line_of(found["name"], (folder / found["file"]).read_text("utf-8"), found["file"])
        return f"[`{found['name']}`]({found['file']}#L{line})"

    return _LINK.sub(link, text)


def line_of(name: str, source: str, file: str = "") -> int:
    """The line of a definition, from 1. Raises ``NotDefinedError``."""
    top = ast.parse(source).body
    inner = [each for outer in top if isinstance(outer, ast.ClassDef) for each in outer.body]
    for nodes in (top, inner):
        lines = [each.lineno for each in nodes if getattr(each, "name", None) == name]
        if len(lines) == 1:
            return lines[0]
    raise NotDefinedError(f"{file} doesn't define {name}, or more than once")


if __name__ == "__main__":
    PAGE.write_text(with_lines(PAGE.read_text("utf-8")), "utf-8")
