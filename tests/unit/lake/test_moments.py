"""Readers see one moment: all tables of the same batches, whatever is committed between, and nothing erased."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.dashboards import lake as dashboard
from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.pipelines.forget.erasure import Erasure
from kafka_telemetry_lake.pipelines.forget.subject import Request
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.log_files import LogFiles
from kafka_telemetry_lake.pipelines.lake.moments import COMMIT_ORDER, Moment, newest_moment
from kafka_telemetry_lake.pipelines.quality import checks
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.query.query_errors import QueryError
from kafka_telemetry_lake.pipelines.replay import replay
from kafka_telemetry_lake.pipelines.tables.operator import (
    CLIENT_EVENTS,
    METRIC_POINTS,
    PUSH_OUTCOMES,
    PUSHES,
    QUARANTINE,
)
from kafka_telemetry_lake.pipelines.tables.table import Table
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS
from tests.support.erasable_lake import Client, named
from tests.support.expired_logs import expire_logs
from tests.support.ledger import Fleet
from tests.support.local_stream import LocalStream, run_tasks
from tests.support.operator_alone import Job, without_spark

pytestmark = pytest.mark.lake

SEEN = """
    SELECT 'pushes', count(*), count(DISTINCT "offset" || '/' || partition) FROM pushes
    UNION ALL SELECT 'outcomes', count(*), sum(points) FROM push_outcomes
    UNION ALL SELECT 'points', count(DISTINCT "offset" || '/' || partition), count(*) FROM metric_points
"""


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def seen(lake: str, moment: int | None = None) -> dict[str, tuple[int, int]]:
    """Rows and pushes of `pushes`, rows and points of outcomes, pushes and rows of points: as one query sees them."""
    rows = run_query(lake, SEEN, moment=moment).read_all().to_pylist()
    return {name: (int(first), int(second or 0)) for name, first, second in (row.values() for row in rows)}


def latest(lake: str) -> dict[str, int]:
    """Rows of the tables' latest versions: what a reader saw before there were moments."""
    return {table.name: DeltaTable(table.uri(lake)).count() for table in (PUSHES, METRIC_POINTS, PUSH_OUTCOMES)}


def is_whole(view: dict[str, tuple[int, int]]) -> bool:
    """Each push has its outcome, each outcome its points."""
    return view["pushes"][0] == view["outcomes"][0] and view["outcomes"][1] == view["points"][1]


