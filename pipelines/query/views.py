"""The views over a lake's tables: files right in `sql/`, in Spark's dialect, for Spark and for DuckDB.

A file has the view's name, and contains a comment with the question that the view answers, and one SELECT. Views may
read other views and any table of ``catalog.CATALOG``; a table that a lake doesn't have yet reads as empty. A file whose
name starts with ``_`` has markers (``pipelines.sql_text``), whose values are made of the rules in `sql/findings/`, of
`sql/metrics/` or of `sql/versions/`, or tell apart several views of one file (`sql/query/several.yml`).

``python -m kafka_telemetry_lake.pipelines.query.views NAME`` prints the view's SELECT, with all values, to read or run.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import TopologicalSorter
from importlib.resources import files

import duckdb
import sqlglot
from sqlglot import exp

from kafka_telemetry_lake.pipelines.findings.model import Overrides
from kafka_telemetry_lake.pipelines.findings.views import finding_values
from kafka_telemetry_lake.pipelines.libraries.views import version_values
from kafka_telemetry_lake.pipelines.query.known_metrics import known_metrics_values
from kafka_telemetry_lake.pipelines.sql_text import filled, sql_yaml

_MICROS = {"MINUTE": 60_000_000, "HOUR": 3_600_000_000}


@dataclass(frozen=True)
class View:
    """A view: the `question` it answers, its SELECT in Spark's dialect, and the tables and views that it reads."""

    name: str
    question: str
    select: str
    reads: frozenset[str]

    @functools.cached_property
    def duckdb(self) -> str:
        """The SELECT in DuckDB's dialect. All names are quoted, since `at` and `offset` are keywords of DuckDB."""
        select = self.select.replace("explode_outer(", "explode(")  # DuckDB has no outer one; no array is empty
        tree = sqlglot.parse_one(select, read="spark").transform(_truncate_fast)
        return tree.sql("duckdb", identify=True, comments=False)


def _truncate_fast(node: exp.Expr) -> exp.Expr:
    """DuckDB's date_trunc looks up the time zone: 104 ns a time. In UTC the start of an hour is a multiple: 7 ns."""
    micros = _MICROS.get(node.text("unit").upper()) if isinstance(node, exp.TimestampTrunc) else None
    if micros is None:
        return node
    time = f"epoch_us({node.this.sql('duckdb')})"
    rest = f"({time} % {micros} + {micros}) % {micros}"  # not negative before 1970 either
    return sqlglot.parse_one(f"make_timestamptz({time} - {rest})", read="duckdb")


@functools.lru_cache(maxsize=256)
def parse_view(name: str, text: str) -> View:
    """Parse the text of a view.

    Raises:
        sqlglot.errors.SqlglotError: `text` isn't one SELECT of Spark's dialect.
    """
    tree = sqlglot.parse_one(text, read="spark")
    inner = {table.alias for table in tree.find_all(exp.CTE)}
    reads = frozenset(table.name for table in tree.find_all(exp.Table)) - inner
    comments = [line.removeprefix("--").strip() for line in text.splitlines() if line.startswith("--")]
    return View(name, " ".join(comments), text, reads)


def views(overrides: Overrides = (), closing: bool = False) -> dict[str, View]:
    """All views by name, each after those that it reads.

    Args:
        overrides, closing: by what the views of the findings judge; see ``finding_values``.
    """
    return {view.name: view for view in needed(_texts(overrides, closing), overrides, closing)[0]}


def view_names() -> frozenset[str]:
    """The names of all views. None of them is parsed, which takes longer than most queries."""
    return frozenset(_texts((), False))


def needed(names: Iterable[str], overrides: Overrides = (), closing: bool = False) -> tuple[list[View], list[str]]:
    """The views among `names` and those they read, in order of creation; and the names of the tables they read."""
    texts, waiting = _texts(overrides, closing), set(names)
    found, tables = dict[str, View](), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in texts:
            tables.add(name)
        elif name not in found:
            found[name] = parse_view(name, texts[name])
            waiting |= found[name].reads
    order = TopologicalSorter({name: view.reads & texts.keys() for name, view in found.items()}).static_order()
    return [found[name] for name in order], sorted(tables)


def create_views(connection: duckdb.DuckDBPyConnection, names: Iterable[str], among: Iterable[View]) -> None:
    """Create temporary views in DuckDB, each with those that it reads as expressions of its own statement.

    DuckDB binds a view when it is created and wherever it is read, so a view of each would be bound many times.

    Args:
        names: the views to create.
        among: these and all that they read, in order of creation (``needed``).
    """
    known = {view.name: view for view in among}
    for name in names:
        below, waiting = set[str](), [name]
        while waiting:
            found = known[waiting.pop()].reads & known.keys() - below
            below |= found
            waiting += found
        parts = ", ".join(f'"{each}" AS NOT MATERIALIZED ({known[each].duckdb})' for each in known if each in below)
        with_them = f"WITH {parts} " if parts else ""
        connection.execute(f'CREATE TEMP VIEW "{name}" AS {with_them}SELECT * FROM ({known[name].duckdb})')


@functools.lru_cache(maxsize=4)
def _texts(overrides: Overrides, closing: bool) -> dict[str, str]:
    """The text of each view, by its name."""
    folder = files("kafka_telemetry_lake.sql")
    texts = {file.name.removesuffix(".sql"): file.read_text("utf-8") for file in folder.iterdir() if file.is_file()}
    made_of_rules = finding_values(overrides, closing) | version_values() | known_metrics_values()
    several = sql_yaml("query", "several.yml") | {f"_{name}": {name: each} for name, each in made_of_rules.items()}
    for file, views_of_file in several.items():
        text = texts.pop(file)
        texts |= {name: filled(text, values) for name, values in views_of_file.items()}
    return texts


if __name__ == "__main__":
    name = " ".join(sys.argv[1:])
    if (printed := _texts((), False).get(name)) is None:
        sys.exit(f"no view is called {name!r}: `telemetry-lake views` lists them")
    print(printed)
