"""The rules of ``quality_rules`` that the stream of points looks at itself, batch by batch.

The same list as `telemetry-lake quality` checks: a batch shows a fault when it happens, the command what lies in the
lake. Rules that tie tables together are judged over a batch's totals, all rows of it. Rules of single rows are counted
over each 16th data point, since faults of a conversion come in swarms, and over all rows of the small tables.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.quality_rules import KEYS, RULES, Rule
from pipelines.tables import METRIC_POINTS, PUSH_OUTCOMES, Table

BROKEN = "broken:"  # before a rule's name, among a task's counts
EACH = {METRIC_POINTS.name: 16}  # rows of which one is looked at


class BatchChecks:
    """What one task finds about the rows that it writes, as counts that add up over tasks."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._samples: dict[str, list[pa.Table]] = {}

    def read(self, pushes: pa.Table) -> None:
        """Take note of the pushes of a slice: of those that stand in it twice."""
        self._counts["repeated"] += pushes.num_rows - pushes.select(KEYS).group_by(KEYS).aggregate([]).num_rows

    def write(self, table: Table, rows: pa.Table) -> None:
        """Take note of rows for one of the tables."""
        if table is PUSH_OUTCOMES and rows.num_rows:
            rejected = pc.or_kleene(pc.equal(rows["outcome"], "quarantined"), pc.greater(rows["quarantined_points"], 0))
            self._counts.update(
                outcome_points=pc.sum(rows["points"]).as_py() or 0, outcomes_rejected=pc.sum(rejected).as_py() or 0
            )
        if (columns := _columns(table.name)) and rows.num_rows:
            rows = rows.select(columns)
            if (each := EACH.get(table.name, 1)) > 1:
                rows = rows.take(pa.array(np.arange(0, rows.num_rows, each)))
            self._samples.setdefault(table.name, []).append(rows)

    def counts(self) -> Counter[str]:
        """All counts, those of broken row rules among them."""
        broken: Counter[str] = Counter()
        for name, samples in self._samples.items():
            broken.update(_rows_that_break(name, pa.concat_tables(samples, promote_options="permissive")))
        return self._counts + broken


def broken_rules(counts: Mapping[str, int]) -> dict[str, int]:
    """Rows that break a rule, by its name, of the summed counts of a batch's tasks; those that hold aren't named."""
    found = {name.removeprefix(BROKEN): rows for name, rows in counts.items() if name.startswith(BROKEN)}
    for rule in RULES:
        if rule.in_batch is not None and (rows := rule.in_batch(Counter(counts))):
            found[rule.name] = found.get(rule.name, 0) + abs(rows)
    return found


def told(broken: Mapping[str, int]) -> list[str]:
    """A line for a person of each rule that is broken."""
    return [
        f"{rule.table}: {rule.says}. {broken[rule.name]:,} rows don't keep to it. What to do: {rule.do}"
        for rule in RULES
        if rule.name in broken
    ]


def _row_rules(table: str) -> list[Rule]:
    return [rule for rule in RULES if rule.table == table and rule.breaks]


@lru_cache
def _columns(table: str) -> list[str]:
    """The columns that the row rules of a table name."""
    from pipelines.catalog import CATALOG  # noqa: PLC0415  # names every table, also those of the other streams

    conditions = " ".join(rule.breaks for rule in _row_rules(table))
    return [name for name in CATALOG[table].names if re.search(rf"\b{name}\b", conditions)]


@lru_cache(maxsize=1)
def _connection() -> duckdb.DuckDBPyConnection:
    """One for a worker's life: opening one costs as much as looking at half a million rows."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _rows_that_break(table: str, rows: pa.Table) -> dict[str, int]:
    rules = _row_rules(table)
    counts = ", ".join(f"count(*) FILTER ({rule.breaks})" for rule in rules)
    connection = _connection()
    connection.register("added", rows)
    (found,) = connection.execute(f"SELECT {counts} FROM added").fetchall()
    connection.unregister("added")
    return {f"{BROKEN}{rule.name}": broken for rule, broken in zip(rules, found, strict=True) if broken}
