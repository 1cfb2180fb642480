"""Lakes that can't be read, or only in part: each error is one sentence."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlglot

from kafka_telemetry_lake.dashboards.answers import LakeError
from kafka_telemetry_lake.dashboards.lake import LakeReader
from kafka_telemetry_lake.dashboards.questions import CHOSEN, CHOSEN_IDS, MOST_ROWS, OF_WINDOWS, Grain, names, question
from kafka_telemetry_lake.dashboards.scene import first
from kafka_telemetry_lake.pipelines.findings.model import Override
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.table_files import TableFiles
from kafka_telemetry_lake.pipelines.query.views import views
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import (
    METRIC_POINTS,
    METRIC_ROLLUPS_1H,
    METRIC_ROLLUPS_1M,
    PUSH_OUTCOMES,
    PUSHES,
    TABLES,
)
from tests.support.application_lake import put

pytestmark = pytest.mark.lake

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
GRAINS: tuple[Grain, ...] = ("points", "minutes", "hours")
PARAMETERS: dict[str, Any] = {
    "start": NOON, "stop": NOON + timedelta(hours=1), "first_window": NOON, "step_ms": 60_000, "top": 10,
    "metrics": ["m"], "instance": "i", "ids": ["i"], "metric": "m", "filters": 1,
    "client": "orders", "group": "g", "topic": "t", "hour": NOON, "instances": 10, "entities": 10,
    "software": ["java"], "clusters": ["c"],
}  # fmt: skip
PUSH: dict[str, Any] = {"client_instance_id": "i", "client_id": "orders", "landed_at": NOON, "landed_date": NOON.date()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("made") / "lake"
    for table in TABLES:
        table.create(str(lake))
    put(lake, PUSHES, [PUSH])
    return lake


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A lake with one push, which a test may change."""
    return Path(shutil.copytree(made, tmp_path / "lake"))


def opened(folder: Path, *overrides: Override) -> LakeReader:
    lake = LakeReader(str(folder), overrides)
    lake.versions()
    return lake


def test_every_question_is_answered_and_says_what_it_is(folder: Path) -> None:
    lake = opened(folder)
    chosen = lake.ask("instances", PARAMETERS)
    assert chosen["client_id"].to_pylist() == ["orders"]
    for name in names():
        asked = {question(name, grain).duckdb: grain for grain in GRAINS}  # most are the same for each grain
        for grain in asked.values():
            assert question(name, grain).parameters <= PARAMETERS.keys(), name
            assert question(name, grain).reads <= CATALOG.keys() | views().keys() | {CHOSEN, CHOSEN_IDS}, name
            lake.ask(name, PARAMETERS, chosen, grain)


@pytest.mark.parametrize("grain", GRAINS)
def test_what_java_consumers_tell_per_client_and_per_topic_counts_once(folder: Path, grain: Grain) -> None:
    metric = "org.apache.kafka.consumer.fetch.manager.records.consumed.total"
    points = [
        PUSH | {"metric": metric, "time": NOON, "delta": delta, "attributes": attributes, "delta_status": "value"}
        for delta, attributes in ((5.0, []), (2.0, [("topic", "a")]), (3.0, [("topic", "b")]))
    ]
    rollups = [
        {"client_id": "orders", "metric": metric, "window_start": NOON, "increase": 5.0, "attribute_keys": keys}
        for keys in ("", "topic")
    ]
    for table, rows in ((METRIC_POINTS, points), (METRIC_ROLLUPS_1M, rollups), (METRIC_ROLLUPS_1H, rollups)):
        put(folder, table, [{**row, "landed_date": NOON.date()} for row in rows])
    lake = opened(folder)
    chosen = lake.ask("instances", PARAMETERS)
    answer = lake.ask("metric_by_client", PARAMETERS | {"metrics": [metric]}, chosen, grain)
    assert answer["increase"].to_pylist() == [5.0]


