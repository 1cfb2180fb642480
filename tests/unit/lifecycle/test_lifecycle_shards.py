"""Clients of a shard in the files of a machine: what a step finds there, and what it takes from the table."""

from __future__ import annotations

import errno
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from filelock import FileLock, Timeout
from hypothesis import given
from hypothesis import strategies as st

from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.table_files import TableFiles
from kafka_telemetry_lake.pipelines.lifecycle import client_files as module
from kafka_telemetry_lake.pipelines.lifecycle import follower
from kafka_telemetry_lake.pipelines.lifecycle.client_files import FileColumns, TextFile, client_files
from kafka_telemetry_lake.pipelines.lifecycle.shard_task import ShardsTask
from kafka_telemetry_lake.udfs.lifecycle.clients import Clients
from tests.support.lake_tables import table
from tests.unit.lifecycle.test_lifecycle import Rows, others, push
from tests.unit.lifecycle.test_lifecycle_lake import IN_TASKS, LandedLake, Said, run_here, said

pytestmark = pytest.mark.lake

NAMES = [f"n{i}" for i in range(12)]
texts = st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"])), max_size=20)


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this machine; all clients are judged in tasks."""
    monkeypatch.setattr(follower, "MOST_IN_PROCESS", -1)
    return use(tmp_path / "machine", monkeypatch)


def use(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder))
    return folder


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of the table that each task took into the state of its shards."""
    rows = list[int]()
    put = Clients.put

    def counted(clients: Clients, some: pa.Table) -> None:
        rows.append(some.num_rows)
        put(clients, some)

    monkeypatch.setattr(Clients, "put", counted)
    return rows


