"""Tells which sums of a query count the same twice: a client's total and the totals of its topics, say.

The query is not checked by its text. Each SELECT with a sum is run once more, with a column for the metrics and levels
whose points the sum adds up (those that are neither NULL nor 0), in each of its groups. Two of them that count the same
(view known_metrics) are one sum too many. Not checked: window functions, sums over relations without the columns metric
and attributes (or attribute_keys), and SELECTs that read columns of an outer one.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import sqlglot
from sqlglot import exp

from kafka_telemetry_lake.pipelines.query.known_metrics import known_metrics

_FOUND = "_summed"
# Names of a point's attributes, of metric_points and of the rollups.
_KEYS = ("array_to_string(list_sort(map_keys({0}attributes)), ',')", "{0}attribute_keys")

Pushed = tuple[str, str]
"""A metric, and the names of its points' attributes, comma-separated."""


def summed_levels(connection: duckdb.DuckDBPyConnection, sql: str) -> str | None:
    """A sentence about the sums of a query that count the same twice; None if none does, or the text isn't a query.

    Args:
        connection: has the tables and views that the query reads.
    """
    try:
        tree = sqlglot.parse_one(sql, read="duckdb")
    except sqlglot.errors.SqlglotError:
        return None
    if not isinstance(tree, exp.Query):
        return None
    found = {
        (total.sql("duckdb"), *pair): None
        for select in tree.find_all(exp.Select)
        for total in _sums(select)
        for pair in _twice(_added_up(connection, tree, select, total))
    }
    if not found:
        return None
    (total, first, second), *others = found
    more = f"; so do {len(others)} more metrics" if others else ""
    return f"{total} counts the same twice: {_named(first)} and {_named(second)}{more}: see view metric_catalog"


def _sums(select: exp.Select) -> Iterator[exp.Sum]:
    """The sums of this SELECT itself, not of those inside it."""
    for total in select.find_all(exp.Sum):
        windowed = total.find_ancestor(exp.Window, exp.Select)
        if not isinstance(windowed, exp.Window) and total.find_ancestor(exp.Select) is select:
            yield total


def _added_up(
    connection: duckdb.DuckDBPyConnection, tree: exp.Query, select: exp.Select, total: exp.Sum
) -> Iterator[set[Pushed]]:
    """What the sum adds up in each group."""
    column = total.find(exp.Column)
    if column is None:
        return
    place = f"{exp.to_identifier(column.table, quoted=True).sql('duckdb')}." if column.table else ""
    condition = f"({total.this.sql('duckdb')}) <> 0"
    if isinstance(total.parent, exp.Filter):
        condition += f" AND ({total.parent.expression.this.sql('duckdb')})"
    for keys in _KEYS:
        probe = select.copy()
        probe.set("order", None)
        value = f"list(DISTINCT {{'metric': {place}metric, 'keys': {keys.format(place)}}}) FILTER (WHERE {condition})"
        probe.select(exp.alias_(sqlglot.parse_one(value, read="duckdb"), _FOUND), copy=False)
        if select is not tree and (outer := tree.args.get("with_")):
            own = probe.args.get("with_")
            probe.set("with_", exp.With(expressions=[*outer.expressions, *(own.expressions if own else ())]))
        try:
            rows = connection.sql(f"SELECT DISTINCT {_FOUND} FROM ({probe.sql('duckdb')})").fetchall()
        except duckdb.Error:  # no such columns: the query itself says what else is wrong
            continue
        yield from ({(each["metric"], each["keys"] or "") for each in found or ()} for (found,) in rows)
        return


def _twice(groups: Iterator[set[Pushed]]) -> list[tuple[Pushed, Pushed]]:
    """The first two of each group that count the same."""
    pairs = set()
    for pushed in groups:
        first: dict[tuple[str, str], Pushed] = {}
        for each in sorted((one for one in pushed if one[0]), key=lambda one: (one[1].count(","), one[1], one[0])):
            known = known_metrics().get(each[0])
            client = ".".join(each[0].split(".")[3:4])  # producer, consumer, ...: never the same client
            counted = client, (known.measure if known else None) or each[0]
            before = first.setdefault(counted, each)
            # Of a metric that nobody describes, points with some attributes needn't contain those with others.
            if before != each and (known or not before[1]):
                pairs.add((before, each))
    return sorted(pairs)


def _named(pushed: Pushed) -> str:
    metric, keys = pushed
    return f"{metric} per {keys or 'client'}"
