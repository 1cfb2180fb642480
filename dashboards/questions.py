"""The pages' queries, called questions: one file of `sql/dashboard/` each, in Spark's dialect, with named parameters.

A question may read any table and view of the lake, and two relations that its caller supplies: ``chosen`` (the client
instances that pass the filters, rows of `instances.sql`) and ``rollups`` (these clients' increases in each window,
from one of the `_rollups_*.sql`).
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
# Limit of answers whose SQL has none: invented client ids must not overload the browser.
MOST_ROWS = 10_000
MOST_INSTANCES = 1_000_000
FOLDER = files("kafka_telemetry_lake.sql") / "dashboard"


@dataclass(frozen=True)
class Question:
    """A question: its SELECT in DuckDB's dialect, and the tables, views and parameters that it refers to.

    Attributes:
        pretty: the SELECT as text for people, without the limit of `most`.
        most: rows to show; the SELECT returns one row more if there are more rows. None: parameter ``top`` is the
            limit.
    """

    name: str
    duckdb: str
    pretty: str
    reads: frozenset[str]
    parameters: frozenset[str]
    most: int | None


def names() -> list[str]:
    """Names of all questions; files that begin with an underscore are helpers."""
    stems = (file.name.removesuffix(".sql") for file in FOLDER.iterdir() if file.name.endswith(".sql"))
    return sorted(name for name in stems if not name.startswith("_"))


@cache
def question(name: str, grain: Grain = "minutes") -> Question:
    """A question by name, with rollups of this grain if it reads rollups."""
    tree = _select(name)
    if any(table.name == ROLLUPS for table in tree.find_all(exp.Table)):
        added = exp.CTE(this=_select(f"_rollups_{grain}"), alias=exp.TableAlias(this=exp.to_identifier(ROLLUPS)))
        before = tree.ctes
        tree.set("with_", exp.With(expressions=[added, *before]))
    pretty = tree.sql("duckdb", pretty=True, comments=False)
    most = None if tree.args.get("limit") else MOST_INSTANCES if name == "instances" else MOST_ROWS
    if most is not None:
        tree = tree.limit(most + 1)
    inner = {cte.alias for cte in tree.find_all(exp.CTE)}
    return Question(
        name,
        tree.sql("duckdb", identify=True, comments=False),
        pretty,
        frozenset(table.name for table in tree.find_all(exp.Table)) - inner,
        frozenset(marker.name for marker in tree.find_all(exp.Placeholder)),
        most,
    )


def _select(name: str) -> exp.Query:
    tree = sqlglot.parse_one((FOLDER / f"{name}.sql").read_text("utf-8"), read="spark")
    assert isinstance(tree, exp.Query), f"sql/dashboard/{name}.sql is not one SELECT"
    return tree
