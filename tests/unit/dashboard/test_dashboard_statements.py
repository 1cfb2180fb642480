"""The SQL that a panel shows: `telemetry-lake query` answers it with the panel's rows, whatever names contain."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from kafka_telemetry_lake.dashboards.address import Selection
from kafka_telemetry_lake.dashboards.lake import LakeReader
from kafka_telemetry_lake.dashboards.questions import filled, literal, of_question, question, view_sql
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.tables.operator import (
    CLIENT_EVENTS,
    METRIC_ROLLUPS_1M,
    PUSH_OUTCOMES,
    PUSHES,
    TABLES,
)
from tests.support.application_lake import put

pytestmark = pytest.mark.lake

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
EVIL = "o'rders'); DROP TABLE pushes; --"
SENT = "org.apache.kafka.producer.record.send.total"
VALUES: dict[str, Any] = {
    "start": NOON, "stop": NOON + timedelta(hours=1), "first_window": NOON, "step_ms": 60_000, "top": 10,
    "metrics": [SENT], "filters": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("statements") / "lake"
    for table in TABLES:
        table.create(str(folder))
    at = {"landed_at": NOON, "landed_date": NOON.date(), "cluster_id": "c"}
    clients = [at | {"client_instance_id": f"i{n}", "client_id": name} for n, name in enumerate((EVIL, "other"))]
    rolled = {"metric": SENT, "window_start": NOON, "attribute_keys": ""}
    rolled |= {"increase": 60.0, "covered_s": 60.0, "points": 1}
    for table, rows in (
        (PUSHES, clients),
        (PUSH_OUTCOMES, [client | {"outcome": "points", "points": 7} for client in clients]),
        (METRIC_ROLLUPS_1M, [client | rolled for client in clients]),
        (CLIENT_EVENTS, [at | {"client_instance_id": "gone", "client_id": "gone", "event": "went_silent", "at": NOON}]),
    ):
        put(folder, table, rows)
    return folder


@pytest.mark.parametrize("name", ["activity", "metric_over_time", "open_findings", "extent"])
def test_the_statement_of_a_panel_has_its_rows(lake: Path, name: str) -> None:
    selection = Selection(filters=(("client", (EVIL,)), ("version", ("unknown unknown",))))
    opened = LakeReader(str(lake))
    opened.versions()
    instances = opened.ask("instances", VALUES)
    chosen = instances.filter(pc.equal(instances["client_id"], EVIL))
    assert chosen.num_rows == 1
    shown = opened.ask(name, VALUES, chosen, "minutes").to_pylist()
    values = {key: value for key, value in VALUES.items() if key in question(name).parameters | {"start", "stop"}}
    assert run_query(str(lake), of_question(name, "minutes", values, selection)).read_all().to_pylist() == shown
    if name in ("activity", "metric_over_time"):
        assert len(shown) == 1  # of one of the two clients


@pytest.mark.parametrize("name", ["activity", "metric_over_time", "events", "groups"])
def test_without_filters_a_statement_names_no_clients(lake: Path, name: str) -> None:
    """Who fell silent pushed before the range: its events are there, as on the page."""
    opened = LakeReader(str(lake))
    opened.versions()
    nobody = opened.ask("instances", VALUES).slice(0, 0)
    shown = opened.ask(name, VALUES, nobody, "minutes", everybody=True).to_pylist()
    values = {key: value for key, value in VALUES.items() if key in question(name).parameters | {"start", "stop"}}
    sql = of_question(name, "minutes", values, Selection())
    assert ("chosen" in sql) is (name == "groups")
    assert run_query(str(lake), sql).read_all().to_pylist() == shown
    assert len(shown) == {"activity": 1, "metric_over_time": 1, "events": 1}.get(name, 0)


def test_the_statement_of_a_view_has_its_rows(lake: Path) -> None:
    sql, values = view_sql("pushes", ("landed_at", NOON, NOON + timedelta(hours=1)), {"client_id": EVIL})
    (row,) = run_query(str(lake), filled(sql, values)).read_all().to_pylist()
    assert row["client_instance_id"] == "i0"
    sql, values = view_sql("pushes", None, {"client_id": [EVIL, "other"]})
    assert run_query(str(lake), filled(sql, values)).read_all().num_rows == 2


def test_a_filter_by_owner_asks_whose_clients_they_are(lake: Path) -> None:
    sql = of_question("activity", "minutes", VALUES, Selection(filters=(("owner", ("team-a",)),)))
    assert run_query(str(lake), sql).read_all().num_rows == 0


def test_values_are_text_of_sql() -> None:
    assert literal("o'x") == "'o''x'"
    assert literal(["a", "b"]) == "['a', 'b']"
    assert literal(7) == "7"
    assert literal(NOON) == "TIMESTAMPTZ '2026-11-21 12:00:00+00:00'"
    assert filled("$a $b $unknown", {"a": "$b", "b": 1}) == "'$b' 1 $unknown"
