"""Compares all tables and views of two lakes: do two versions of the code make the same of the same records?

    python -m tools.compare_lakes A B [NAME ...]

Prints a line for each table and view, or for those named, with its rows in A and in B, and ends with 1 if any differs.
Rows are compared without their order, and every value by its text: doubles by all their digits, those of views by 12,
since DuckDB's threads add in any order. What follows the clock or chance is left out (`LEFT_OUT`).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

import duckdb
import pyarrow as pa

from kafka_telemetry_lake.pipelines.lake.moments import MOMENTS
from kafka_telemetry_lake.pipelines.query.lake_query import relations, run_query
from kafka_telemetry_lake.pipelines.query.query_errors import QueryError

LEFT_OUT = {
    "pipeline_metrics": ("run_id", "started_at", "ended_at", "seconds", "records_per_s", "freshness_s", "landed_date"),
    "pipeline_health": ("last_batch_at", "freshness_s", "busy", "longest_batch_s"),
    "lost_records": ("noticed_at", "landed_date"),
    "quality_results": ("checked_at", "landed_date", "seconds"),
    "open_findings": ("open_hours",),
    "finding_changes": ("recorded_at", "landed_date"),
}
SHOWN = 3  # rows of a difference


class Compared(NamedTuple):
    """A relation's rows in both lakes.

    Attributes:
        rows: their number in A and in B.
        differences: lines of text; empty: none.
    """

    rows: tuple[int, int]
    differences: list[str]


def main(argv: Sequence[str] | None = None) -> int:
    """Compare two lakes; returns 1 if they differ, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tools.compare_lakes")
    parser.add_argument("lakes", nargs=2, metavar="LAKE")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these tables and views")
    options = parser.parse_args(argv)
    kinds: dict[str, str] = {}
    for lake in options.lakes:
        listed = relations(lake)
        kinds |= zip(listed["name"].to_pylist(), listed["kind"].to_pylist(), strict=True)
    different, names = 0, options.names or sorted(kinds.keys() - {MOMENTS})
    for name in names:
        rows, differences = compared(*options.lakes, name, is_view=kinds.get(name) == "view")
        print(f"{'DIFFERENT' if differences else 'same':9} {name}: {rows[0]:,} and {rows[1]:,} rows")
        for line in differences:
            print(f"    {line}")
        different += bool(differences)
    print(f"{different} of {len(names)} differ")
    return int(different > 0)


def compared(a: str, b: str, name: str, is_view: bool) -> Compared:
    """Compare the rows of a table or view in two lakes."""
    try:
        left, right = (run_query(lake, f'FROM "{name}"').read_all() for lake in (a, b))
    except (QueryError, duckdb.Error) as error:
        return Compared((0, 0), [str(error)])
    lines = [
        f"column {column} is only in {'A' if column in left.column_names else 'B'}"
        for column in sorted(set(left.column_names) ^ set(right.column_names))
    ]
    out = LEFT_OUT.get(name, ())
    shared = [column for column in left.column_names if column in right.column_names and column not in out]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("a", left).register("b", right)
        one, other = (_texts(rows.select(shared).schema, is_view) for rows in (left, right))
        only_a = connection.sql(f"SELECT {one} FROM a EXCEPT ALL SELECT {other} FROM b ORDER BY ALL").fetchall()
        only_b = connection.sql(f"SELECT {other} FROM b EXCEPT ALL SELECT {one} FROM a ORDER BY ALL").fetchall()
    for lake, rows in (("A", only_a), ("B", only_b)):
        if rows:
            lines.append(f"{len(rows):,} rows are only in {lake}")
    if only_a and len(only_a) == len(only_b):
        pairs = list(zip(only_a, only_b, strict=True))
        columns = [column for place, column in enumerate(shared) if any(x[place] != y[place] for x, y in pairs)]
        lines.append(f"columns that differ, row by row in order: {', '.join(columns)}")
    for lake, rows in (("A", only_a), ("B", only_b)):
        lines += [f"{lake}: {dict(zip(shared, row, strict=True))}" for row in rows[:SHOWN]]
    return Compared((left.num_rows, right.num_rows), lines)


def _texts(columns: pa.Schema, is_view: bool) -> str:
    """The items of a SELECT that has each column as text."""
    return ", ".join(
        f"printf('%.12g', \"{column.name}\")"
        if is_view and pa.types.is_float64(column.type)
        else f'"{column.name}"::VARCHAR'
        for column in columns
    )


if __name__ == "__main__":
    raise SystemExit(main())
