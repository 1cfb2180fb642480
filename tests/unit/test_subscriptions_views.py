"""The subscriptions' views in DuckDB, over hand-made pushes of three clients and the history of three polls."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot

from pipelines.subscriptions import ConfiguredSubscriptions, sync_subscriptions
from tests.lake_tables import table
from udfs.subscription_history import client_attributes_ids, client_matches
from udfs.subscriptions import CLIENTS, Subscription

SQL = Path(__file__).parent.parent.parent / "sql"
VIEWS = (
    "push_subscriptions",
    "subscription_uncertain_spans",
    "subscription_metrics",
    "unsubscribed_metrics",
    "subscription_changes",
    "subscription_coverage",
    "subscription_cost",
)
T = [datetime(2026, 11, 21, 12, minute, tzinfo=UTC) for minute in range(20)]
KEY = {"source": "kafka", "topic": "t", "partition": 0, "cluster_id": "c1"}
POLLS = {
    0: [Subscription("all", ("*",), 1000, (("client_id", "orders-.*"),)), Subscription("none", (), 500)],
    4: [Subscription("producers", ("p.",), 900_000, (("client_software_name", "java"),))],
    8: [
        Subscription("producers", ("p.", "q."), 900_000, (("client_software_name", "java"),)),
        Subscription("odd", ("c.",), 1000, (("client_id", r"\borders"),)),
    ],
}
ORDERS = {"client_id": "orders-1", "client_software_name": "java", "client_software_version": "4"}
BILLS = {"client_id": "bills", "client_software_name": "java", "client_software_version": "4"}
OTHER = {"client_id": "other", "client_software_name": None, "client_software_version": None}
# Minute, client, metrics.
PUSHES: list[tuple[int, dict[str, Any], list[str]]] = [
    (1, ORDERS, ["p.a", "c.b"]),
    (1, BILLS, ["p.a"]),
    (5, ORDERS, ["p.a", "c.b"]),
    (9, BILLS, ["p.a", "q.b"]),
    (9, ORDERS, ["c.b"]),
    (6, OTHER, ["p.a"]),
    (5, ORDERS, ["c.b"]),
    (4, ORDERS, ["p.a"]),
]
UNDER = {6: T[1]}  # the push whose SubscriptionId is that of an earlier time


def tables(folder: Path) -> dict[str, pa.Table]:
    """The lake's tables that the views read, with the columns that they read."""
    for minute, subscriptions in POLLS.items():
        sync_subscriptions(str(folder), T[minute], ConfiguredSubscriptions("c1", tuple(subscriptions)))
    versions = table(folder, "subscriptions")
    schema = pa.schema([pa.field("cluster_id", pa.string()), *CLIENTS])
    clients = pa.Table.from_pylist([{"cluster_id": "c1", **each} for each in (ORDERS, BILLS, OTHER)], schema)
    ids = dict(zip(("orders-1", "bills", "other"), client_attributes_ids(clients).to_pylist(), strict=True))
    pushes, outcomes, points = [], [], []
    for offset, (minute, client, metrics) in enumerate(PUSHES):
        key = {**KEY, "offset": offset, "landed_at": T[minute]}
        size = {"payload_bytes": 1500, "compression_type": "none" if client is BILLS else "zstd"}
        pushes.append({**key, **client, "client_instance_id": client["client_id"], **size})
        outcome = {"client_attributes_id": ids[client["client_id"]], "points": len(metrics), "decompressed_bytes": 3000}
        outcomes.append({**key, **outcome, "subscription_at": UNDER.get(offset)})
        points += [{**key, "metric": metric} for metric in metrics]
    return {
        "subscriptions": versions,
        "client_matches": client_matches(clients, versions),
        "pushes": pa.Table.from_pylist(pushes),
        "push_outcomes": pa.Table.from_pylist(outcomes),
        "metric_points": pa.Table.from_pylist(points),
    }


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, content in tables(tmp_path_factory.mktemp("lake")).items():
        connection.register(name, content)
    for view in VIEWS:
        text = (SQL / f"{view}.sql").read_text()
        connection.execute(f"CREATE VIEW {view} AS {sqlglot.transpile(text, read='spark', write='duckdb')[0]}")
    yield connection
    connection.close()


def rows(lake: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    return lake.sql(sql).fetchall()


def test_points_per_subscription_as_of_the_push(lake: duckdb.DuckDBPyConnection) -> None:
    assert rows(lake, 'SELECT "offset", subscription, metric FROM subscription_metrics ORDER BY ALL') == [
        (0, "all", "c.b"),
        (0, "all", "p.a"),
        (2, "producers", "p.a"),
        (3, "producers", "p.a"),
        (3, "producers", "q.b"),
        (6, "all", "c.b"),  # pushed under the subscription of minute 1
        (7, "producers", "p.a"),  # landed at the poll that saw the change
    ]


def test_points_that_nobody_asked_for(lake: duckdb.DuckDBPyConnection) -> None:
    """Offset 4 may have been asked for by `odd`, whose pattern isn't translated."""
    assert rows(lake, 'SELECT "offset", metric FROM unsubscribed_metrics ORDER BY ALL') == [
        (1, "p.a"),
        (2, "c.b"),
        (5, "p.a"),
    ]


def test_what_lies_between_polls_is_uncertain(lake: duckdb.DuckDBPyConnection) -> None:
    told = rows(lake, "SELECT since, until FROM subscription_uncertain_spans ORDER BY ALL")
    assert told == [(datetime(1970, 1, 1, tzinfo=UTC), T[0]), (T[0], T[4]), (T[4], T[8])]
    sql = 'SELECT DISTINCT "offset", subscription_uncertain FROM subscription_metrics ORDER BY ALL'
    assert rows(lake, sql) == [(0, True), (2, True), (3, False), (6, False), (7, False)]


def test_changes(lake: duckdb.DuckDBPyConnection) -> None:
    assert rows(lake, 'SELECT "at", not_before, change, subscription FROM subscription_changes ORDER BY ALL') == [
        (T[0], None, "created", "all"),
        (T[0], None, "created", "none"),
        (T[4], T[0], "created", "producers"),
        (T[4], T[0], "deleted", "all"),
        (T[4], T[0], "deleted", "none"),
        (T[8], T[4], "changed", "producers"),
        (T[8], T[4], "created", "odd"),
    ]


def test_coverage_tells_who_never_delivered_a_prefix(lake: duckdb.DuckDBPyConnection) -> None:
    columns = "subscription, prefix, client_software_name, client_software_version, asked, delivering, metrics"
    assert rows(lake, f"SELECT {columns} FROM subscription_coverage ORDER BY ALL") == [
        ("all", "*", "java", "4", 1, 1, 2),
        ("producers", "p.", "java", "4", 2, 2, 1),
        ("producers", "q.", "java", "4", 2, 1, 1),
    ]


def test_cost(lake: duckdb.DuckDBPyConnection) -> None:
    sql = (
        "SELECT subscription, client_id, pushes, points, payload_bytes, decompressed_bytes, compression_ratio, "
        "large_uncompressed FROM subscription_cost ORDER BY ALL"
    )
    assert rows(lake, sql) == [
        ("all", "orders-1", 2, 3, 3000, 6000, 2.0, 0),
        ("producers", "bills", 1, 2, 1500, 3000, 2.0, 1),
        ("producers", "orders-1", 2, 2, 2250, 4500, 2.0, 0),
    ]
