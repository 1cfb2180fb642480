"""Adds up rows of `metric_points` that were committed together, and keeps means and maxima of the last minutes.

DuckDB groups the rows. What it returns is bounded, however many clients there are: for each counter and gauge the label
sets that have a series already, the greatest of the others, and the rest in one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from kafka_telemetry_lake.pipelines.export.families import Labels
from kafka_telemetry_lake.pipelines.export.known_clients import KNOWN
from kafka_telemetry_lake.pipelines.export.measures import (
    DIMENSIONS,
    LEVELS,
    LONGEST_LABEL,
    UNCOUNTED,
    Dimension,
    counted_rows,
    level_rows,
    read_metrics,
)
from kafka_telemetry_lake.pipelines.query.duckdb_engine import connect
from kafka_telemetry_lake.pipelines.sql_text import filled, sql_file
from kafka_telemetry_lake.udfs.rows import METRIC_POINTS

# Columns of metric_points that are read.
READ = pa.schema(
    [
        METRIC_POINTS.field(name)
        for name in (
            "cluster_id", "client_instance_id", "client_id", "metric", "attributes", "value", "delta", "delta_status",
            "landed_at",
        )
    ]
)  # fmt: skip
_COUNTED = pa.schema(
    [("metric", pa.string()), ("measure", pa.string()), ("level", pa.string()), ("with_topic", pa.bool_())]
)
_LEVELS = pa.schema([("metric", pa.string()), ("measure", pa.string()), ("above_zero", pa.bool_())])

_POINTS = sql_file("export", "points")
_COUNTED_ONCE = sql_file("export", "counted_once")
_SUMS = sql_file("export", "sums")
_VALUES = sql_file("export", "values")

Increment = tuple[Labels, float, float]
Increments = tuple[list[Increment], tuple[float, float] | None]
Value = tuple[float, int, float]  # sum of the values, their number, the greatest


class Sums:
    """Sums of the rows of some commits.

    Args:
        connection: with the lake's files, if the rows are those of a view.
    """

    def __init__(
        self, dimensions: Sequence[str], top: int, connection: duckdb.DuckDBPyConnection | None = None
    ) -> None:
        self._dimensions = [DIMENSIONS[name] for name in dimensions]
        self._top = top
        self._connection = connect(memory="1GB", threads="1") if connection is None else connection
        for name, rows, schema in (("counted", counted_rows(), _COUNTED), ("levels", level_rows(), _LEVELS)):
            self._keep(name, pa.Table.from_pylist(rows, schema))
        self.know(KNOWN.empty_table())

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def know(self, instances: pa.Table) -> None:
        """Take the clients' applications and software, columns of `KNOWN`."""
        self._keep("known", instances)

    def take(self, rows: pa.Table | str, also: str = "true") -> None:
        """Take the rows that are added up next.

        Args:
            rows: a table with the columns of `READ`, or the name of a view of the connection.
            also: condition that rows of the view must meet.
        """
        points = rows if isinstance(rows, str) else "taken"
        if not isinstance(rows, str):
            self._connection.register("taken", rows)
        values = {"points": points, "uncounted": str(UNCOUNTED), "metrics": str(tuple(read_metrics()))}
        select = filled(_POINTS, values)
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE points AS {select} AND {also}")
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE counted_once AS {_COUNTED_ONCE}")
        if not isinstance(rows, str):
            self._connection.unregister("taken")

    def newest(self) -> float:
        """Landing of the newest row that was taken, Unix seconds; 0: there is none."""
        newest = self._connection.execute("SELECT max(seen) FROM points").fetchone()
        return float(newest[0] or 0) if newest else 0.0

    def increments(self, own: Mapping[tuple[str, str], Iterable[Labels]]) -> dict[tuple[str, str], Increments]:
        """Increments by dimension and measure, in the unit of their metrics.

        Args:
            own: by the same, label sets that have a series.
        """
        result: dict[tuple[str, str], Increments] = {}
        for dimension in self._dimensions:
            self._connection.register("own", _own_table(dimension, own))
            level = "topic" if dimension.name == "topic" else "client"
            for measure, has_series, *labels, increase, seen in self._ask(_SUMS, dimension, level=level):
                series, rest = result.get((dimension.name, measure), ([], None))
                if has_series:
                    series.append((tuple(labels), increase, seen))
                else:
                    rest = (increase, seen)
                result[dimension.name, measure] = (series, rest)
            self._connection.unregister("own")
        return result

    def values(self) -> dict[tuple[str, str], dict[Labels | None, Value]]:
        """Values by dimension, measure and label set, in the unit of their metrics; None: all but the first N."""
        result: dict[tuple[str, str], dict[Labels | None, Value]] = {}
        means = str(tuple(each.measure for each in LEVELS if each.is_mean))
        for dimension in self._dimensions:
            if dimension.name == "topic":
                continue
            for measure, has_series, *labels, total, number, most in self._ask(_VALUES, dimension, means=means):
                values = result.setdefault((dimension.name, measure), {})
                values[tuple(labels) if has_series else None] = (total, int(number), most)
        return result

    def _ask(self, sql: str, dimension: Dimension, **values: str) -> list[tuple[Any, ...]]:
        names = dimension.labels[1:]
        labels = ", ".join(
            f"left(coalesce(p.{column}, ''), {LONGEST_LABEL}) AS {label}" for column, label in dimension.columns.items()
        )
        values |= {"names": ", ".join(names), "nothing": ", ".join("''" for _ in names)}
        text = filled(sql, values | {"labels": labels, "top": str(self._top)})
        return self._connection.execute(text).fetchall()

    def _keep(self, name: str, rows: pa.Table) -> None:
        self._connection.register("kept", rows)
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS FROM kept")
        self._connection.unregister("kept")


