"""The lifecycle over a lake's tables: steps, crashes, labels, merging, waves. No Spark."""

from __future__ import annotations

import pickle
import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from kafka_telemetry_lake.jobs.companions import judging
from kafka_telemetry_lake.jobs.support import supervisor
from kafka_telemetry_lake.jobs.support.supervisor import supervised
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.errors import StateMissingError
from kafka_telemetry_lake.pipelines.lake.log_files import LogFiles
from kafka_telemetry_lake.pipelines.lake.table_files import TableFiles
from kafka_telemetry_lake.pipelines.lifecycle import follower as lifecycle
from kafka_telemetry_lake.pipelines.lifecycle import shard_task
from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from kafka_telemetry_lake.pipelines.lifecycle.shard_runs import RunTask
from kafka_telemetry_lake.pipelines.lifecycle.shard_task import ShardsTask
from kafka_telemetry_lake.pipelines.lifecycle.stored_rows import NAME
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS
from kafka_telemetry_lake.pipelines.tables.table import Table
from kafka_telemetry_lake.udfs.lifecycle.clients import Clients
from kafka_telemetry_lake.udfs.lifecycle.events import EventLimit, limited
from kafka_telemetry_lake.udfs.lifecycle.push_sequences import LIFECYCLE_IN, Clocks, with_clocks
from kafka_telemetry_lake.udfs.lifecycle.rows import TERMINATED
from kafka_telemetry_lake.udfs.lifecycle.transitions import advance
from tests.support.expired_logs import expire_logs
from tests.support.lake_tables import clients_of, table
from tests.support.patience import wait_until
from tests.unit.lifecycle.test_lifecycle import Rows, at, others, push, random_pushes

pytestmark = pytest.mark.lake


def run_here(task: ShardsTask) -> Rows:
    """Runs a task for each shard in two attempts of this process, as Spark would, values shipped and all."""
    shipped: ShardsTask = pickle.loads(pickle.dumps(task))
    batches = [pa.RecordBatch.from_pydict({"id": shards}) for shards in (range(1), range(1, task.shards))]
    return [row for batch in shipped(iter(batches)) for row in batch.to_pylist()]


IN_TASKS = (3, run_here)


class LandedLake:
    """A lake of which only `pushes` and `push_outcomes` are written, one commit a call."""

    def __init__(self, path: Path, tasks: tuple[int, RunTask] | None = None) -> None:
        self.path, self.tasks = path, tasks
        self._commits = 0
        for each in (PUSHES, PUSH_OUTCOMES):
            each.create(str(path))

    def land(self, pushes: Iterable[dict[str, Any]], labels: dict[str, str] | None = None) -> LandedLake:
        self._commits += 1
        rows = list(pushes)
        self._append(PUSHES, rows)
        if labels is not None:
            outcomes = [{**row, "labels": list(labels.items())} for row in rows]
            self._append(PUSH_OUTCOMES, outcomes)
        return self

    def _append(self, which: Table, rows: Rows) -> None:
        named = [{name: row[name] for name in which.schema.names if name in row} for row in rows]
        files = TableFiles(which, str(self.path))
        files.write(pa.Table.from_pylist(named, which.schema))
        TableLog(which, str(self.path)).commit(files.close(), "test", self._commits)

    def judge(self) -> LandedLake:
        self.lifecycle().catch_up()
        return self

    def lifecycle(self) -> Lifecycle:
        return Lifecycle(str(self.path), tasks=self.tasks)

    def events(self) -> Rows:
        return sorted(table(self.path, "client_events").to_pylist(), key=lambda row: str(list(row.values())))

    def clients(self) -> dict[str, dict[str, Any]]:
        return {name: row for (_, name), row in clients_of(self.path).items()}


@pytest.fixture
def lake(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> LandedLake:
    """Judged in tasks; a test of `both_ways` also judges in this process, as does what others are compared with."""
    monkeypatch.setattr(lifecycle, "MOST_IN_PROCESS", -1)
    return LandedLake(tmp_path, getattr(request, "param", IN_TASKS))


both_ways = pytest.mark.parametrize("lake", [None, IN_TASKS], ids=["in process", "in tasks"], indirect=True)


@pytest.fixture(autouse=True)
def machine(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this machine's copies of the clients."""
    folder = tmp_path_factory.mktemp("machine")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder))
    return folder