def round_of(number: int, names: list[str] = NAMES) -> Rows:
    return [push(30 * number, 100 * number + i, name, broker_id=i) for i, name in enumerate(names)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """What a lake says of the same pushes, judged in this process."""
    lake = LandedLake(tmp_path_factory.mktemp("plain"))
    for number in range(4):
        lake.land(round_of(number), {"group_id": f"g{number}"})
    return said(lake.land([others(1000, 5000)], {}).judge())


def follow(lake: LandedLake, *interrupted: Any) -> None:
    """Judge four rounds by one job; between two of them something happens."""
    life = lake.lifecycle()
    for number in range(4):
        lake.land(round_of(number), {"group_id": f"g{number}"})
        life.catch_up()
        if number < len(interrupted) and interrupted[number] is not None:
            interrupted[number]()
    lake.land([others(1000, 5000)], {})
    life.catch_up()


def test_a_step_reads_nothing_of_clients_whose_files_are_there(tmp_path: Path, taken: list[int], plain: Said) -> None:
    lake = LandedLake(tmp_path / "lake", IN_TASKS)
    follow(lake)
    assert sum(taken) == 0
    assert said(lake) == plain
    assert len(lake.clients()) == len(NAMES) + 1


def test_a_machine_that_had_the_shards_before_reads_what_has_changed_since(
    tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch, taken: list[int]
) -> None:
    lake = LandedLake(tmp_path / "lake", IN_TASKS)
    few = NAMES[:2]
    life = lake.lifecycle()
    for number, (folder, names) in enumerate(
        [(machine, NAMES), (tmp_path / "other", few), (tmp_path / "other", few), (machine, NAMES)]
    ):
        use(folder, monkeypatch)
        lake.land(round_of(number, names), {})
        life.catch_up()
    # The other machine took all clients, the first one the two that changed, each in two steps.
    assert sum(taken) == len(NAMES) + 2 * len(few)
    again = LandedLake(tmp_path / "plain")
    for number, names in enumerate((NAMES, few, few, NAMES)):
        again.land(round_of(number, names), {})
    assert lake.clients() == again.judge().clients()


def test_files_of_a_step_that_failed_are_not_used(
    tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch, taken: list[int], plain: Said
) -> None:
    lake = LandedLake(tmp_path / "lake", IN_TASKS)
    real, failed = TableFiles.close, list[int]()

    def fails(files: Any) -> Any:
        if files._table.name == "client_changes" and not failed:
            failed.append(1)
            raise ValueError("the worker ends")
        return real(files)

    def run_again(task: ShardsTask) -> Any:
        try:
            return run_here(task)
        except ValueError:
            return run_here(task)  # as Spark does; one shard is as of the step already

    def let_fail() -> None:
        monkeypatch.setattr(TableFiles, "close", fails)

    lake.tasks = (3, run_again)
    follow(lake, None, let_fail)
    assert failed
    assert sum(taken) > 0
    assert said(lake) == plain


@pytest.mark.slow
def test_an_attempt_that_is_made_again_begins_with_the_state_before(
    tmp_path: Path, taken: list[int], plain: Said
) -> None:
    lake = LandedLake(tmp_path / "lake", (3, lambda task: [run_here(task), run_here(task)][1]))
    follow(lake)
    assert sum(taken) > 0
    assert said(lake) == plain


def test_files_that_are_lost_or_of_a_machine_that_was_started_again_are_made_again(
    tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch, taken: list[int], plain: Said
) -> None:
    lake = LandedLake(tmp_path / "lake", IN_TASKS)

    def lose() -> None:
        for path in machine.rglob("numbers"):
            path.unlink()

    follow(lake, lose, lambda: monkeypatch.setattr(module, "_boot", lambda: "another"), lambda: shutil.rmtree(machine))
    assert sum(taken) == (1 + 2 + 3) * len(NAMES)  # rows of all steps before
    assert lake.clients() == plain[0]


def test_a_full_disk_costs_time_and_no_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, plain: Said
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    lake = LandedLake(tmp_path / "lake", IN_TASKS)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(FileColumns, "grow", full)
        follow(lake)
    assert "clients are read from client_changes for each step: [Errno 28] No space left" in caplog.text
    assert said(lake) == plain


def test_another_job_uses_no_files_of_this_one_and_deletes_them(tmp_path: Path, machine: Path) -> None:
    lake = LandedLake(tmp_path / "lake", IN_TASKS).land(round_of(0)).judge()
    before = {path.parent for path in machine.rglob("about.json")}
    lake.land(round_of(1)).judge()
    after = {path.parent for path in machine.rglob("about.json")}
    assert (len(before), len(after), before & after) == (3, 3, set())
    assert {path for path in before if path.exists()} == set()


def test_texts_of_clients_that_are_gone_do_not_stay(
    tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SPARE_BYTES", 0)
    lake = LandedLake(tmp_path / "lake", IN_TASKS)
    life, sizes = lake.lifecycle(), list[int]()
    for number in range(8):
        lake.land([push(30 * number, number, "a", client_id=f"{number}-" + "x" * 1000)])
        life.catch_up()
        sizes.append(sum(path.stat().st_size for path in machine.rglob("texts")))
    assert max(sizes) < 6 * sizes[0]
    assert lake.clients()["a"]["pushes"] == 8


def test_changes_are_merged_after_as_many_steps_whatever_the_number_of_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "MOST_FILES", 2)
    for name, tasks in (("one", None), ("three", IN_TASKS)):
        lake = LandedLake(tmp_path / name, tasks)
        life, rows = lake.lifecycle(), list[int]()
        for number in range(3):
            lake.land(round_of(number))
            life.catch_up()
            rows.append(table(lake.path, "client_changes").num_rows)
        assert rows == [len(NAMES), 2 * len(NAMES), len(NAMES)]


def test_clients_that_were_few_are_judged_in_tasks_once_they_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, taken: list[int], plain: Said
) -> None:
    monkeypatch.setattr(follower, "MOST_IN_PROCESS", len(NAMES) - 1)
    lake = LandedLake(tmp_path / "lake", IN_TASKS)
    with caplog.at_level(logging.INFO):
        follow(lake)
    assert [record.message for record in caplog.records if "in tasks" in record.message] == [
        "lifecycle: clients are judged in tasks of 3 shards: there are 12 rows of them"
    ]
    assert sum(taken) == len(NAMES)
    assert said(lake) == plain


@given(first=texts, second=texts)
def test_texts_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, first: Any, second: Any) -> None:
    folder = tmp_path_factory.mktemp("texts")
    file = TextFile(folder / "texts", 0)
    columns = FileColumns(folder / "numbers", file, 0)
    columns.grow(64)
    column = columns.objects["client_id"]
    for values in (first, second):
        column[np.arange(len(values))] = np.array([*values, None], object)[:-1]
        again = FileColumns(folder / "numbers", TextFile(folder / "texts", file.end), columns.capacity)
        for each in (column, again.objects["client_id"]):
            assert each[np.arange(len(values))[::-1]].tolist() == values[::-1]
    expected = [*second, *first[len(second) :]]
    assert column[np.arange(len(expected))].tolist() == expected
    assert column[np.array([63])].tolist() == [None]


def test_one_process_at_a_time_has_a_shards_files(tmp_path: Path) -> None:
    place = (Lake(str(tmp_path / "lake")), "job", 0, 1)
    with client_files(*place) as files:
        files.done(7)
        (lock,) = tmp_path.rglob("lock")
        with pytest.raises(Timeout):
            FileLock(lock, timeout=0).acquire()
    with client_files(*place) as files:
        assert files.step == 7
