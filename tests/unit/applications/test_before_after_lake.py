"""What changed of an application at a moment, of a lake: planted changes, outages, restarts, and bad questions."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from kafka_telemetry_lake.dashboards.answers import EndedError
from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.pipelines.applications import before_after as module
from kafka_telemetry_lake.pipelines.applications.before_after import Comparison, before_and_after
from kafka_telemetry_lake.pipelines.lake.moments import newest_moment
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.sql_text import filled
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_ALIASES, CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_ROLLUPS_1M, PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.udfs.errors import CannotRunError
from tests.support import otlp_builder as otlp
from tests.support.application_lake import LATENCY, NOON, SENT, Minutes, application_lake, client, put
from tests.support.captured_lake import HOSTILE, write_lake

pytestmark = pytest.mark.lake

HOUR, FIRST, COUNT = 3600, -30 * 60, 31 * 60 + 30
PREFIX = "org.apache.kafka."
MINUTES = np.arange(COUNT) + FIRST  # from noon on


def noisy(level: float, share: float = 0.1, seed: int = 0) -> Minutes:
    return np.round(level * (1 + share * np.random.default_rng(seed).normal(size=COUNT)))


def planted() -> dict[str, Minutes]:
    """Sixty measures to which nothing happens, and some that change at noon."""
    after = MINUTES >= 0
    quiet = {f"{PREFIX}producer.quiet{number}.avg": noisy(1000, seed=number + 1) for number in range(60)}
    return quiet | {
        SENT: noisy(6000) * np.where(after, 2, 1),
        LATENCY: 10.0 + np.random.default_rng(99).normal(size=COUNT),
        f"{PREFIX}producer.record.retry.total": np.where(MINUTES == 7, 1.0, 0.0),  # one in an hour
        f"{PREFIX}producer.record.error.total": np.where(after, 1.0, 0.0),  # one a minute
        f"{PREFIX}producer.new.avg": np.where(after, 5.0, np.nan),
        f"{PREFIX}producer.gone.avg": np.where(after, np.nan, 5.0),
    }


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return application_lake(tmp_path_factory.mktemp("shop") / "lake", planted(), FIRST)


@pytest.fixture(scope="module")
def compared(lake: Path) -> Comparison:
    return before_and_after(str(lake), "shop", NOON, HOUR)


def by_metric(found: Comparison) -> dict[str, dict[str, Any]]:
    return {row["metric"].removeprefix(PREFIX): row for row in found.rows.to_pylist()}


def said(found: Comparison, word: str) -> str:
    return next((remark for remark in found.remarks if word in remark), "")


def test_b3_a_measure_that_doubled_is_first_and_noise_is_not_named(compared: Comparison) -> None:
    rows = compared.rows.to_pylist()
    names = [
        (row["status"], row["metric"].removeprefix(f"{PREFIX}producer."))
        for row in rows
        if row["status"] != "unchanged"
    ]
    assert names == [
        ("changed", "record.send.total"), ("changed", "record.error.total"), ("appeared", "new.avg"),
        ("vanished", "gone.avg"),
    ]  # fmt: skip
    doubled = rows[0]
    assert (doubled["before"], doubled["after"]) == (pytest.approx(100, rel=0.05), pytest.approx(200, rel=0.05))
    assert doubled["ratio"] == pytest.approx(2, rel=0.05)
    assert doubled["differences"] == 29
    units = [row["unit"] for row in rows[:4]]
    assert units == ["records per second", "records per second", "mean", "mean"]  # nobody knows the last two
    error = by_metric(compared)["producer.record.error.total"]
    assert (error["before"], error["after"], error["ratio"]) == (0, pytest.approx(1 / 60), None)
    assert error["effect"] == pytest.approx(np.sqrt(60))  # a count of 60 has a noise of its root
    assert by_metric(compared)["producer.record.retry.total"]["status"] == "unchanged"


def test_b3_how_many_would_be_named_by_chance_is_said(compared: Comparison) -> None:
    # 30 windows before: the one greatest of 29 differences and the change itself, 1.5 / 31 of 64 measures.
    assert said(compared, "beyond their noise") == (
        "2 of 64 measures changed beyond their noise. If nothing had happened, it would be 3.1 at most, on average: "
        "those with the least effect may be chance"
    )
    assert compared.remarks[:2] == [
        "1 h before and after 2026-11-21 12:00 UTC are compared",
        "30 windows from 2026-11-20 06:00 UTC on say how much measures differ from window to window without a cause",
    ]


def test_b1_the_steps_of_what_changed_are_those_of_the_windows(compared: Comparison) -> None:
    assert (compared.start, compared.stop) == (NOON - timedelta(hours=1), NOON + timedelta(hours=1))
    assert compared.step_s == 120
    steps = [row for row in compared.steps.to_pylist() if row["metric"] == SENT]
    assert [row["at"] for row in steps] == [NOON + timedelta(minutes=2 * step) for step in range(-30, 30)]
    halves = [row["amount"] for row in steps[:30]], [row["amount"] for row in steps[30:]]
    assert [np.mean(half) for half in halves] == [pytest.approx(100, rel=0.05), pytest.approx(200, rel=0.05)]
    assert {row["metric"] for row in compared.steps.to_pylist()} == {SENT, f"{PREFIX}producer.record.error.total"}


def test_b1_windows_are_as_long_as_what_is_recorded(lake: Path) -> None:
    found = before_and_after(str(lake), "shop", NOON, 24 * HOUR)
    assert found.rows["metric"][0].as_py() == SENT
    assert found.rows["status"][0].as_py() == "changed"
    assert found.remarks[0] == "90 min before and after 2026-11-21 12:00 UTC are compared"


def test_b1_long_windows_are_made_of_hours(tmp_path: Path) -> None:
    count = 6 * 24 * 60
    random = np.random.default_rng(5)
    values = np.round(600 + 60 * random.normal(size=count)) * np.where(np.arange(count) < count - 7 * 60, 1, 2)
    application_lake(tmp_path, {SENT: values}, 7 * 60 - count)
    (row,), remarks = (found := before_and_after(str(tmp_path), "shop", NOON, 6 * HOUR)).rows.to_pylist(), found.remarks
    assert (row["status"], row["ratio"], row["differences"]) == ("changed", pytest.approx(2, rel=0.02), 21)
    assert found.step_s == HOUR
    assert remarks[0] == "6 h before and after 2026-11-21 12:00 UTC are compared"


def test_b3_nothing_is_named_at_a_moment_at_which_nothing_happened(lake: Path) -> None:
    found = before_and_after(str(lake), "shop", NOON - timedelta(hours=4, seconds=-30), HOUR)
    assert found.rows.num_rows == 65  # new.avg is not there yet
    statuses = found.rows["status"].to_pylist()
    assert statuses.count("changed") <= 3  # what is said: 1.5 of 27 + 2, of 65
    assert "the minute of the moment itself counts for neither" in said(found, "neither")


def test_b5_an_outage_is_said_and_not_interpolated(tmp_path: Path) -> None:
    outage = (MINUTES >= 10) & (MINUTES < 30) | (MINUTES >= -600) & (MINUTES < -545)
    application_lake(tmp_path, {SENT: np.where(outage, np.nan, noisy(6000))}, FIRST)
    found = before_and_after(str(tmp_path), "shop", NOON, HOUR)
    (row,) = found.rows.to_pylist()
    assert (row["status"], row["ratio"]) == ("unchanged", pytest.approx(1, rel=0.1))
    assert row["differences"] == 27  # the hour of which most is missing is in none
    assert said(found, "nobody pushed from") == (
        "nobody pushed from 2026-11-21 12:10 UTC to 2026-11-21 12:30 UTC: what is missing is left out, not interpolated"
    )
    assert "nobody pushed for 55 min of the windows further back" in found.remarks


def test_b1_with_a_short_history_it_can_not_be_said(tmp_path: Path) -> None:
    application_lake(tmp_path, {SENT: noisy(6000)[-4 * 60 :] * np.where(MINUTES >= 0, 2, 1)[-4 * 60 :]}, -150)
    (row,) = before_and_after(str(tmp_path), "shop", NOON, HOUR).rows.to_pylist()
    assert (row["status"], row["why"]) == (
        "unknown", "1 earlier differences between windows; at least 13 are needed",
    )  # fmt: skip
    assert row["ratio"] == pytest.approx(2, rel=0.05)


def test_b1_which_measures_are_compared(tmp_path: Path) -> None:
    """A metric without attributes goes before its levels; the total of a counter is no value.

    Two counters have pushes that are all refused or a baseline, or are until noon; a histogram has no observations.
    """
    topics, nodes = f"{PREFIX}producer.topic.byte.total", f"{PREFIX}producer.node.request.total"
    both = {SENT: noisy(6000), topics: noisy(900), nodes: noisy(60)}
    application_lake(tmp_path, both, FIRST, keys={topics: "topic", nodes: "node_id"})
    application_lake(tmp_path, {topics: noisy(500)}, FIRST, client_id="bills")
    total, begun = f"{PREFIX}producer.total", f"{PREFIX}producer.begun"
    of_both = {"cluster_id": "c", "client_id": "orders", "attribute_keys": "", "points": 1, "covered_s": 0.0}
    rows = []
    for minute in MINUTES.tolist():
        at = NOON + timedelta(minutes=minute)
        when = {"window_start": at, "landed_at": at, "landed_date": at.date()}
        value = {"kind": "sum", "value_count": 1, "value_sum": 6e6 if minute >= 0 else 1e6}
        rows.append(of_both | when | value | {"metric": total})
        increase = {"increase": 120.0, "covered_s": 60.0} if minute >= 0 else {}
        rows.append(of_both | when | value | {"metric": begun} | increase)
        empty = {"metric": f"{PREFIX}producer.sizes", "kind": "histogram", "value_count": 0, "observations": 0}
        rows.append(of_both | when | empty)
    put(tmp_path, METRIC_ROLLUPS_1M, rows)
    found = before_and_after(str(tmp_path), "shop", NOON, HOUR)
    row = found.rows.to_pylist()[0]
    assert row["metric"] == begun
    assert {(row["metric"], row["attribute_keys"]) for row in found.rows.to_pylist()} == {
        (begun, ""), (SENT, ""), (topics, ""), (nodes, "node_id"),
    }  # fmt: skip
    assert by_metric(found)["producer.topic.byte.total"]["before"] == pytest.approx(500 / 60, rel=0.05)
    assert (row["status"], row["before"], row["after"], row["unit"]) == ("appeared", None, 2.0, "per second")
    assert said(found, "no value in any window") == (
        "2 measures have no value in any window, such as a counter of which only the total is known"
    )


def test_changes_and_clients_of_the_time_are_said(tmp_path: Path) -> None:
    application_lake(tmp_path, {SENT: noisy(6000)}, FIRST)
    application_lake(tmp_path, {SENT: noisy(6000)}, FIRST, client_id=HOSTILE)
    new = client(HOSTILE, NOON + timedelta(minutes=20), NOON + timedelta(hours=1), client_instance_id="new")
    put(tmp_path, CLIENT_CHANGES, [new | {"client_software_version": "4.2.0"}])
    put(tmp_path, PUSH_OUTCOMES, [
        {
            "cluster_id": "c", "client_instance_id": "new", "client_id": HOSTILE, "landed_date": NOON.date(),
            "landed_at": NOON + timedelta(minutes=25), "lost_start": NOON + timedelta(minutes=20),
        }
    ])  # fmt: skip
    put(tmp_path, CLIENT_ALIASES, [
        {"cluster_id": "c", "client_instance_id": "new", "application": "lab", "valid_from": NOON}
    ])  # fmt: skip
    found = before_and_after(str(tmp_path), "shop", NOON, HOUR)
    assert said(found, "known changes") == (
        f"known changes in this time: 2026-11-21 12:20 UTC {HOSTILE} changed the version "
        "(apache-kafka-java 4.1.0 to apache-kafka-java 4.2.0)"
    )
    assert said(found, "other applications") == (
        f"other applications use client id {HOSTILE} too: rollups are by client id, so their clients are "
        "in the measures"
    )
    lab = before_and_after(str(tmp_path), "lab", NOON, HOUR)
    assert "0 instances pushed before, 1 after: rates are those of one series, so their sum changed by that, too" in (
        lab.remarks
    )
    assert "pushes are missing: 0 intervals before, 1 after" in lab.remarks


def test_b1_a_restart_of_counters_is_no_change(tmp_path: Path) -> None:
    """Pushes of a counter that begins at 0 again in a new process, through the job's own conversion."""
    restart, pushes = 15 * 15, []
    for minute in range(1, restart + 16):
        begin = restart if minute > restart else 0
        point = otlp.counter(600.0 * (minute - begin), begin * 60, minute * 60, name=SENT)
        pushes.append({
            "source": "files", "topic": "t", "partition": 0, "offset": minute, "cluster_id": "c",
            "client_instance_id": "b" if begin else "a", "client_id": "orders", "push_interval_ms": 60_000,
            "landed_at": otlp.at(minute * 60), "payload": otlp.payload(point), "terminating": False,
        })  # fmt: skip
    lake = write_lake(tmp_path / "lake", pa.Table.from_pylist(pushes, PUSHES.schema))
    moment = otlp.at(60 * (restart + 1))
    put(lake, CLIENT_CHANGES, [
        client("orders", otlp.T0, moment, client_instance_id="a"),
        client("orders", moment, otlp.at(60 * (restart + 15)), client_instance_id="b"),
    ])  # fmt: skip
    put(lake, CLIENT_ALIASES, [
        {"cluster_id": "c", "client_id": "orders", "application": "shop", "valid_from": otlp.T0}
    ])  # fmt: skip
    found = before_and_after(str(lake), "shop", moment, 900)
    (row,) = found.rows.to_pylist()
    assert (row["status"], row["before"], row["after"]) == ("unchanged", pytest.approx(10), pytest.approx(10))
    assert "orders started instances" in said(found, "known changes")


