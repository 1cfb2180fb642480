"""The demo's report: the answers to a few SQL queries over the lake."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.query.printable import printable
from kafka_telemetry_lake.pipelines.sql_text import sql_yaml

ASKED = sql_yaml("demo", "report.yml")
QUESTIONS: dict[str, str] = ASKED["questions"]
MOST_ROWS = 10


def report(lake: str) -> None:
    """Print the report of a lake, then five questions with their answers."""
    console = Console(width=max(Console().width, 120))
    (counted,) = _answer(lake, "SELECT count(DISTINCT client_instance_id) AS clients FROM push_outcomes")
    for title, sql in ASKED["report"].items():
        console.print(f"\n{title.format(**counted)}", style="bold", highlight=False)
        _print(console, _answer(lake, sql))
    console.print("\nFive questions; ask your own in the same way:", style="bold")
    for question, sql in QUESTIONS.items():
        console.print(f"\n# {question}", highlight=False)
        console.print(
            f'{program(sys.argv[0])} query --lake {shlex.quote(lake)} "{sql}"', soft_wrap=True, highlight=False
        )
        rows = _answer(lake, sql)
        _print(console, rows[:MOST_ROWS])
        if len(rows) > MOST_ROWS:
            console.print(f"and {len(rows) - MOST_ROWS} more", highlight=False)


def program(started_as: str) -> str:
    """How to call this program again: by the relative path of a checkout, else by its name."""
    path = Path(started_as)
    return started_as if path.name == "telemetry-lake" and not path.is_absolute() else "telemetry-lake"


def _print(console: Console, rows: list[dict[str, Any]]) -> None:
    table = Table()
    for name in rows[0] if rows else ["nothing"]:
        table.add_column(name.replace("_", " "), justify="right" if rows and _is_number(rows[0][name]) else "left")
    for row in rows:
        table.add_row(*(Text(printable(_text(value))) for value in row.values()))  # else rich reads its markup
    console.print(table)


def _answer(lake: str, sql: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = run_query(lake, sql).read_all().to_pylist()
    return rows


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,.0f}"
    return f"{value:%H:%M:%S}" if hasattr(value, "strftime") else str(value)
