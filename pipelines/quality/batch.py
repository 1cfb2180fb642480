"""Data quality rules that the job checks in each micro-batch.

The rules are those of `telemetry-lake quality`: the stream detects a fault as it happens, the command checks what is
stored. Rules across tables use the totals over all rows of a batch. Rules of single rows check all rows of the small
tables, but only every 16th data point, because a conversion fault affects many points.
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

from kafka_telemetry_lake.pipelines.quality.rules import KEYS, RULES, Rule
from kafka_telemetry_lake.pipelines.query.duckdb_engine import connect
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, PUSH_OUTCOMES
from kafka_telemetry_lake.pipelines.tables.table import Table

BROKEN = "broken:"  # before a rule's name, among a task's counts
EACH = {METRIC_POINTS.name: 16}  # check every n-th row


class BatchChecks:
    """Counts the rows of one task that break rules; the counts add up over tasks."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._samples: dict[str, list[pa.Table]] = {}

    def read(self, pushes: pa.Table) -> None:
        """Count the pushes of a slice that occur in it twice."""
        self._counts["repeated"] += pushes.num_rows - pushes.select(KEYS).group_by(KEYS).aggregate([]).num_rows

    def write(self, table: Table, rows: pa.Table) -> None:
        """Count and sample rows to be written to a table."""
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
        """All counts, including those of broken row rules."""
        broken: Counter[str] = Counter()
        for name, samples in self._samples.items():
            broken.update(_rows_that_break(name, pa.concat_tables(samples, promote_options="permissive")))
        return self._counts + broken


def broken_rules(counts: Mapping[str, int]) -> dict[str, int]:
    """Name of each broken rule to its number of rows, from the summed counts of a batch's tasks."""
    broken = {name.removeprefix(BROKEN): rows for name, rows in counts.items() if name.startswith(BROKEN)}
    for rule in RULES:
        if rows := rule.broken_in_batch(counts):
            broken[rule.name] = broken.get(rule.name, 0) + rows
    return broken


def describe(broken: Mapping[str, int]) -> list[str]:
    """One log line per broken rule: the rule, the number of rows, and what to do."""
    return [
        f"{rule.table}: {rule.says}. {broken[rule.name]:,} rows break this rule. What to do: {rule.do}"
        for rule in RULES
        if rule.name in broken
    ]


def _row_rules(table: str) -> list[Rule]:
    return [rule for rule in RULES if rule.table == table and rule.breaks]


@lru_cache
def _columns(table: str) -> list[str]:
    """The columns that the row rules of a table name."""
    conditions = " ".join(rule.breaks for rule in _row_rules(table))
    return [name for name in CATALOG[table].names if re.search(rf"\b{name}\b", conditions)]


@lru_cache(maxsize=1)
def _connection() -> duckdb.DuckDBPyConnection:
    """One connection per worker: opening one costs as much as checking half a million rows."""
    return connect(threads="1")


def _rows_that_break(table: str, rows: pa.Table) -> dict[str, int]:
    rules = _row_rules(table)
    counts = ", ".join(f"count(*) FILTER ({rule.breaks})" for rule in rules)
    connection = _connection()
    connection.register("added", rows)
    (row,) = connection.execute(f"SELECT {counts} FROM added").fetchall()
    connection.unregister("added")
    return {f"{BROKEN}{rule.name}": broken for rule, broken in zip(rules, row, strict=True) if broken}