@both_ways
def test_a_lake_says_who_is_there(lake: LandedLake) -> None:
    lake.land([push(0, 0), push(0, 1, "b", terminating=True)], {"group_id": "g", "group_member_id": "m-1"}).judge()
    lake.land([push(30, 2)], {"group_id": "g", "group_member_id": "m-2"}).land([others(500, 3)]).judge()
    rows = run_query(str(lake.path), "SELECT * FROM clients").read_all().to_pylist()
    clients = {row["client_instance_id"]: row for row in rows}
    assert {name: (row["state"], row["pushes"]) for name, row in clients.items()} == {
        "a": ("silent", 2), "b": ("terminated", 1), "z": ("active", 1),
    }  # fmt: skip
    assert (clients["a"]["silent_at"], clients["a"]["last_seen"]) == (at(120), at(30))
    assert clients["a"]["labels"] == [("group_id", "g"), ("group_member_id", "m-2")]
    assert clients["a"]["group_member_ids"] == ["m-1", "m-2"]
    assert clients["z"]["labels"] is None
    assert [(row["client_instance_id"], row["event"]) for row in lake.events() if row["at"] > at(0)] == [
        ("a", "went_silent"), ("z", "first_seen"),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(2))
def test_replay_from_zero_gives_the_same_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    pushes, chance = random_pushes(seed), random.Random(seed)
    whole = LandedLake(tmp_path / "whole").land(pushes).judge()
    monkeypatch.setattr(lifecycle, "MOST_IN_PROCESS", -1)
    cut = LandedLake(tmp_path / "cut", IN_TASKS if seed % 2 else None)
    while pushes:
        size = chance.randrange(5, 40)
        cut.land(pushes[:size])
        pushes = pushes[size:]
        if chance.random() < 0.6:
            cut.judge()
    assert said(cut.judge()) == said(whole)


class KilledError(Exception):
    pass


Said = tuple[dict[str, dict[str, Any]], Rows]


def said(lake: LandedLake) -> Said:
    return lake.clients(), lake.events()


ROUNDS = [[push(0, 0), others(0, 1)], [push(30, 2), others(500, 3)], [push(600, 4), others(601, 5)]]


