"""Bad input of the findings, and what they read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import duckdb
import pytest

from kafka_telemetry_lake.pipelines.query.views import needed
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from tests.support.made_clients import GROUP, HOUR, LAG, PRODUCER, _point, at, gauged
from tests.support.sql_views import answer

pytestmark = pytest.mark.lake


def test_bad_input_is_no_finding_and_costs_no_other_client_its_own() -> None:
    """A thousand topics, a client id of 1 KB with control characters, an hour without data, metrics of a wrong kind."""
    hostile = "\x00\x1b[2J'\\\n" + "x" * 1015
    kinds: dict[str, dict[str, Any]] = {
        f"{PRODUCER}metadata.age": {"kind": "sum", "delta_status": "ok", "value": 9e9, "delta": 9e9},
        f"{PRODUCER}record.error.total": {"kind": "gauge", "delta_status": "value", "value": 9e9},
        f"{PRODUCER}buffer.exhausted.total": {"kind": "histogram", "delta_status": "ok", "count": 9},
        f"{PRODUCER}txn.abort.time.ns.total": {"kind": "sum", "delta_status": "too_late", "delta": 9e9},
        f"{GROUP}rebalance.latency.max": {"kind": "gauge", "delta_status": "non_finite"},
    }
    wrong = [at("kinds", "i", metric=metric, time=HOUR, **point) for metric, point in kinds.items()]
    topics = [
        row
        for n in range(1000)
        for row in (
            gauged("topics", "i", LAG, 10.0**9, topic=f"t{n}", partition="0"),
            at("topics", "i", metric=f"{PRODUCER}topic.byte.total", attributes=[("topic", f"t{n}")], time=HOUR,
               delta_status="ok") | _point(100, 60),
        )
    ]  # fmt: skip
    failed = at(hostile, "i", metric=f"{PRODUCER}record.error.total", delta_status="ok", time=HOUR) | _point(1, 60)
    later = {"landed_at": HOUR + timedelta(hours=2)}
    pushes = [at(name, "i", outcome="points") for name in ("kinds", "topics", hostile)]
    rows = answer("findings", {
        "metric_points": [*wrong, *topics, failed],
        "push_outcomes": [*pushes, *(row | later for row in pushes)],
        "pushes": [at(hostile, "i", principal=hostile, client_software_version=hostile)],
    })  # fmt: skip
    assert [(row["client_id"], row["finding"], row["window_start"]) for row in rows] == [
        (hostile, "failed_records", HOUR)
    ]


@pytest.mark.parametrize(
    ("view", "reads", "others"), [("instance_hours", 5, 0), ("instance_findings", 5, 0), ("findings", 16, 2)]
)
def test_a_filter_by_day_reads_no_other_day(view: str, reads: int, others: int) -> None:
    """Except the two scans of the rule that compares with the week before. Rules share scans: `reads` in all."""
    views, below = needed([view])
    with duckdb.connect() as connection:
        for name in below:
            connection.register(name, CATALOG[name].empty_table())
        for each in views:
            connection.execute(f'CREATE TEMP VIEW "{each.name}" AS {each.duckdb}')
        asked = f"EXPLAIN (FORMAT JSON) SELECT * FROM {view} WHERE landed_date = DATE '2026-11-21'"
        ((_, plan),) = connection.execute(asked).fetchall()
    scans = list(_filters_of_scans(json.loads(plan)))
    assert len(scans) == reads
    assert len([filters for filters in scans if "landed_date = '2026-11-21'::DATE" not in filters]) == others


def _filters_of_scans(plan: list[dict[str, Any]], filters: str = "") -> Iterator[str]:
    """The filters right above each scan of a plan: what they leave out, nothing else reads."""
    for node in plan:
        name, info = node["name"], node["extra_info"]
        if "ARROW_SCAN" in name:
            yield filters
        passes = name in ("FILTER", "PROJECTION") or info.get("Join Type") == "MARK"  # a MARK join is that of IN (...)
        own = f"{filters} {info['Expression']}" if name == "FILTER" else filters
        yield from _filters_of_scans(node["children"], own if passes else "")
