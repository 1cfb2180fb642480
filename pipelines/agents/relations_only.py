"""Refuses queries that name files or functions that read them, so that agents read tables and views only.

`check_reads` and DuckDB's closed configuration already keep every query from writing, and from files outside the lake.
The lake's own files stay readable there, with rows that retention has dropped and states of clients; not here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import duckdb

from kafka_telemetry_lake.pipelines.query.duckdb_engine import NotAQueryError

# Table functions that read nothing but their arguments. `query` and `query_table` would run text made by the query.
HARMLESS = frozenset({"generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest"})
LIKE_A_PATH = re.compile(r"[./\\:*?\[~]")  # DuckDB opens a file where no table has the name: `FROM 'x.parquet'`


def check_relations(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Raise ``NotAQueryError`` unless all that a SELECT reads are tables, views and its own subqueries.

    It looks at the tree that DuckDB parsed, so comments, quotes and nesting hide nothing.

    Raises:
        duckdb.Error: the text isn't SQL.
    """
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise NotAQueryError(f"one query at a time: got {len(statements)} statements")
    rows = connection.execute("SELECT json_serialize_sql(?)", [statements[0].query]).fetchall()
    try:
        tree = json.loads(rows[0][0])
    except RecursionError as error:
        raise NotAQueryError("the query is nested too deeply") from error
    if tree["error"]:
        raise NotAQueryError("only SELECT, FROM, WITH, VALUES, DESCRIBE, SHOW and SUMMARIZE are answered here")
    for node in _nodes(tree):
        kind = node.get("type")
        if kind == "TABLE_FUNCTION":
            name = str(node["function"].get("function_name", "")).lower()
            if name not in HARMLESS:
                raise NotAQueryError(f"{name}() is not allowed here: read tables and views by their names")
        elif kind in ("BASE_TABLE", "SHOW_REF") and LIKE_A_PATH.search(str(node.get("table_name", ""))):
            raise NotAQueryError(f"{node['table_name']} is not the name of a table or view: files are not read here")


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """All objects of a JSON value. A loop: the tree is as deep as the query's author likes."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
