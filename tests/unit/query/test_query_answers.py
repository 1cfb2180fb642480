"""What ``telemetry-lake query`` says beside its rows: names that were meant, and why there are no rows."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.query.query_errors import QueryError, why_empty
from kafka_telemetry_lake.pipelines.query.views import views
from kafka_telemetry_lake.pipelines.sql_text import sql_yaml
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG, MEANINGS
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES, TABLES
from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS

TIME = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("answers") / "lake")
    for table in TABLES:
        table.create(folder)
    row = {"client_id": "orders", "landed_at": TIME, "landed_date": TIME.date()}
    for table in (table for table in TABLES if table.name in ("pushes", "push_outcomes", "metric_rollups_1h")):
        rows = pa.Table.from_pylist([row], table.stored)
        write_deltalake(table.uri(folder), rows, mode="append")
    return folder


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT * FROM fidings", "no table or view is called fidings; did you mean findings"),
        ("SELECT * FROM Push", "no table or view is called Push; did you mean pushes?"),
        ("SELECT clientid FROM pushes", "no column is called clientid; did you mean client_id or"),
        ("SELECT p.evidense FROM findings AS p", "no column is called evidense; did you mean evidence or event?"),
        (
            "SELECT client_id FROM pushes ORDER BY landed",
            "no column is called landed; did you mean landed_at or landed_date?",
        ),
        ("SELECT zzz FROM pushes", "no column is called zzz"),
        (
            "SELECT sum(client_id) FROM pushes",
            "No function matches the given name and argument types 'sum(VARCHAR)'. You might need to add explicit type "
            "casts.",
        ),
        ("SELEC 1", 'syntax error at or near "SELEC"'),
        ("SELECT 1 WHERE 'x'", "Could not convert string 'x' to BOOL"),
    ],
)
def test_errors_name_what_was_meant_and_repeat_nothing(lake: str, sql: str, said: str) -> None:
    with pytest.raises(QueryError) as error:
        run_query(lake, sql).read_all()
    assert str(error.value).startswith(said) or said in str(error.value)
    assert len(str(error.value)) < 200
    assert "LINE 1" not in str(error.value)


def test_show_tables_lists_tables_and_views(lake: str, tmp_path: Path) -> None:
    for sql in ("SHOW TABLES", "show all tables;", "SHOW VIEWS"):
        rows = {row["name"]: row for row in run_query(lake, sql).read_all().to_pylist()}
        assert rows.keys() == CATALOG.keys() | views().keys() | {"moments"}
    assert rows["pushes"] == {"name": "pushes", "kind": "table", "meaning": MEANINGS["pushes"]}
    assert rows["quotas"]["kind"] == "table, empty"
    assert rows["findings"]["kind"] == "view"
    assert rows["findings"]["meaning"].startswith("What is wrong with which client")
    with pytest.raises(QueryError, match="no lake at"):
        run_query(str(tmp_path), "SHOW TABLES")
    with pytest.raises(QueryError, match="this lake's tables: client_events, metric_points"):
        run_query(lake, "SELECT * FROM no_table")


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT * FROM subscription_cost", "no subscriptions are known: `telemetry-lake sync` has recorded none"),
        ("SELECT * FROM quota_history", "no quotas are known: `telemetry-lake sync`"),
        ("SELECT * FROM throttled_clients", "neither brokers nor clients have reported quota use"),
        ("SELECT * FROM consumer_group_members", "no group members are known: `telemetry-lake sync`"),
        ("FROM client_aliases", "--aliases-file"),
        ("SELECT * FROM quarantine WHERE landed_at > now()", "nothing is damaged"),
        ("SELECT * FROM quarantine_offenders", "nothing is damaged"),
        ("SELECT * FROM findings", "no rule of docs/findings.md found anything"),
        ("SELECT * FROM findings WHERE severity = 'x'", None),
        ("SELECT * FROM pushes WHERE client_id = 'x'", None),
        ("SELECT 1 WHERE FALSE", None),
    ],
)
def test_an_empty_result_says_why_if_the_lake_shows_it(lake: str, sql: str, said: str | None) -> None:
    reason = why_empty(lake, sql)
    assert (reason is None) == (said is None)
    assert said is None or (reason is not None and said in reason)


def test_a_table_without_rows_has_another_reason_than_a_missing_one(lake: str, tmp_path: Path) -> None:
    for table in (PUSHES, SUBSCRIPTIONS):
        table.create(str(tmp_path))
    assert why_empty(str(tmp_path), "FROM subscriptions") == "the cluster has no client-metrics subscription"
    assert str(why_empty(str(tmp_path), "FROM pushes")).startswith("no push has landed in this lake")
    assert why_empty(lake, "FROM subscriptions") != why_empty(str(tmp_path), "FROM subscriptions")


def test_reasons_are_of_tables_and_views_that_exist() -> None:
    known = sql_yaml("query", "empty.yml")
    assert known["tables"].keys() <= CATALOG.keys()
    assert known["views"].keys() | known["nothing"].keys() <= views().keys()
    tables: set[Any] = {table for names in known["views"].values() for table in names}
    assert tables <= known["tables"].keys()
