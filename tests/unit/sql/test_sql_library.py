"""The views that anyone may start from: rates, quantiles over the fleet, top N, week over week."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from kafka_telemetry_lake.pipelines.query.duckdb_engine import connect
from kafka_telemetry_lake.pipelines.query.views import parse_view
from tests.support.sql_views import answer, told

HOUR = datetime(2026, 11, 21, 12, tzinfo=UTC)
SENT, LATENCY = "org.apache.kafka.producer.record.send.total", "org.apache.kafka.producer.request.latency.avg"


def counted(client_id: str, increase: float | None, covered_s: float, **more: Any) -> dict[str, Any]:
    """A rollup row of a counter."""
    key = {"cluster_id": "c", "window_start": HOUR, "client_id": client_id, "metric": SENT, "kind": "sum"}
    grown = {"temporality": "delta", "points": 1, "increase": increase, "covered_s": covered_s}
    values = {"value_count": 1, **dict.fromkeys(("value_sum", "value_min", "value_max"), 5.0)}
    return key | grown | values | dict.fromkeys(("resets", "baselines", "refused"), 0) | more


def gauged(client_id: str, total: float, count: int, most: float, **more: Any) -> dict[str, Any]:
    """A rollup row of a gauge."""
    gauge = {"metric": LATENCY, "kind": "gauge", "temporality": None, "value_count": count, "value_sum": total}
    return counted(client_id, None, 0.0) | gauge | {"value_max": most} | more


def test_rates_add_up_partial_rows_and_tell_resets_and_unknown_increases() -> None:
    rows = [
        counted("a", 60.0, 30.0),
        counted("a", 120.0, 10.0, resets=1, refused=2),
        counted("a", None, 0.0, baselines=1, value_sum=1e9),
    ]
    columns = "points, increase, rate, covered_s, resets, unknown, refused"
    assert told("metric_rates_1h", {"metric_rollups_1h": rows}, columns) == [(3, 180.0, 4.5, 40.0, 1, 1, 2)]
    without_time = {"metric_rollups_1m": [counted("a", 0.0, 0.0, baselines=1)]}
    assert told("metric_rates_1m", without_time, "increase, rate") == [(0.0, None)]


def test_a_gauge_has_the_mean_of_its_values_not_of_its_rows() -> None:
    rows = [gauged("a", 10.0, 1, 10.0), gauged("a", 6.0, 3, 4.0)]
    assert told("metric_rates_1h", {"metric_rollups_1h": rows}, "mean, most, increase") == [(4.0, 10.0, None)]


def test_quantiles_over_client_ids_of_rates_and_means() -> None:
    rates = [counted(f"client-{n}", n * 10.0, 10.0) for n in range(1, 22)]
    means = [gauged("a", 30.0, 2, 20.0), gauged("b", 5.0, 1, 5.0)]
    latency, sent = answer("fleet_quantiles_1h", {"metric_rollups_1h": [*rates, *means]}, None)[::-1]
    assert (sent["client_ids"], sent["p50"], sent["p95"], sent["least"], sent["most"]) == (21, 11.0, 20.0, 1.0, 21.0)
    assert (latency["client_ids"], latency["p50"], latency["most"]) == (2, 10.0, 15.0)


def test_top_n_with_shares_and_a_stable_order_of_equals() -> None:
    rows = [counted(*each) for each in (("b", 30.0, 1.0), ("a", 30.0, 1.0), ("c", 40.0, 1.0))]
    rows.append(counted("d", None, 0.0, value_max=None))
    ranks = told("metric_ranks_1h", {"metric_rollups_1h": rows}, "place, client_id, amount, share", "place <> 3")
    assert ranks == [(1, "c", 40.0, 0.4), (2, "a", 30.0, 0.3)]


def test_week_over_week_compares_like_with_like() -> None:
    before = HOUR - timedelta(days=7)
    rows = [
        counted("steady", 300.0, 3600.0),
        counted("steady", 150.0, 3600.0, window_start=before),
        counted("gap", 300.0, 3600.0),
        counted("gap", 150.0, 1800.0, window_start=before),
        counted("new", 300.0, 3600.0),
        counted("new", 1.0, 1.0, window_start=before - timedelta(hours=1)),
    ]
    columns = "client_id, ratio, comparable, window_start"
    assert told("metric_week_over_week", {"metric_rollups_1h": rows}, columns) == [
        ("gap", 1.0, False, HOUR),
        ("steady", 2.0, True, HOUR),
    ]


def test_hours_and_minutes_begin_where_duckdbs_own_date_trunc_says() -> None:
    around = [0.0, -0.000001, 0.000001, 59.999999, 3_599.999999, 3_600.0, -3_600.0, -3_599.5, 1_763_726_400.25, 4e9]
    times = [None, *(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second) for second in around)]
    for unit in ("HOUR", "minute"):
        own = parse_view("v", f"-- When?\nSELECT date_trunc('{unit}', t) AS begin FROM times").duckdb
        assert "DATE_TRUNC" not in own.upper()
        with connect() as connection:
            connection.register("times", pa.table({"t": pa.array(times, pa.timestamp("us", "UTC"))}))
            begins = connection.execute(own).fetchall()
            assert begins == connection.execute(f"SELECT date_trunc('{unit}', t) FROM times").fetchall()
    assert "DATE_TRUNC('DAY'" in parse_view("v", "-- When?\nSELECT date_trunc('DAY', d) FROM days").duckdb
