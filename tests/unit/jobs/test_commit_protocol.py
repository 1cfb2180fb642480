"""Two jobs on one lake, at every interleaving of their steps (docs/commit-protocol.md)."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake.exceptions import CommitFailedError

from kafka_telemetry_lake.jobs.support import locks
from kafka_telemetry_lake.pipelines.ingest import operator
from kafka_telemetry_lake.pipelines.ingest.operator import Operator
from kafka_telemetry_lake.pipelines.lake import checkpoint_folders, delta_log, moments
from kafka_telemetry_lake.pipelines.lake.checkpoint_folders import COPY
from kafka_telemetry_lake.pipelines.lake.delta_log import CommitLog, TableLog
from kafka_telemetry_lake.pipelines.lake.fence import APP_ID, Fence
from kafka_telemetry_lake.pipelines.lake.log_files import NewFiles
from kafka_telemetry_lake.pipelines.lake.moments import MOMENT
from kafka_telemetry_lake.pipelines.state import manifest
from kafka_telemetry_lake.pipelines.state.manifest import StateFolder
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, PUSH_OUTCOMES
from tests.support.interleavings import Explored, Explorer, run_alone
from tests.support.model_jobs import LAKE, empty_lake, ingest, model
from tests.support.model_store import MISSING, Disk, ask
from tests.support.protocol_invariants import Invariants, is_invisible
from tests.support.protocol_lakes import BEFORE, cut_off, lake, problem, three, two

pytestmark = pytest.mark.lake

CHECKPOINTS = "/_checkpoints/"


@pytest.fixture(autouse=True)
def _in_memory() -> Iterator[None]:
    with model():
        yield


# CI explores the lake of a job that has crashed; `make soak` also the others.
CRASHED = ["crashed", *(pytest.param(each, marks=pytest.mark.soak) for each in BEFORE if each != "crashed")]
# What has at most two switches has at most one: of the lake of a job that has crashed CI explores the former.
NOT_CRASHED = [*(each for each in BEFORE if each != "crashed"), pytest.param("crashed", marks=pytest.mark.soak)]


def two_jobs(preemptions: int | None, before: str, *, wake: bool) -> Explored:
    explored = Explorer(two(), Invariants(3, wake=wake), is_invisible, preemptions).explore(BEFORE[before]())
    print(f"{preemptions} switches, {before}: {explored.states:,} states, {explored.disks:,} contents of the store")
    return explored


@pytest.mark.parametrize("before", BEFORE)
def test_one_job_after_the_other(before: str) -> None:
    explored = two_jobs(0, before, wake=True)
    assert explored.found is None, explored.found
    assert explored.ends == {"p1: done": 2, "p2: done": 2}
    assert explored.states > 200


def test_a_lake_whose_tables_and_checkpoints_are_of_different_times_is_refused() -> None:
    """A copy that was made while jobs ran, or a backup of one of both beside the other."""
    disks = [empty_lake()]
    for number in range(1, 6):
        disk, end = run_alone(f"p{number}", partial(ingest, number, 1), disks[-1])
        assert end == "done"
        disks.append(disk)
    for tables, checkpoints in itertools.product(range(1, 6), repeat=2):
        files = {path: data for path, data in disks[tables].files.items() if CHECKPOINTS not in path}
        files |= {path: data for path, data in disks[checkpoints].files.items() if CHECKPOINTS in path}
        copy, end = run_alone("copy", lambda: ingest(6, 6), Disk().changed(dict(files)))
        if tables == checkpoints:
            assert end == "done"
            Invariants(6, wake=False)(copy, (), ())
        else:
            assert end.startswith("OldCheckpointError: " if tables > checkpoints else "OldLakeError: ")


@pytest.mark.slow
@pytest.mark.parametrize("before", NOT_CRASHED)
def test_one_switch_anywhere(before: str) -> None:
    explored = two_jobs(1, before, wake=False)
    assert problem(explored) == "none", explored.found
    assert {end[:12] for end in explored.ends} >= {"p1: done", "p2: done", "p1: TakenOve", "p2: TakenOve"}
    assert explored.states > 5000


@pytest.mark.slow
@pytest.mark.parametrize("before", CRASHED)
def test_two_switches_anywhere(before: str) -> None:
    explored = two_jobs(2, before, wake=False)
    assert problem(explored) == "none", explored.found
    assert {end[:12] for end in explored.ends} >= {"p1: done", "p2: done", "p1: TakenOve", "p2: TakenOve"}
    assert explored.states > 50_000


@pytest.mark.slow
@pytest.mark.parametrize("before", CRASHED)
def test_whoever_wakes_after_a_recovery_changes_nothing(before: str) -> None:
    explored = two_jobs(1, before, wake=True)
    assert problem(explored) == "none", explored.found


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("before", BEFORE)
def test_three_jobs_and_one_switch_anywhere(before: str) -> None:
    alone = partial(is_invisible, latest=4)
    explored = Explorer(three(), Invariants(3, wake=False), alone, 1).explore(BEFORE[before]())
    print(f"three jobs, 1 switch, {before}: {explored.states:,} states, {explored.disks:,} contents of the store")
    assert problem(explored) == "none", explored.found
    assert explored.states > 100_000


def _no_epoch_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitLog, "check_epoch", lambda _: None)


def _no_epoch_at_open(patch: pytest.MonkeyPatch) -> None:
    append = CommitLog._append

    def only_batches(self: CommitLog, actions: Any, transactions: Any, removed: Any = (), note: Any = None) -> None:
        if set(transactions) != {APP_ID}:
            append(self, actions, transactions, removed, note)

    patch.setattr(CommitLog, "_append", only_batches)


def _commit_overwrites(patch: pytest.MonkeyPatch) -> None:
    def put(self: NewFiles, name: str, data: bytes) -> bool:
        ask("put", f"{self._store}/{name}", data)
        return True

    add = NewFiles.add
    patch.setattr(NewFiles, "add", lambda self, *new: (put if "_delta_log" in self.uri else add)(self, *new))


def _claim_by_look_and_write(patch: pytest.MonkeyPatch) -> None:
    add = NewFiles.add

    def look_and_write(self: NewFiles, name: str, data: bytes) -> bool:
        if "_delta_log" in self.uri:
            return add(self, name, data)
        if ask("read", f"{self._store}/{name}") != MISSING:
            return False
        ask("put", f"{self._store}/{name}", data)
        return True

    patch.setattr(NewFiles, "add", look_and_write)


def _no_copy(patch: pytest.MonkeyPatch) -> None:
    own = checkpoint_folders.own_checkpoints

    def shared(*args: Any) -> str:
        current = checkpoint_folders._current(f"{LAKE}/_checkpoints")
        own(*args)
        return current

    patch.setattr(checkpoint_folders, "own_checkpoints", shared)
    patch.setattr(checkpoint_folders, "_copy", lambda *_: 0)


def _copy_before_the_epoch(patch: pytest.MonkeyPatch) -> None:
    own, copy = checkpoint_folders.own_checkpoints, checkpoint_folders._copy

    def early(lake: str, checkpoints: Any, fence: Fence) -> str:
        if fence.took_over:
            root = f"{LAKE}/_checkpoints"
            copy(checkpoint_folders._current(root), f"{root}/epoch-{fence.epoch:012d}")
        return own(lake, checkpoints, fence)

    patch.setattr(checkpoint_folders, "own_checkpoints", early)
    patch.setattr(checkpoint_folders, "_copy", lambda *_: 0)


def _look_before_the_epoch(patch: pytest.MonkeyPatch) -> None:
    own, current = checkpoint_folders.own_checkpoints, checkpoint_folders._current

    def early(lake: str, checkpoints: Any, fence: Fence) -> str:
        seen = current(f"{LAKE}/_checkpoints")
        patch.setattr(checkpoint_folders, "_current", lambda _: seen)
        try:
            return own(lake, checkpoints, fence)
        finally:
            patch.setattr(checkpoint_folders, "_current", current)

    patch.setattr(checkpoint_folders, "own_checkpoints", early)


def _half_a_copy_is_used(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(checkpoint_folders, "WHOLE", "lake.json")


def _rows_before_their_state(patch: pytest.MonkeyPatch) -> None:
    write, commit, waiting = StateFolder.write, TableLog.commit, list[Any]()

    def late(self: TableLog, *args: Any) -> bool:
        done = commit(self, *args)
        if self.table is PUSH_OUTCOMES and waiting:
            write(*waiting.pop())
        return done

    patch.setattr(StateFolder, "write", lambda *args: waiting.append(args))
    patch.setattr(TableLog, "commit", late)


def _only_the_newest_manifest_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(manifest, "RETAINED_MANIFESTS", 1)


def _batches_are_committed_again(patch: pytest.MonkeyPatch) -> None:
    def again(self: TableLog, files: Any, app_id: str, version: int, also: Any = None, note: Any = None) -> bool:
        adds = [delta_log._add(file) for file in files]
        if adds or also is not None:
            self._log.append(adds, {app_id: version} | dict(also or {}), note=note)
        return True

    patch.setattr(TableLog, "commit", again)


def _outcomes_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(operator, "COMMIT_ORDER", (PUSH_OUTCOMES, METRIC_POINTS))


def _points_without_their_moment(patch: pytest.MonkeyPatch) -> None:
    append = CommitLog.append

    def without(self: CommitLog, actions: Any, transactions: Any, *more: Any, **named: Any) -> None:
        of_points = METRIC_POINTS.name in self._files.uri
        append(self, actions, {name: n for name, n in transactions.items() if name != MOMENT or not of_points}, *more,
               **named)  # fmt: skip

    patch.setattr(CommitLog, "append", without)


def _pushes_at_their_latest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(moments, "_before_new_pushes", lambda *_: None)


def _the_next_moment_by_a_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Operator, "_moment", property(lambda _: 7, lambda *_: None), raising=False)


def _the_folder_of_a_later_job_is_used(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(checkpoint_folders, "COPY", SimpleNamespace(
        fullmatch=lambda name: None if sys._getframe(1).f_code.co_name == "own_checkpoints" else COPY.fullmatch(name),
        match=COPY.match,
    ))  # fmt: skip


def _epochs_conflict(patch: pytest.MonkeyPatch) -> None:
    check = CommitLog._check_conflict

    def strict(self: CommitLog, winner: Any, transactions: Any, removed: Any) -> None:
        if any("txn" in action and action["txn"]["appId"] == APP_ID for action in winner) and APP_ID in transactions:
            raise CommitFailedError("concurrent transaction")
        check(self, winner, transactions, removed)

    patch.setattr(CommitLog, "_check_conflict", strict)


def _errors_are_not_looked_into(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(locks, "_is_lost", lambda fence: fence.loss is not None)


# The guard that is missing, the switches that it takes to see it, and what is found then.
MUTANTS = {
    _no_epoch_check: (1, "push_outcomes has rows twice"),
    _no_epoch_at_open: (1, "push_outcomes has rows twice"),
    _commit_overwrites: (1, "push_outcomes has rows twice"),
    _claim_by_look_and_write: (1, "has committed after epoch 2"),
    _no_copy: (1, "of the last committed batch is gone"),
    _copy_before_the_epoch: (2, "the manifest of batch 1, which is committed, is gone"),
    _look_before_the_epoch: (2, "the manifest of batch 0, which is committed, is gone"),
    _half_a_copy_is_used: (1, "recovery: JSONDecodeError"),
    _rows_before_their_state: (1, "recovery: OldCheckpointError"),
    _only_the_newest_manifest_stays: (1, "the manifest of batch 0, which is committed, is gone"),
    _batches_are_committed_again: (1, "metric_points has rows twice"),
    _outcomes_first: (1, "moment 2: readers see pushes [{0}, {0, 1, 2}, {0, 1, 2}]"),
    _points_without_their_moment: (1, "moment 1: readers see pushes"),
    _pushes_at_their_latest: (1, "moment 1: readers see pushes"),
    _the_next_moment_by_a_clock: (1, "moment 8: readers see pushes"),
    _the_folder_of_a_later_job_is_used: (1, "p2 uses the folder of another process"),
    _epochs_conflict: (2, "CommitFailedError"),
    _errors_are_not_looked_into: (1, "StateMissingError"),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__.strip("_"))
def test_no_guard_may_be_missing(monkeypatch: pytest.MonkeyPatch, mutant: Any) -> None:
    switches, expected = MUTANTS[mutant]
    disks = [cut_off()] if mutant is _look_before_the_epoch else [lake(crashed=crashed) for crashed in (True, False)]
    mutant(monkeypatch)
    problems = (
        problem(Explorer(two(), Invariants(3, wake=False), is_invisible, switches).explore(disk)) for disk in disks
    )
    found = next((each for each in problems if each != "none"), "none")
    assert found != "none"
    assert expected in found
