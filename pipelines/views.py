"""The views over a lake's tables: one file of `sql/` each, in Spark's dialect, for Spark and for DuckDB alike.

A file is a comment that says which question it answers, and one SELECT. Its name is the view's. Views may name other
views and any table of ``catalog.CATALOG``; a table that a lake doesn't have yet reads as empty.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import TopologicalSorter
from importlib.resources import files
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp

from pipelines.catalog import CATALOG
from pipelines.subscription_views import keep_subscription_views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class View:
    """A view: `question` that it answers, its SELECT in Spark's dialect, and the tables and views that it names."""

    name: str
    question: str
    select: str
    reads: frozenset[str]

    @functools.cached_property
    def duckdb(self) -> str:
        """The SELECT in DuckDB's dialect; all names quoted, since `at` and `offset` are words of DuckDB."""
        return sqlglot.transpile(self.select, read="spark", write="duckdb", identify=True, comments=False)[0]


def parse_view(name: str, text: str) -> View:
    """A view of a file's text.

    Raises:
        sqlglot.errors.SqlglotError: it isn't one SELECT of Spark's dialect.
    """
    tree = sqlglot.parse_one(text, read="spark")
    inner = {table.alias for table in tree.find_all(exp.CTE)}
    reads = frozenset(table.name for table in tree.find_all(exp.Table)) - inner
    comments = [line.removeprefix("--").strip() for line in text.splitlines() if line.startswith("--")]
    return View(name, " ".join(comments), text, reads)


@functools.cache
def views() -> dict[str, View]:
    """All views by name, each after those that it names."""
    folder = files("sql")
    texts = {file.name.removesuffix(".sql"): file.read_text("utf-8") for file in folder.iterdir() if file.is_file()}
    found = {name: parse_view(name, text) for name, text in texts.items() if not name.startswith("_")}
    order = TopologicalSorter({name: view.reads & found.keys() for name, view in found.items()}).static_order()
    return {name: found[name] for name in order}


def needed(names: Iterable[str]) -> tuple[list[View], list[str]]:
    """The views that these names stand for or lean on, in order of creation, and the tables below them."""
    known, wanted = views(), set(names)
    for view in reversed(known.values()):
        if view.name in wanted:
            wanted |= view.reads
    return [view for name, view in known.items() if name in wanted], sorted(wanted - known.keys())


def create_views(spark: SparkSession, lake: str, database: str | None = None) -> list[str]:
    """Create all views in Spark over the lake's tables, and one for each subscription; gives the names of the former.

    Args:
        database: where persistent views go, over tables of these names that are there; None: temporary views and
            tables of this session, a missing table empty.
    """
    from deltalake import DeltaTable  # noqa: PLC0415
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

    if database is None:
        for name, schema in CATALOG.items():
            uri = f"{lake.rstrip('/')}/{name}"
            if DeltaTable.is_deltatable(uri):
                rows = spark.read.format("delta").load(uri)
            else:
                rows = spark.createDataFrame([], from_arrow_schema(schema))
            rows.createOrReplaceTempView(name)
    kind = "TEMPORARY VIEW" if database is None else "VIEW"
    for view in views().values():
        name = f"`{view.name}`" if database is None else f"`{database}`.`{view.name}`"
        spark.sql(f"CREATE OR REPLACE {kind} {name} AS {view.select}")
    keep_subscription_views(spark, lake, set(views()), database)
    return list(views())
