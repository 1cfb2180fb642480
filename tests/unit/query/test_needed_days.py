"""Of a table with many files, a query lists those of the landed days that it reads."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kafka_telemetry_lake.pipelines.query import lake_query, needed_days
from kafka_telemetry_lake.pipelines.query.duckdb_tables import register_table as register
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.query.query_errors import QueryError
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS, METRIC_POINTS

pytestmark = pytest.mark.lake

TODAY = datetime.now(UTC)
DAYS = [(TODAY - timedelta(days=age)).date().isoformat() for age in range(3)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A point and an event on each of three days."""
    lake = tmp_path_factory.mktemp("days")
    for age in range(3):
        at = TODAY - timedelta(days=age)
        point = {"landed_at": at, "time": at, "metric": f"m{age}", "value": float(age), "client_id": "a"}
        event = {"landed_at": at, "at": at, "event": "resumed", "client_instance_id": f"i{age}"}
        for table, row in ((METRIC_POINTS, point), (CLIENT_EVENTS, event)):
            rows = table.with_partition(pa.Table.from_pylist([row], table.schema))
            write_deltalake(table.create(str(lake)), rows, mode="append")
    return lake


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The days of each large table whose files were listed; a table is large from one file on."""
    days: dict[str, list[str]] = {}

    def register_table(connection: Any, name: str, table: DeltaTable, *, days: Collection[str] | None = None) -> None:
        if days is not None:
            seen[name] = sorted(days)
        register(connection, name, table, days=days)

    seen = days
    monkeypatch.setattr(needed_days, "MANY_FILES", 1)
    monkeypatch.setattr(lake_query, "register_table", register_table)
    return days


def answer(lake: Path, sql: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in run_query(str(lake), sql).read_all().to_pylist())


@pytest.mark.parametrize(
    ("sql", "ages"),
    [
        ("SELECT metric FROM metric_points WHERE landed_date = current_date", [0]),
        ("SELECT metric FROM metric_points WHERE landed_date >= current_date - INTERVAL 1 DAY", [0, 1]),
        (f"SELECT metric FROM metric_points WHERE landed_date IN ('{DAYS[0]}', '{DAYS[2]}')", [0, 2]),
        (f"WITH p AS (FROM metric_points) SELECT metric FROM p WHERE landed_date < '{DAYS[0]}'", [1, 2]),
        (f"SELECT a.metric FROM metric_points a JOIN metric_points b ON a.client_id = b.client_id "
         f"WHERE a.landed_date = '{DAYS[0]}' AND b.landed_date = '{DAYS[1]}'", [0, 1]),
        # Conditions that say nothing about days, however they are written.
        ("SELECT metric FROM metric_points", [0, 1, 2]),
        ("SELECT count(*) FROM metric_points", [0, 1, 2]),
        ("SELECT max(value), min(metric) FROM metric_points", [0, 1, 2]),
        ("SELECT metric FROM metric_points WHERE metric = 'm1' AND value > 0.5", [0, 1, 2]),
        ("SELECT metric FROM metric_points WHERE value BETWEEN 2 AND 3", [0, 1, 2]),
        ("SELECT metric FROM metric_points WHERE value_int IS NULL", [0, 1, 2]),
        ("SELECT metric FROM metric_points WHERE landed_date = (SELECT max(landed_date) FROM metric_points)",
         [0, 1, 2]),
        ("SELECT a.metric FROM metric_points a JOIN metric_points b USING (metric) WHERE b.value = 1", [0, 1, 2]),
        # A day that isn't there, and a text that can't be planned alone.
        ("SELECT metric FROM metric_points WHERE landed_date = '2020-01-01'", [0, 1, 2]),
        ("SELECT metric, FROM metric_points ORDER BY at_all(", None),
    ],
)  # fmt: skip
def test_only_files_of_days_that_a_query_reads_are_listed(
    lake: Path, listed: dict[str, list[str]], sql: str, ages: list[int] | None
) -> None:
    if ages is None:
        with pytest.raises(QueryError):
            answer(lake, sql)
        return
    found = answer(lake, sql)
    assert listed == {"metric_points": sorted(DAYS[age] for age in ages)}
    needed_days.MANY_FILES = 2_000
    assert found == answer(lake, sql)


def test_a_view_and_a_column_that_duckdb_reserves(lake: Path, listed: dict[str, list[str]]) -> None:
    sql = "SELECT at, event FROM client_events WHERE landed_date = current_date"
    assert [event for _, event in answer(lake, sql)] == ["resumed"]
    assert listed == {"client_events": sorted(DAYS)}  # not planned: `at` has to be quoted first
    view = f"SELECT client_id, sum(points) FROM subscription_metrics WHERE landed_date = '{DAYS[0]}' GROUP BY ALL"
    with pytest.raises(QueryError):  # it has no column of this name
        answer(lake, view)


def test_a_second_statement_is_never_planned(lake: Path, listed: dict[str, list[str]], tmp_path: Path) -> None:
    target = tmp_path / "stolen.csv"
    with pytest.raises(QueryError, match="one query at a time"):
        answer(lake, f"SELECT 1 FROM metric_points; COPY metric_points TO '{target}'")
    assert not target.exists()


def test_a_small_table_has_no_stand_in(lake: Path) -> None:
    table = DeltaTable(str(lake / "metric_points"))
    assert needed_days.days_of(table) is None
    assert table.metadata().partition_columns == ["landed_date"]
