"""The questions that the pages ask: one file of `sql/dashboard/` each, in Spark's dialect, with named parameters.

A question may name any table and view of the lake, and two relations that the asker gives: ``chosen`` (the client
instances that the filters leave, rows of `instances.sql`) and ``rollups`` (what these clients added to each window, by
one of the `_rollups_*.sql`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

import sqlglot
from sqlglot import exp

CHOSEN, ROLLUPS = "chosen", "rollups"
Grain = Literal["points", "minutes", "hours"]
FOLDER = files("sql") / "dashboard"


@dataclass(frozen=True)
class Question:
    """A question: its SELECT in DuckDB's dialect, and the tables, views and parameters that it names."""

    name: str
    duckdb: str
    reads: frozenset[str]
    parameters: frozenset[str]


def names() -> list[str]:
    """All questions; the helpers that begin with an underscore are none."""
    found = (file.name.removesuffix(".sql") for file in FOLDER.iterdir() if file.name.endswith(".sql"))
    return sorted(name for name in found if not name.startswith("_"))


@cache
def question(name: str, grain: Grain = "minutes") -> Question:
    """A question by name, with rollups of this grain where it asks for any."""
    tree = _select(name)
    if any(table.name == ROLLUPS for table in tree.find_all(exp.Table)):
        added = exp.CTE(this=_select(f"_rollups_{grain}"), alias=exp.TableAlias(this=exp.to_identifier(ROLLUPS)))
        before = tree.ctes
        tree.set("with_", exp.With(expressions=[added, *before]))
    inner = {cte.alias for cte in tree.find_all(exp.CTE)}
    return Question(
        name,
        tree.sql("duckdb", identify=True, comments=False),
        frozenset(table.name for table in tree.find_all(exp.Table)) - inner,
        frozenset(marker.name for marker in tree.find_all(exp.Placeholder)),
    )


def _select(name: str) -> exp.Query:
    tree = sqlglot.parse_one((FOLDER / f"{name}.sql").read_text("utf-8"), read="spark")
    assert isinstance(tree, exp.Query), f"sql/dashboard/{name}.sql is not one SELECT"
    return tree