@pytest.fixture(scope="module")
def of_rounds(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """What a lake says whose steps nothing killed."""
    lake = LandedLake(tmp_path_factory.mktemp("plain"))
    for pushes in ROUNDS:
        lake.land(pushes).judge()
    return said(lake)


@pytest.mark.parametrize("when", ["client_events", "client_changes", "noted"])
@pytest.mark.parametrize(("lake", "before"), [(None, True), (IN_TASKS, False)], indirect=["lake"])
def test_a_step_that_was_killed_is_done_once(
    lake: LandedLake, of_rounds: Said, monkeypatch: pytest.MonkeyPatch, when: str, before: bool
) -> None:
    first, second, third = ROUNDS
    lake.land(first).judge().land(second)

    def killed(self: Lifecycle, which: Any, *rest: Any) -> None:
        stop = which.name == when if isinstance(which, Table) else when == "noted" and which.under_way is None
        if stop and before:
            raise KilledError
        real[isinstance(which, Table)](self, which, *rest)
        if stop:
            raise KilledError

    real: dict[bool, Callable[..., None]] = {True: Lifecycle._commit, False: Lifecycle._write_note}
    with monkeypatch.context() as patch:
        patch.setattr(Lifecycle, "_commit", killed)
        patch.setattr(Lifecycle, "_write_note", killed)
        with pytest.raises(KilledError):
            lake.judge()
    lake.land(third)  # what lands meanwhile is not part of the step that runs again
    assert said(lake.judge()) == of_rounds


@both_ways
def test_merged_changes_are_the_same_clients(lake: LandedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(3):
        lake.land([push(10 * step, step, f"c{step % 2}", broker_id=step)], {"client_rack": "r"}).judge()
    before = lake.clients()
    monkeypatch.setattr(shard_task, "ROWS_AT_A_TIME", 2)
    monkeypatch.setattr(lifecycle, "MOST_FILES", 0)
    lake.land([others(41, 5)]).judge()
    assert table(lake.path, "client_changes").num_rows == 3
    after = lake.clients()
    assert {name: after[name] for name in before} == before
    assert lake.land([push(50, 6, "c0")]).judge().clients()["c0"]["pushes"] == 3


def test_l18_clients_that_are_gone_for_a_month_are_forgotten(lake: LandedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "MOST_FILES", 0)
    month = 30 * 86_400
    lake.land([push(0, 0), push(1, 1, "b")]).land([others(month + 0.5, 2)]).judge()
    assert sorted(lake.clients()) == ["b", "z"]
    assert lake.land([push(month + 1, 3, "b"), push(month + 1, 4)]).judge().clients()["a"]["pushes"] == 1
    assert [row["event"] for row in lake.events() if row["client_instance_id"] == "b"].count("resumed") == 1


def test_maintenance_may_compact_meanwhile(lake: LandedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.land([push(0, 0)]).judge()

    def conflicting(*_: object, **__: object) -> None:
        raise CommitFailedError("a file was removed meanwhile")

    with monkeypatch.context() as patch:
        patch.setattr(lifecycle, "MOST_FILES", 0)
        patch.setattr(TableLog, "overwrite", conflicting)
        lake.land([push(30, 1)]).judge()
    assert lake.land([push(60, 2)]).judge().clients()["a"]["pushes"] == 3


def test_the_companion_follows_the_lake_and_takes_what_is_there_at_its_end(lake: LandedLake) -> None:
    now = int(at(1000).timestamp() * 1e6)
    lake.land([push(0, 0)])
    with supervised(str(lake.path), [judging(lake.lifecycle(), lake.lifecycle, lambda: now, 0.01)]):
        wait_until(lambda: "went_silent" in [row["event"] for row in lake.events()])
    slow = judging(lake.lifecycle(), lake.lifecycle, lambda: None, 3600)
    with supervised(str(lake.path), [replace(slow, waits_first=True)]):
        lake.land([push(1001, 1)])
    assert [row["event"] for row in lake.events()].count("resumed") == 1


def test_a_companion_that_dies_in_a_step_goes_on_as_if_it_had_not(
    lake: LandedLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Half of the step is committed, and what is in memory counts it: another one is made from what is stored."""
    steps = [[push(0, 0), push(0, 1, "b")], [push(30, 2), push(31, 3, "b", terminating=True)], [push(400, 4)]]
    unharmed = LandedLake(tmp_path / "unharmed", lake.tasks)
    for rows in steps:
        unharmed.land(rows)
    unharmed.judge()
    commit, deaths = Lifecycle._commit, [SystemExit(), OSError("disk full")]

    def dying(one: Lifecycle, which: Table, *more: Any) -> None:
        if deaths and which is CLIENT_CHANGES:
            raise deaths.pop()
        commit(one, which, *more)

    monkeypatch.setattr(supervisor, "pause_after", lambda *_: 0.01)
    for rows in steps:
        lake.land(rows)
    monkeypatch.setattr(Lifecycle, "_commit", dying)
    with supervised(str(lake.path), [judging(lake.lifecycle(), lake.lifecycle, lambda: None, 0.01)]):
        wait_until(lambda: not deaths)
    assert "lifecycle: disk full; tried again in 0 s" in caplog.messages
    assert lake.events() == unharmed.events()
    assert lake.clients() == unharmed.clients()


def test_a_live_source_without_records_silences_its_clients(lake: LandedLake) -> None:
    lake.land([push(0, 0)]).judge()
    life = lake.lifecycle()
    assert not life.step(int(at(90).timestamp() * 1e6))
    assert [row["event"] for row in lake.events()] == ["first_seen"]
    assert not life.step(int(at(91).timestamp() * 1e6))
    assert [(row["event"], row["at"]) for row in lake.events()][1:] == [("went_silent", at(90))]
    steps = DeltaTable(str(lake.path / "client_changes")).version()
    assert not life.step(int(at(120).timestamp() * 1e6))
    assert DeltaTable(str(lake.path / "client_changes")).version() == steps
    replayed = LandedLake(lake.path / "again").land([push(0, 0)]).land([push(200, 1)]).judge()
    assert lake.land([push(200, 1)]).judge().events() == replayed.events()


def test_a_commit_that_comes_while_the_log_is_looked_at_is_taken(
    lake: LandedLake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", lifecycle.__name__)
    lake.land([push(0, 0)]).judge()
    checkpoint, landed = LogFiles.checkpoint, set[str]()

    def landing_meanwhile(files: LogFiles) -> int | None:
        name = files.uri.rpartition("/")[2]
        if name in ("pushes", "push_outcomes") and name not in landed:
            landed.add(name)
            if len(landed) == 1:
                lake.land([push(1, 1, "b")], {"group_id": "g"})
            DeltaTable(files.uri).create_checkpoint()
        return checkpoint(files)

    life = lake.lifecycle()
    monkeypatch.setattr(LogFiles, "checkpoint", landing_meanwhile)
    life.catch_up()
    assert landed == {"pushes", "push_outcomes"}
    assert "lifecycle: step 2" in caplog.text
    assert "reads the stored pushes, not their commits" not in caplog.text
    assert sorted(lake.clients()) == ["a", "b"]


def in_parts(lake: LandedLake, rounds: int = 6) -> LandedLake:
    """Rounds of pushes of three clients; the last ones show that the first two are silent."""
    for number in range(rounds):
        rows = [push(30 * number, 3 * number + i, f"c{i}", broker_id=i) for i in range(3)]
        lake.land(rows, {"group_id": f"g{number}"})
    return lake.land([others(1000, 3 * rounds)], {})


def test_each_commit_of_the_log_is_read_once(lake: LandedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first start after a day has tens of thousands of them. A step that was cut off reads its own again."""
    monkeypatch.setattr(lifecycle, "STEP_ROWS", 3)
    for offset in range(10):
        lake.land([push(10 * offset, offset)], {})
    read = list[tuple[str, int]]()
    own = LogFiles.read

    def counted(files: LogFiles, version: int) -> Any:
        actions = own(files, version)
        if actions is not None:
            read.append((Path(files.uri).name, version))
        return actions

    judged = lake.lifecycle()
    with monkeypatch.context() as patch:
        patch.setattr(LogFiles, "read", counted)
        judged.catch_up()
    commits = [each for each in read if each[0] in ("pushes", "push_outcomes")]
    assert sorted(commits) == sorted((name, version) for name in ("pushes", "push_outcomes") for version in range(11))
    assert lake.clients()["a"]["pushes"] == 10


LATER = [push(1030, 19, "c0")]


@pytest.fixture(scope="module")
def of_parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Said, Said]:
    """What a lake says of these rounds and of a later push."""
    lake = in_parts(LandedLake(tmp_path_factory.mktemp("plain"))).judge()
    return said(lake), said(lake.land(LATER, {}).judge())


def test_it_begins_with_the_stored_rows_if_the_log_has_forgotten_their_commits(
    lake: LandedLake, of_parts: tuple[Said, Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_parts(lake)
    expire_logs(lake.path)
    monkeypatch.setattr(lifecycle, "STEP_ROWS", 4)
    assert said(lake.judge()) == of_parts[0]
    assert not [*(lake.path / "client_changes").glob(f"{NAME}-e*.json")]
    assert said(lake.land(LATER, {}).judge()) == of_parts[1]


@pytest.mark.parametrize(("lake", "has_log"), [(None, False), (IN_TASKS, True)], indirect=["lake"])
def test_begun_again_it_repeats_no_event_and_misses_none(lake: LandedLake, has_log: bool) -> None:
    """The folder is deleted, as the line for a missing note advises."""
    for number in range(4):
        lake.land([push(30 * number, number)], {}).judge()
    lake.land(fleet(0, 100, 120, 10), {}).land([others(500, 4)], {}).judge()
    events = lake.events()
    assert [row["event"] for row in events if row["client_instance_id"] == "a"] == ["first_seen", "went_silent"]
    assert [row["event"] for row in waves(lake)] == ["mass_silence"]
    shutil.rmtree(lake.path / "client_changes")
    if not has_log:
        expire_logs(lake.path)
    assert lake.judge().events() == events
    assert not [*(lake.path / "client_changes").glob(f"{NAME}-e*.json")]
    lake.land([push(520, 5)], {}).judge()
    assert [row["event"] for row in lake.events() if row["at"] == at(520)] == ["resumed"]


@pytest.mark.parametrize("cut_at", [1, 3])  # between the commits of the first step, and of the second
def test_cut_off_in_the_stored_rows_it_goes_on_with_the_same_files(
    lake: LandedLake, of_parts: tuple[Said, Said], monkeypatch: pytest.MonkeyPatch, cut_at: int
) -> None:
    in_parts(lake)
    expire_logs(lake.path)
    monkeypatch.setattr(lifecycle, "STEP_ROWS", 6)
    real, steps = Lifecycle._commit, []

    def killed(self: Lifecycle, which: Table, *rest: Any) -> None:
        real(self, which, *rest)
        steps.append(which)
        if len(steps) == cut_at:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(Lifecycle, "_commit", killed)
        with pytest.raises(KilledError):
            lake.judge()
    for name in ("pushes", "push_outcomes"):  # days of upkeep follow
        DeltaTable(str(lake.path / name)).optimize.compact()
    expire_logs(lake.path)
    assert said(lake.judge()) == of_parts[0]


def test_commits_that_were_forgotten_before_they_were_read_are_found_in_the_tables(
    lake: LandedLake, tmp_path_factory: pytest.TempPathFactory
) -> None:
    plain = LandedLake(tmp_path_factory.mktemp("plain"))
    for each in (lake, plain):
        each.land([push(0, 0), push(1, 1, "b")], {"group_id": "g"}).judge()
        each.land([push(30, 2)], {"group_id": "h"}).land([others(500, 3)], {})
    for name in ("pushes", "push_outcomes"):  # read and unread pushes in one file
        DeltaTable(str(lake.path / name)).optimize.compact()
    expire_logs(lake.path)
    assert said(lake.judge()) == said(plain.judge())
    assert lake.clients()["a"]["pushes"] == 2


def test_an_outcome_may_be_read_before_any_push_of_its_partition(lake: LandedLake) -> None:
    """A step reads as many commits of each table as have enough rows, so outcomes may be ahead."""
    lake.land([push(0, 0)]).judge()
    dead = {"outcome": "points", "bootstrap_requests": 0, "broker_responses": 0, "metadata_age_s": 700.0}
    lake._append(PUSH_OUTCOMES, [push(30, 0, partition=1) | dead])
    lake.judge().land([push(30, 0, partition=1)]).judge()
    assert [(row["event"], row["partition"]) for row in lake.events()] == [("first_seen", 0), ("data_path_dead", 1)]
    assert lake.clients()["a"]["pushes"] == 2


def test_table_without_its_note_is_refused(lake: LandedLake) -> None:
    lake.land([push(0, 0)]).judge()
    (lake.path / "client_changes" / "_lifecycle-e000000000000.json").unlink()
    with pytest.raises(
        StateMissingError, match=r"_lifecycle-e000000000000.json is missing: delete the folder of table client_ch"
    ):
        lake.judge()


def fleet(first: int, count: int, seconds: float, offset: int, **more: Any) -> Rows:
    return [push(seconds, offset + i, f"n{first + i}", **more) for i in range(count)]


RARELY = {"push_interval_ms": 300_000}


def waves(lake: LandedLake) -> Rows:
    return [row for row in lake.events() if row["client_instance_id"] is None]


@both_ways
def test_l13_many_silent_clients_are_one_event(lake: LandedLake) -> None:
    lake.land(fleet(0, 100, 0, 0)).land(fleet(0, 60, 60, 100)).land([others(600, 200)]).judge()
    (wave,) = waves(lake)
    assert (wave["event"], wave["at"], wave["cluster_id"], wave["topic"]) == (
        "mass_silence", at(120), "c", "client-telemetry",
    )  # fmt: skip
    assert dict(wave["detail"]) == {
        "clients": "40", "active_before": "100", "share": "0.400", "window_s": "300", "brokers": "1: 40",
        "went_silent": "40", "first_seen": "100",
    }  # fmt: skip


def test_l13_a_roll_out_is_one_event(lake: LandedLake) -> None:
    lake.land(fleet(0, 100, 0, 0, **RARELY)).land(fleet(0, 100, 600, 100, terminating=True))
    lake.land(fleet(100, 50, 601, 200, client_software_version="4.4.0", **RARELY))
    lake.land(fleet(150, 50, 661, 250, **RARELY)).land([others(800, 300)]).judge()
    (wave,) = waves(lake)
    assert (wave["event"], wave["at"]) == ("mass_restart", at(660))
    assert dict(wave["detail"]) == {
        "clients": "50", "active_before": "100", "share": "0.500", "window_s": "300",
        "software": "apache-kafka-java 4.4.0: 50", "first_seen": "50", "terminated": "100",
    }  # fmt: skip


def test_l13_a_fleet_that_appears_is_no_restart(lake: LandedLake) -> None:
    assert waves(lake.land(fleet(0, 250, 59, 0)).land(fleet(250, 250, 61, 250)).land([others(140, 600)]).judge()) == []


def many(count: int, first: int, seconds: float, terminating: bool) -> pa.Table:
    """A push of each of so many clients, all landed at once."""
    one = pa.Table.from_pylist([push(seconds, 0, terminating=terminating)], LIFECYCLE_IN)
    rows = one.take(pa.array([0] * count))
    ids, offsets = pa.array([f"n{i}" for i in range(count)]), pa.array(range(first, first + count), pa.int64())
    rows = rows.set_column(rows.column_names.index("client_instance_id"), "client_instance_id", ids)
    return rows.set_column(rows.column_names.index("offset"), "offset", offsets)


def test_thousands_of_clients_that_end_in_one_batch() -> None:
    count, clients, clocks, event_limit = 10_100, Clients(), Clocks(), EventLimit()
    counts = []
    for step, terminating in enumerate((False, True)):
        pushes = with_clocks(many(count, step * count, 10.0 * step, terminating), clocks)
        found = advance(clients, clocks, pushes, SUBSCRIPTIONS.schema.empty_table(), step)
        counts.append(
            (len(found.changed), len(found.events.kind), event_limit.apply([limited(clients, found.events)]).num_rows)
        )
    assert counts == [(count, count, 10_000)] * 2
    assert (clients["state"] == TERMINATED).sum() == count