@pytest.mark.parametrize("name", OF_WINDOWS)
def test_sums_by_window_give_the_answers_of_the_rollups(folder: Path, name: str) -> None:
    """Panels are made of what is summed up once. Two windows of two minutes each, two client ids, two levels."""
    rows = [
        {
            "client_id": client, "metric": "m", "window_start": NOON + timedelta(minutes=minute),
            "attribute_keys": keys,
            "points": 1, "increase": amount * (minute + 1), "covered_s": 30.0, "value_count": 2, "value_sum": amount,
            "value_max": amount + minute, "resets": minute, "baselines": 0, "landed_date": NOON.date(),
        }
        for client, amount in (("orders", 5.0), ("other", 7.0)) for minute in range(4) for keys in ("", "topic")
    ]  # fmt: skip
    put(folder, METRIC_ROLLUPS_1M, rows)
    lake = opened(folder)
    chosen = pa.table({"cluster_id": [None, None], "client_id": ["orders", "other"], "group_id": ["g", "h"]})
    chosen = chosen.cast(pa.schema([(field, pa.string()) for field in chosen.column_names]))
    asked = PARAMETERS | {"step_ms": 120_000}
    windows = lake.ask("client_windows", asked, chosen)
    assert windows.num_rows == 4
    of_windows = lake.ask(name, asked, chosen, "windows", rollups=windows)
    assert of_windows == lake.ask(name, asked, chosen)
    assert of_windows.num_rows == (1 if name == "changes" else 2)


def test_a_heat_map_has_what_a_counter_grew_by_and_not_its_total(folder: Path) -> None:
    """The first point of a counter has no increase: its total would be the greatest of all."""
    rows = [
        PUSH | {
            "client_instance_id": instance, "metric": metric, "kind": kind, "time": NOON + timedelta(minutes=minute),
            "value": value, "delta": delta,
        }
        for metric, kind, instance, minute, value, delta in (
            ("sent", "sum", "i", 0, 9000.0, None), ("sent", "sum", "i", 1, 9060.0, 60.0),
            ("sent", "sum", "i", 1, 9180.0, 120.0), ("sent", "sum", "j", 0, 600.0, 600.0),
            ("age", "gauge", "i", 0, 4.0, None), ("age", "gauge", "i", 0, 8.0, None),
        )
    ]  # fmt: skip
    put(folder, METRIC_POINTS, rows)
    lake = opened(folder)
    noon = int(NOON.timestamp() * 1000)

    def cells(metric: str) -> list[tuple[Any, ...]]:
        found = lake.ask("instance_heat", PARAMETERS | {"metric": metric}).to_pylist()
        return [(row["client_instance_id"], row["at_ms"] - noon, row["amount"]) for row in found]

    assert cells("sent") == [("j", 0, 10.0), ("i", 60_000, 3.0)]  # per second; who has the most comes first
    assert cells("age") == [("i", 0, 6.0)]


def test_views_that_many_read_are_stored_until_a_table_below_them_changes(folder: Path) -> None:
    lake = LakeReader(str(folder))

    def add(instance: str) -> None:
        row = PUSH | {"client_instance_id": instance, "principal": "User:ann", "state": "active", "step": 1}
        put(folder, CLIENT_CHANGES, [row])
        lake.versions()

    add("i")
    assert lake.rows("client_quotas").num_rows == 3  # of view clients, a row per quota type
    stored = lake._database.sql("SELECT count(*) FROM shared.clients").fetchall()
    assert stored == [(1,)]
    add("j")
    assert lake.rows("client_quotas").num_rows == 6
    assert lake.rows("clients", where={"client_instance_id": "j"})["principal"].to_pylist() == ["User:ann"]


def test_no_more_rows_are_read_than_asked_for(folder: Path) -> None:
    """Of 20 client instances, each with three rows in view `client_quotas`; table `quotas` is empty."""
    rows = [PUSH | {"client_instance_id": f"i{number}", "state": "active", "step": 1} for number in range(20)]
    put(folder, CLIENT_CHANGES, rows)
    lake = opened(folder)
    assert lake.rows("client_quotas").num_rows == 60
    assert lake.rows("client_quotas", top=7).num_rows == 7
    # DuckDB 2.0.0 leaves out a LIMIT over a join with an empty table of its own: see `select_nothing`.
    assert len(lake._database.sql("SELECT * FROM client_quotas LIMIT 7").fetchall()) == 7


