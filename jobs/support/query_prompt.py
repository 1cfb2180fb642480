"""The prompt of ``telemetry-lake query``: queries end with a semicolon, Tab completes names of tables and columns."""

from __future__ import annotations

import sys
from collections.abc import Callable

from kafka_telemetry_lake.jobs.support.console import fail
from kafka_telemetry_lake.pipelines.query.lake_query import relations, run_query, view_columns
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

try:
    import readline
except ImportError:  # not on Windows: the prompt works without completion
    readline = None  # type: ignore[assignment]  # mypy knows the module only as one that is there

KEYWORDS = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "HAVING", "JOIN", "DISTINCT", "COUNT(", "SUM(", "MAX(",
    "DESCRIBE", "SUMMARIZE", "SHOW TABLES",
)  # fmt: skip
WELCOME = "A query ends with ; and Tab completes names. SHOW TABLES; lists tables and views. End: exit or Ctrl-D."
ENDS = ("exit", "quit", "\\q")


def ask_repeatedly(lake: str, answer: Callable[[str], None]) -> None:
    """Read queries from the terminal and answer each one, until the user ends it. An error doesn't end it.

    Raises:
        QueryError: there is no lake.
    """
    run_query(lake, "SHOW TABLES")
    if readline is not None:
        _complete_by(Completer(lake))
    print(WELCOME, file=sys.stderr)
    lines: list[str] = []
    while True:
        try:
            line = input("   ... " if lines else "lake > ")
        except EOFError:
            print(file=sys.stderr)
            return
        except KeyboardInterrupt:
            print(file=sys.stderr)
            lines = []
            continue
        if not lines and line.strip().removesuffix(";").lower() in ENDS:
            return
        if lines or line.strip():
            lines.append(line)
        if line.rstrip().endswith(";"):
            _answer("\n".join(lines), answer)
            lines = []


class Completer:
    """Completes a word with the names of tables, views and columns, and with keywords."""

    def __init__(self, lake: str) -> None:
        self._lake = lake
        self._words: list[str] = []
        self._found: list[str] = []

    def complete(self, text: str, state: int) -> str | None:
        """The completion number `state` of `text`, as readline asks for it; None: there are no more."""
        if not self._words:  # not before Tab is pressed: planning all views takes a second
            self._words = _words(self._lake)
        if state == 0:
            self._found = [word for word in self._words if word.lower().startswith(text.lower())]
        return self._found[state] if state < len(self._found) else None


def _words(lake: str) -> list[str]:
    names: list[str] = relations(lake)["name"].to_pylist()
    schemas = [*(schema.names for schema in CATALOG.values()), *view_columns().values()]
    return [*sorted({*names, *(column for columns in schemas for column in columns)}), *KEYWORDS]


def _complete_by(completer: Completer) -> None:
    readline.set_completer(completer.complete)
    readline.set_completer_delims(" \t\n.,;()=<>+-*/'\"")
    libedit = "libedit" in (readline.__doc__ or "")  # on macOS
    readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")


def _answer(sql: str, answer: Callable[[str], None]) -> None:
    """Answer a query; an error or Ctrl-C ends only this query."""
    try:
        answer(sql)
    except TelemetryLakeError as error:
        fail(error)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