def _own_table(dimension: Dimension, own: Mapping[tuple[str, str], Iterable[Labels]]) -> pa.Table:
    rows = [(measure, *labels) for (name, measure), every in own.items() if name == dimension.name for labels in every]
    names = ("measure", *dimension.labels)
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return pa.table({name: pa.array(column, pa.string()) for name, column in zip(names, columns, strict=True)})


_IS_MEAN = {each.measure: each.is_mean for each in LEVELS}

Values = Mapping[tuple[str, str], Mapping[Labels | None, Value]]


@dataclass(frozen=True)
class _Part:
    version: int
    newest: float
    values: Values


class Window:
    """Values of some commits, of which old ones are dropped."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []

    def add(self, version: int, newest: float, values: Values) -> None:
        """Add the values of a commit, or of several that were read together.

        Args:
            version: of the first of them.
            newest: landing of their newest point, Unix seconds.
        """
        if values:
            self._parts.append(_Part(version, newest, values))

    def drop(self, before: float) -> None:
        """Drop the values of commits whose newest point landed before a time."""
        self._parts = [part for part in self._parts if part.newest >= before]

    def oldest(self, otherwise: int) -> int:
        """The version of the oldest commit with values; `otherwise` if there is none."""
        return min((part.version for part in self._parts), default=otherwise)

    def values(self, since: float, top: int) -> Iterator[tuple[tuple[str, str], dict[Labels | None, float]]]:
        """The gauges of the commits since a time: the `top` greatest of each, and one of all others (None)."""
        self.drop(since)
        merged: dict[tuple[str, str], dict[Labels | None, Value]] = {}
        for part in self._parts:
            for key, rows in part.values.items():
                known = merged.setdefault(key, {})
                for labels, value in rows.items():
                    known[labels] = _both(known[labels], value) if labels in known else value
        for (dimension, measure), rows in merged.items():
            number = _mean if _IS_MEAN[measure] else _most
            greatest = sorted((labels for labels in rows if labels is not None), key=lambda each: -number(rows[each]))
            result: dict[Labels | None, float] = {labels: number(rows[labels]) for labels in greatest[:top]}
            rest = rows.get(None)
            for labels in greatest[top:]:
                rest = rows[labels] if rest is None else _both(rest, rows[labels])
            if rest is not None:
                result[None] = number(rest)
            yield (dimension, measure), result


def _both(one: Value, other: Value) -> Value:
    return one[0] + other[0], one[1] + other[1], max(one[2], other[2])


def _mean(value: Value) -> float:
    return value[0] / value[1]


def _most(value: Value) -> float:
    return value[2]