def test_the_findings_of_one_instance_are_its_own(folder: Path) -> None:
    failed = {"metric": "org.apache.kafka.producer.record.error.total", "kind": "sum", "delta_status": "delta"}
    counted = {instance: failed | {"client_instance_id": instance, "time": NOON, "delta": delta}
               for instance, delta in (("i", 0.0), ("j", 7.0))}  # fmt: skip
    outcomes = [PUSH | {"client_instance_id": instance, "outcome": "points"} for instance in counted]
    for table, rows in ((METRIC_POINTS, [PUSH | row for row in counted.values()]), (PUSH_OUTCOMES, outcomes)):
        put(folder, table, rows)
    lake = opened(folder)
    chosen = lake.ask("instances", PARAMETERS)
    asked = {instance: lake.ask("instance_findings", PARAMETERS | {"instance": instance}) for instance in counted}
    assert asked["i"].num_rows == 0
    assert asked["j"]["evidence"].to_pylist() == [
        "7 records could not be sent (unknown were), in the hour from 2026-11-21 12:00 UTC"
    ]
    (evidence,) = lake.ask("findings", PARAMETERS, chosen)["evidence"].to_pylist()
    assert evidence.startswith("1 of 2 client instances (50.0 %), at worst j: 7 records could not be sent")


@pytest.mark.slow
def test_a_finding_that_is_about_no_client_id_is_shown_with_what_it_is_about(folder: Path) -> None:
    assigned = {"metric": "org.apache.kafka.consumer.coordinator.assigned.partitions", "kind": "gauge", "time": NOON}
    points = [PUSH | assigned | {"client_instance_id": instance, "delta_status": "value", "value": partitions}
              for instance, partitions in (("i", 6.0), ("j", 2.0)) for _ in range(3)]  # fmt: skip
    labels = [("group_id", "g"), ("group_member_id", "m")]
    outcomes = [PUSH | {"client_instance_id": one, "labels": labels} for one in ("i", "j")]
    for table, rows in ((METRIC_POINTS, points), (PUSH_OUTCOMES, outcomes)):
        put(folder, table, rows)
    lake = opened(folder)
    (found,) = lake.ask("findings", PARAMETERS, lake.ask("instances", PARAMETERS)).to_pylist()
    assert (found["client_id"], found["finding"]) == ("group g", "uneven_assignment")
    judged = opened(folder, Override("*", "uneven_assignment", off=True))
    assert judged.ask("findings", PARAMETERS, judged.ask("instances", PARAMETERS)).num_rows == 0


def test_tables_that_a_lake_does_not_have_are_empty_and_a_missing_view_is_an_error_that_names_it(made: Path) -> None:
    lake = opened(made)
    assert lake.rows("quotas").num_rows == 0
    assert lake.rows("findings").num_rows == 0
    assert not lake.knows("no_such_view")
    with pytest.raises(LakeError, match=r"No table or view is called gone: this installation's sql/ is damaged"):
        lake.rows("gone")


def test_columns_that_a_file_leaves_out_are_null(folder: Path) -> None:
    log = TableLog(METRIC_POINTS, str(folder))
    points: list[dict[str, Any]] = [{"metric": "m"}, {"metric": "m", "value": 2.0, "delta": 1.0}, {"metric": "m"}]
    for number, row in enumerate(points):
        files = TableFiles(METRIC_POINTS, str(folder))
        files.write(pa.Table.from_pylist([PUSH | row | {"time": NOON}], METRIC_POINTS.schema))
        log.commit(files.close(), "test", number)
    lake = opened(folder)
    assert sorted(lake.ask("client_points", PARAMETERS)["value"].to_pylist(), key=str) == [2.0, None, None]


