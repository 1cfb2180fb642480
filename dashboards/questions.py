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
# The clusters and client ids of the chosen instances, each once: a million instances have a few thousand of them.
CHOSEN_IDS = "chosen_ids"
Grain = Literal["points", "minutes", "hours", "windows"]
# Limit of answers whose SQL has none: invented client ids must not overload the browser.
MOST_ROWS = 10_000
MOST_INSTANCES = 1_000_000
# Questions whose answers aren't shown as they are; what is made of them is limited.
MOST = {"instances": MOST_INSTANCES, "client_windows": 10_000_000}
# Questions whose rollups may be the answer to `client_windows`: they sum up by client id, metric and the same windows.
OF_WINDOWS = ("metric_over_time", "metric_by_client", "groups", "changes")
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

    @property
    def is_about_chosen(self) -> bool:
        """Whether it reads relation ``chosen``."""
        return not self.reads.isdisjoint((CHOSEN, CHOSEN_IDS))


def names() -> list[str]:
    """Names of all questions; files that begin with an underscore are helpers."""
    stems = (file.name.removesuffix(".sql") for file in FOLDER.iterdir() if file.name.endswith(".sql"))
    return sorted(name for name in stems if not name.startswith("_"))


@cache
def in_words(name: str) -> str:
    """What a question asks: the first sentence of its file."""
    comments = (FOLDER / f"{name}.sql").read_text("utf-8").splitlines()
    text = " ".join(line.removeprefix("--").strip() for line in comments if line.startswith("--"))
    return first_sentence(text)


def first_sentence(text: str) -> str:
    """The first sentence of a comment, which is the question that it answers."""
    return f"{text.partition('?')[0]}?"


@cache
def question(name: str, grain: Grain = "minutes", everybody: bool = False) -> Question:
    """A question by name, with rollups of this grain if it reads rollups.

    Args:
        grain: "windows": its caller supplies ``rollups``, such as the answer to question `client_windows`.
        everybody: it is about all clients, not about those in ``chosen``.
    """
    tree = _select(name)
    if grain != "windows" and any(table.name == ROLLUPS for table in tree.find_all(exp.Table)):
        added = exp.CTE(this=_select(f"_rollups_{grain}"), alias=exp.TableAlias(this=exp.to_identifier(ROLLUPS)))
        before = tree.ctes
        tree.set("with_", exp.With(expressions=[added, *before]))
    if everybody:
        for test in _tests_of_chosen(tree):
            _let_all_pass(test)
    pretty = tree.sql("duckdb", pretty=True, comments=False)
    _look_at_ids(tree)
    most = None if tree.args.get("limit") else MOST.get(name, MOST_ROWS)
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


def _look_at_ids(tree: exp.Query) -> None:
    """Where only clusters and client ids of the chosen instances are compared, read these without repeats."""
    for test in _tests_of_chosen(tree):
        inside = test.args["query"].find_all(exp.Column)
        if {column.name for column in inside} <= {"cluster_id", "client_id"}:
            (table,) = test.find_all(exp.Table)
            table.replace(exp.to_table(CHOSEN_IDS))


def _let_all_pass(test: exp.Expression) -> None:
    """Leave out a condition, and what else would let a row pass beside it."""
    while isinstance(test.parent, exp.Or | exp.Paren):
        test = test.parent
    if isinstance(test.parent, exp.And):
        both = test.parent
        both.replace(both.right if test is both.left else both.left)
    elif isinstance(test.parent, exp.Where):
        test.parent.pop()


def _tests_of_chosen(tree: exp.Query) -> list[exp.In]:
    """Conditions that something is IN the chosen instances."""
    return [test for test in tree.find_all(exp.In) if any(table.name == CHOSEN for table in test.find_all(exp.Table))]


def _select(name: str) -> exp.Query:
    tree = sqlglot.parse_one((FOLDER / f"{name}.sql").read_text("utf-8"), read="spark")
    assert isinstance(tree, exp.Query), f"sql/dashboard/{name}.sql is not one SELECT"
    return tree