@pytest.mark.parametrize(
    ("application", "at", "message"),
    [
        ("shpo", NOON, "application: no client belongs to 'shpo'; did you mean shop?"),
        ("shop", NOON + timedelta(days=400), "recorded from 2026-11-20 06:00 UTC to 2026-11-21 14:00 UTC, and 5 min"),
        ("shop", NOON - timedelta(days=2), "at: 2026-11-19 12:00 UTC has too little beside it"),
        ("shop", NOON + timedelta(minutes=88), "recorded from 2026-11-20 06:00 UTC to 2026-11-21 13:30 UTC"),
        ("shop", datetime.max.replace(tzinfo=NOON.tzinfo), "at: 9999-12-31 23:59 UTC has too little beside it"),
        ("shop", datetime.min.replace(tzinfo=NOON.tzinfo), "has too little beside it"),
        ("' OR 1=1 --", NOON, "no client belongs to"),
    ],
)
def test_what_can_not_be_compared_says_why(lake: Path, application: str, at: datetime, message: str) -> None:
    with pytest.raises(CannotRunError) as error:
        before_and_after(str(lake), application, at, HOUR)
    assert message in str(error.value)


def test_each_query_can_be_ended_and_of_too_many_measures_those_with_the_most_points_are_compared(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections, moments = [], []

    def look(connection: duckdb.DuckDBPyConnection, _: str) -> None:
        connections.append(connection)

    def asked(*given: Any, **more: Any) -> pa.RecordBatchReader:
        moments.append(more["moment"])
        return run_query(*given, **more)

    monkeypatch.setattr(module, "run_query", asked)
    monkeypatch.setattr(module, "MOST_MEASURES", 10)
    found = before_and_after(str(lake), "shop", NOON, HOUR, look)
    assert found.rows.num_rows == 10
    assert found.remarks[-1] == "only the 10 measures with the most points are compared"
    assert len({id(each) for each in connections}) == 4  # clients, sums, pushed, changes
    assert moments == [newest_moment(str(lake))] * 4  # all read one moment

    def ended(*_: object) -> None:
        raise EndedError

    with pytest.raises(EndedError):
        before_and_after(str(lake), "shop", NOON, HOUR, ended)


def test_what_is_recorded_later_is_not_read_to_find_the_windows() -> None:
    """Of 90 days after a moment, the query for an application's extent reads the minutes of the windows alone."""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1; SET TimeZone = 'UTC'")
        connection.execute("CREATE TABLE clients AS SELECT 'c' AS cluster_id, 'i' AS client_id, 'shop' AS application")
        connection.execute("""CREATE TABLE minutes AS
            SELECT 'c' AS cluster_id, 'i' AS client_id,
                   TIMESTAMPTZ '2026-11-21 00:00Z' + to_minutes(minute) AS window_start,
                   CAST(window_start AS DATE) AS landed_date
            FROM range(90 * 1440) AS r(minute)""")
        text = (files("kafka_telemetry_lake.sql") / "before_after" / "clients.sql").read_text("utf-8")
        moment, stop = "TIMESTAMPTZ '2026-11-21 00:00Z'", "TIMESTAMPTZ '2026-11-21 12:00Z'"
        values = {"application": "'shop'", "rollups": "minutes", "start": moment, "stop": stop}
        sql = filled(text, values | {"day": "DATE '2026-11-20'", "last_day": "DATE '2026-11-20'"})
        first, last, goes_on = connection.execute(sql).fetchall()[0][-3:]
        assert (last - first, goes_on) == (timedelta(minutes=719), True)
        ((_, plan),) = connection.execute(f"EXPLAIN (ANALYZE, FORMAT json) {sql}").fetchall()
    most = max(int(rows) for rows in re.findall(r'"intermediate_rows": *(\d+)', plan))
    assert 720 <= most <= 10 * 2048  # the look at what is later ends with its first rows


def test_the_command(lake: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = ["compare", "--lake", str(lake), "--application", "shop", "--at", "2026-11-21T12:00Z"]
    assert cli.main(asked) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0].split() == [
        "status", "metric", "attribute_keys", "unit", "before", "after", "ratio", "effect", "why",
    ]  # fmt: skip
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["changed", "changed", "appeared", "vanished"]
    assert err.splitlines()[0] == "62 more did not change beyond their noise (--show all)"
    assert cli.main([*asked, "--show", "all", "--format", "jsonl", "--window", "15m"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 66
    first = json.loads(out.splitlines()[0])
    assert (first["metric"], first["status"], first["noise"] > 0) == (SENT, "changed", True)
    assert "15 min before and after 2026-11-21 12:00 UTC are compared" in err
    assert "more did not change" not in err
    assert cli.main(["compare", "--lake", str(tmp_path), *asked[3:]]) == 2
    assert f"no lake at {tmp_path}" in capsys.readouterr()[1]
    assert cli.main([*asked[:-1], "2027-11-21T12:00Z"]) == 2
    assert "at: 2027-11-21 12:00 UTC has too little beside it" in capsys.readouterr()[1]