@pytest.mark.parametrize("native", [True, False])
def test_new_rows_by_a_uri_and_through_delta_rs(folder: Path, native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not native:  # as behind a URI that DuckDB can't open
        monkeypatch.setattr("kafka_telemetry_lake.dashboards.lake.native_select", lambda *_: None)
    lake = LakeReader(folder.as_uri())
    before = lake.versions()
    chosen = lake.ask("instances", PARAMETERS)
    assert chosen["client_id"].to_pylist() == ["orders"]
    assert lake.ask("activity", PARAMETERS, chosen).num_rows == 0
    assert lake.ask("extent", {})["pushes"].to_pylist() == [1]
    put(folder, PUSHES, [PUSH])
    assert lake.versions() != before
    assert lake.ask("extent", {})["pushes"].to_pylist() == [2]
    assert lake.rows("pushes").num_rows == 2


def test_no_lake_says_how_to_make_one_and_a_newer_one_what_to_update(folder: Path) -> None:
    with pytest.raises(LakeError, match=r"There is no lake at .*none\. Create one with `telemetry-lake demo --lake"):
        LakeReader(str(folder / "none")).versions()
    log = folder / METRIC_POINTS.name / "_delta_log" / f"{1:020}.json"
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    features = versions | {"readerFeatures": ["laterThing"], "writerFeatures": ["laterThing"]}
    log.write_text(json.dumps({"protocol": features}) + "\n", encoding="utf-8")
    with pytest.raises(LakeError, match=r"metric_points was written by a newer version .* update kafka-telemetry-lake"):
        LakeReader(str(folder)).versions()


def test_deleted_files_are_an_error_that_names_the_table(folder: Path) -> None:
    lake = opened(folder)
    for file in (folder / PUSHES.name).rglob("*.parquet"):
        file.unlink()
    with pytest.raises(LakeError, match=r"Files of extent were deleted during the query.*: reload this page"):
        lake.ask("extent", {})


def test_every_answer_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in names():
        for grain in GRAINS:
            asked = question(name, grain)
            limit = sqlglot.parse_one(asked.duckdb, read="duckdb").args["limit"].expression.sql()
            assert limit == (":top" if asked.most is None else str(asked.most + 1)), name
            assert ("top" in asked.parameters) or asked.most is not None, name
    points = [
        PUSH | {"metric": f"m{n:05}", "time": NOON, "value": 1.0, "offset": n, "landed_date": NOON.date()}
        for n in range(MOST_ROWS + 5)
    ]
    put(folder, METRIC_POINTS, points)
    lake = opened(folder)
    rows = lake.ask("client_metrics", PARAMETERS).to_pandas()
    assert len(rows) == MOST_ROWS + 1
    captions: list[str] = []
    monkeypatch.setattr("streamlit.caption", captions.append)
    assert first(rows, MOST_ROWS)["metric"].tolist() == [f"m{n:05}" for n in range(MOST_ROWS)]
    assert captions == ["There are more than 10,000 rows; these are the first. Narrow the time range or the filters."]
    assert len(first(rows.head(3), 3)) == 3
    assert len(captions) == 1


def test_the_dashboards_engine_reads_nothing_but_the_lake(folder: Path) -> None:
    """Nobody can give it SQL; were there a way, it would lead no further than the lake."""
    lake = opened(folder)
    for sql in ("FROM read_text('/etc/hostname')", "COPY (SELECT 1) TO '/tmp/x.csv'", "SET memory_limit = '1TB'"):
        with pytest.raises(LakeError):
            lake.run("a page", sql, frozenset({"pushes"}), {}, {})


def test_of_one_instance_nothing_is_stored(folder: Path) -> None:
    """To store who a million clients are takes seconds, and one of them is found without; with the same answer."""
    active = PUSH | {"state": "active"}
    steps = (("i", 1), ("i", 2), ("j", 1))
    put(folder, CLIENT_CHANGES, [active | {"client_instance_id": name, "step": step} for name, step in steps])
    lake = opened(folder)
    one = lake.rows("clients", where={"client_instance_id": "i"})
    assert lake._shared == {}
    assert sorted(lake.rows("clients")["client_instance_id"].to_pylist()) == ["i", "j"]
    assert "clients" in lake._shared
    assert lake.rows("clients", where={"client_instance_id": "i"}) == one
    assert one.num_rows == 1


def test_applications_of_each_kind_are_those_of_all(folder: Path) -> None:
    """They are stored for the pages about applications, owners and principals."""
    put(folder, CLIENT_CHANGES, [PUSH | {"principal": "User:a", "step": 1}])
    lake = opened(folder)
    kinds = {kind: lake.rows("applications", where={"scope": kind}).to_pylist() for kind in ("owner", "principal")}
    assert [each["subject"] for each in kinds["principal"]] == ["User:a"]
    assert [(each["subject"], each["instances"]) for each in kinds["owner"]] == [(None, 1)]
    assert "applications" in lake._shared
