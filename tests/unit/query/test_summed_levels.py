"""Sums that count the same twice: which queries are warned of, and which aren't."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, METRIC_ROLLUPS_1H, TABLES

TIME = datetime(2026, 11, 21, 12, tzinfo=UTC)
K = "org.apache.kafka."
SENT, SENT_TO, READ = "producer.record.send.total", "producer.topic.record.send.total", "fetch.manager.records.consumed"
READ = f"consumer.{READ}.total"
BYTES, NODE_BYTES = "producer.outgoing.byte.total", "producer.node.outgoing.byte.total"
MINE = "shop.orders.total"


def point(client: str, metric: str, delta: float, **attributes: str) -> dict[str, Any]:
    return {
        "client_id": client, "client_instance_id": client, "metric": K + metric, "kind": "sum", "delta": delta,
        "delta_status": "delta", "attributes": list(attributes.items()), "landed_at": TIME, "time": TIME,
        "landed_date": TIME.date(),
    }  # fmt: skip


POINTS = [
    point("java", SENT, 10), point("java", SENT_TO, 4, topic="a"), point("java", SENT_TO, 6, topic="b"),
    point("java", BYTES, 700), point("java", NODE_BYTES, 700, node_id="1"),
    point("reader", READ, 9), point("reader", READ, 9, topic="a"), point("idle", READ, 0, topic="a"),
    point("shop", MINE, 1, status="paid"), point("shop", MINE, 2, status="open", shop="x"),
    point("free", "shop.carts.total", 1), point("free", "shop.carts.total", 2, shop="x"),
]  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("sums") / "lake")
    for table in TABLES:
        table.create(folder)
    write_deltalake(METRIC_POINTS.uri(folder), pa.Table.from_pylist(POINTS, METRIC_POINTS.stored), mode="append")
    rollups = [
        {
            "client_id": row["client_id"], "metric": row["metric"], "kind": "sum", "increase": row["delta"],
            "attribute_keys": ",".join(sorted(dict(row["attributes"]))), "window_start": TIME, "landed_at": TIME,
            "landed_date": TIME.date(),
        }
        for row in POINTS
    ]  # fmt: skip
    rows = pa.Table.from_pylist(rollups, METRIC_ROLLUPS_1H.stored)
    write_deltalake(METRIC_ROLLUPS_1H.uri(folder), rows, mode="append")
    return folder


def warned(lake: str, sql: str) -> list[str]:
    said: list[str] = []
    run_query(lake, sql, warn=said.append).read_all()
    return said


TWICE = f"counts the same twice: {K}{SENT} per client and {K}{SENT_TO} per topic: see view metric_catalog"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT client_id, sum(delta) FROM metric_points WHERE metric LIKE '%record.send.total' GROUP BY 1",
        "SELECT client_id, sum(delta) n FROM metric_points WHERE metric LIKE '%send.total' GROUP BY ALL ORDER BY n",
        "FROM (SELECT client_id, sum(increase) FROM metric_rates_1h WHERE metric LIKE '%record.send.total' GROUP BY 1)",
        "WITH p AS (SELECT * FROM metric_points WHERE metric LIKE '%send.total'), "
        "s AS (SELECT sum(p.delta) AS n FROM p) SELECT max(n) FROM s",
        "SELECT sum(p.delta) FROM metric_points p JOIN metric_rollups_1h USING (metric) "
        "WHERE metric LIKE '%send.total'",
        "SELECT sum(delta) FILTER (WHERE metric LIKE '%send.total') FROM metric_points",
        "SELECT sum(CASE WHEN metric LIKE '%send.total' THEN delta ELSE 0 END) / 2 FROM metric_points",
        "SELECT 1 UNION ALL SELECT sum(delta) FROM counted_points WHERE metric LIKE '%send.total'",
    ],
)
def test_a_sum_of_two_levels_is_one_line(lake: str, sql: str) -> None:
    (said,) = warned(lake, sql)
    assert said.endswith(TWICE), said


def test_one_metric_at_two_levels_and_several_at_once(lake: str) -> None:
    (said,) = warned(lake, f"SELECT sum(delta) FROM metric_points WHERE metric = '{K}{READ}'")
    assert (
        said
        == f"SUM(delta) counts the same twice: {K}{READ} per client and {K}{READ} per topic: see view metric_catalog"
    )
    (said,) = warned(lake, "SELECT client_id, sum(delta) FROM metric_points GROUP BY 1")
    assert "; so do 3 more metrics: see" in said  # records sent, read, bytes out, carts
    (said,) = warned(lake, f"SELECT sum(delta) FROM metric_points WHERE metric = '{K}shop.carts.total'")
    assert f"{K}shop.carts.total per client and {K}shop.carts.total per shop" in said


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT sum(delta) FROM metric_points WHERE metric = '{K}{SENT}'",
        "SELECT metric, sum(delta) FROM metric_points WHERE metric LIKE '%send.total' GROUP BY ALL",
        "SELECT metric, sum(increase) FROM metric_rates_1h GROUP BY metric, attribute_keys",
        "SELECT client_id, sum(delta) FROM metric_points WHERE cardinality(attributes) = 0 GROUP BY 1",
        f"SELECT sum(delta) FROM metric_points WHERE metric = '{K}{READ}' AND attributes['topic'] IS NULL",
        f"SELECT sum(delta) FROM metric_points WHERE metric = '{K}{READ}' AND client_id = 'idle'",
        f"SELECT sum(delta) FROM metric_points WHERE metric = '{K}{MINE}'",  # an application's: nobody knows
        f"SELECT sum(CASE WHEN metric = '{K}{SENT}' THEN delta END) FROM metric_points WHERE metric LIKE '%send.total'",
        "SELECT max(delta), avg(delta), count(delta) FROM metric_points WHERE metric LIKE '%send.total'",
        "SELECT sum(points) FROM push_outcomes",
        "SELECT sum(delta) OVER () FROM metric_points WHERE metric LIKE '%send.total'",
        "SHOW TABLES",
        "DESCRIBE metric_points",
    ],
)
def test_other_sums_are_not_warned_of(lake: str, sql: str) -> None:
    assert warned(lake, sql) == []


def test_the_command_warns_on_stderr_and_answers(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "SELECT client_id, sum(delta) AS n FROM metric_points WHERE metric LIKE '%record.send.total' GROUP BY 1"
    assert run_command("query", ["--lake", lake, "--format", "csv", sql]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["client_id,n", "java,20.0"]
    assert err.splitlines() == [f"warning: SUM(delta) {TWICE}"]