def test_each_batch_is_a_moment_with_the_versions_of_its_tables(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    assert newest_moment(job.lake) == Moment(job.lake, 0, 0)
    views = []
    for _ in range(3):
        job.batch()
        views.append(seen(job.lake))
    assert newest_moment(job.lake) == Moment(job.lake, 3, 3)
    rows = run_query(job.lake, "FROM moments ORDER BY moment").read_all().to_pylist()
    assert [(row["moment"], row["pushes"], row["metric_points"], row["push_outcomes"]) for row in rows] == [
        (1, 1, 1, 2), (2, 2, 2, 3), (3, 3, 3, 4),
    ]  # fmt: skip
    assert [row["client_events"] for row in rows] == [0, 0, 0]  # no rows in these batches
    assert rows[0]["committed_at"] <= rows[1]["committed_at"] <= rows[2]["committed_at"]
    assert all(map(is_whole, views))
    assert [seen(job.lake, number) for number in (1, 2, 3)] == views
    history = DeltaTable(PUSH_OUTCOMES.uri(job.lake)).history(1)
    assert history[0]["userMetadata"].startswith('{"moment": 3, "versions": {"metric_points": 3, ')
    query = ["--lake", job.lake, "--format", "csv", "SELECT count(*) AS n FROM pushes"]
    assert run_command("query", ["--at-moment", "1", *query]) == 0
    assert run_command("query", query) == 0
    assert capsys.readouterr().out.split() == ["n", str(views[0]["pushes"][0]), "n", str(views[2]["pushes"][0])]
    assert run_command("query", ["--at-moment", "4", *query]) == 1
    assert capsys.readouterr().err == (
        "telemetry-lake: the log of table push_outcomes has no moment 4: it has those from 1 to 3\n"
    )


@pytest.mark.parametrize("before", [QUARANTINE, PUSH_OUTCOMES], ids=lambda table: table.name)
def test_a_batch_whose_commits_are_under_way_is_not_seen(
    job: Job, monkeypatch: pytest.MonkeyPatch, before: Table
) -> None:
    job.batch()
    view, rows = seen(job.lake), latest(job.lake)
    job.cut_off_batch(monkeypatch, before)
    assert latest(job.lake)["pushes"] > rows["pushes"]
    assert seen(job.lake) == view
    pages = dashboard.LakeReader(job.lake)
    versions = dict(pages.versions())
    assert {name: versions[name] for name in ("pushes", "metric_points", "push_outcomes")} == {
        "pushes": 1, "metric_points": 1, "push_outcomes": 2,
    }  # fmt: skip
    checked = checks.CheckedLake(job.lake, full=True)
    assert checked._snapshots["metric_points"].version == 1
    job.start()
    job.operator.catch_up()
    assert is_whole(seen(job.lake))
    assert seen(job.lake)["pushes"][0] == latest(job.lake)["pushes"] > view["pushes"][0]
    assert dict(pages.versions())["metric_points"] == 2


@pytest.mark.slow
def test_the_newest_moment_is_known_whatever_upkeep_commits_and_logs_forget(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(6):
        job.batch()
    view = seen(job.lake)
    job.maintain(date(2026, 11, 21))
    assert DeltaTable(METRIC_POINTS.uri(job.lake)).version() == 7
    assert newest_moment(job.lake).number == 6
    assert seen(job.lake) == view
    job.cut_off_batch(monkeypatch)
    job.maintain(date(2026, 11, 21))  # its VACUUM leaves the files of the moment
    assert seen(job.lake) == view
    job.start()
    job.operator.catch_up()
    view = seen(job.lake)
    assert is_whole(view)
    expire_logs(job.stream.lake)
    assert LogFiles(PUSH_OUTCOMES.uri(job.lake)).latest() == DeltaTable(PUSH_OUTCOMES.uri(job.lake)).version()
    assert newest_moment(job.lake).number == 7
    DeltaTable(PUSH_OUTCOMES.uri(job.lake)).optimize.compact()
    expire_logs(job.stream.lake)  # now only the checkpoint has the number
    assert newest_moment(job.lake).number == 7
    assert seen(job.lake) == view
    job.start()
    job.batch()
    assert newest_moment(job.lake).number == 8
    assert is_whole(seen(job.lake))


def test_where_the_log_has_forgotten_what_was_before_a_batch_its_rows_are_seen(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.batch()
    job.cut_off_batch(monkeypatch)
    expire_logs(job.stream.lake)
    rows = latest(job.lake)
    assert seen(job.lake)["points"][1] == rows["metric_points"]
    assert seen(job.lake)["outcomes"][0] == rows["push_outcomes"]


def test_what_retention_has_dropped_is_in_no_moment(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        job.batch()
    job.cut_off_batch(monkeypatch)
    assert seen(job.lake)["points"][1] > 0
    DeltaTable(METRIC_POINTS.uri(job.lake)).delete("landed_date <= '2026-11-22'")
    assert seen(job.lake)["points"] == (0, 0)
    assert seen(job.lake, 1)["points"] == (0, 0)
    assert seen(job.lake, 1)["outcomes"][0] > 0


@pytest.mark.slow
def test_what_was_forgotten_is_in_no_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(clients=3)
    clients = [Client(fleet, number) for number in range(2)]
    job = Job(tmp_path, lambda: list(named(fleet.round(), clients)))
    for _ in range(3):
        job.batch()
    gone = clients[0].instance
    count = f"SELECT count(*) FILTER (client_instance_id = '{gone}'), count(*) FROM metric_points"

    def rows(moment: int | None = None) -> tuple[int, int]:
        first, second = run_query(job.lake, count, moment=moment).read_all().to_pylist()[0].values()
        return first, second

    before = {moment: rows(moment) for moment in (None, 1, 2, 3)}
    assert all(own > 0 for own, _ in before.values())
    job.cut_off_batch(monkeypatch)
    Erasure(job.lake, str(job.stream.checkpoints)).forget(Request(client_instance=gone))
    for moment in (1, 2, 3):
        with pytest.raises(QueryError, match=rf"has no moment {moment}: it has none"):
            rows(moment)
    assert rows()[0] == 0
    job.start()
    job.batch()
    newest = newest_moment(job.lake).number
    assert rows(newest) == rows()
    with pytest.raises(QueryError, match=rf"has no moment 3: it has those from \d to {newest}"):
        rows(3)


@pytest.mark.slow
def test_a_swap_of_replay_is_a_moment(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        job.batch()
    view, replace, done = seen(job.lake), TableLog.replace, list[str]()
    before = {table.name: DeltaTable(table.uri(job.lake)).file_uris() for table in COMMIT_ORDER}

    def watched(log: TableLog, *args: Any) -> bool:
        moment = newest_moment(job.lake)
        for table in COMMIT_ORDER:
            at = moment.at(table.name, DeltaTable(table.uri(job.lake)))
            assert at.file_uris() == before[table.name]
        done.append(log.table.name)
        return replace(log, *args)

    monkeypatch.setattr(TableLog, "replace", watched)
    replay.replay(job.lake, str(job.stream.checkpoints), None, DEFAULT_LIMITS, 1, run_tasks)
    assert done == [table.name for table in COMMIT_ORDER]
    assert newest_moment(job.lake).number == 3
    assert set(DeltaTable(METRIC_POINTS.uri(job.lake)).file_uris()).isdisjoint(before["metric_points"])
    assert seen(job.lake) == seen(job.lake, 2) == seen(job.lake, 3) == view
    job.start()
    job.batch()
    assert newest_moment(job.lake).number == 4
    assert is_whole(seen(job.lake))


def test_a_new_checkpoint_goes_on_with_the_numbers(job: Job, tmp_path: Path) -> None:
    for _ in range(2):
        job.batch()
    job.start(tmp_path / "other")
    job.batch()
    assert newest_moment(job.lake) == Moment(job.lake, 3, 3)


def test_a_lake_without_moments_is_read_at_its_latest_versions(tmp_path: Path) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet()
    stream.batch(fleet.round())  # its commits have no numbers
    stream.land(fleet.round())
    lake, rows = str(stream.lake), latest(str(stream.lake))
    assert newest_moment(lake) == Moment(lake, 0, None)
    view = seen(lake)
    assert (view["pushes"][0], view["outcomes"][0], view["points"][1]) == tuple(
        rows[name] for name in ("pushes", "push_outcomes", "metric_points")
    )
    assert run_query(lake, "FROM moments").read_all().num_rows == 0
    with pytest.raises(QueryError, match="has no moment 1: it has none"):
        run_query(lake, "FROM pushes", moment=1)


def test_a_lifecycle_s_events_are_seen_at_once(job: Job) -> None:
    job.batch()
    TableLog(CLIENT_EVENTS, job.lake).commit([], "lifecycle", 1, {"other": 1})
    table = DeltaTable(CLIENT_EVENTS.uri(job.lake))
    assert newest_moment(job.lake).at("client_events", table) is table
