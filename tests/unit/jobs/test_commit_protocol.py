"""Two jobs on one lake, at every interleaving of their steps (docs/commit-protocol.md)."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake.exceptions import CommitFailedError

from kafka_telemetry_lake.jobs import locks
from kafka_telemetry_lake.pipelines import reshard as resharding
from kafka_telemetry_lake.pipelines.forget import history
from kafka_telemetry_lake.pipelines.forget.history import TableHistory
from kafka_telemetry_lake.pipelines.ingest import operator
from kafka_telemetry_lake.pipelines.ingest.operator import Operator
from kafka_telemetry_lake.pipelines.lake import checkpoint_folders, delta_log, fence, followed_table, moments
from kafka_telemetry_lake.pipelines.lake.checkpoint_folders import COPY
from kafka_telemetry_lake.pipelines.lake.commit_log import CommitLog
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.epoch_notes import EpochNote
from kafka_telemetry_lake.pipelines.lake.fence import APP_ID, Claims, Fence
from kafka_telemetry_lake.pipelines.lake.followed_table import Commit
from kafka_telemetry_lake.pipelines.lake.moments import MOMENT
from kafka_telemetry_lake.pipelines.lake.new_files import NewFiles
from kafka_telemetry_lake.pipelines.lake.transactions import transaction
from kafka_telemetry_lake.pipelines.replay import replay
from kafka_telemetry_lake.pipelines.state import manifest
from kafka_telemetry_lake.pipelines.state.manifest import StateFolder
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, PUSH_OUTCOMES
from tests.support.interleavings import Explored, Explorer, Process, run_alone
from tests.support.model_forget import ERASED, FORGET, forget, forgetting
from tests.support.model_jobs import FOLDER, LAKE, empty_lake, follow, ingest, maintain, model, reshard, swap, unlocked
from tests.support.model_store import MISSING, Disk, Files, ask, carry_out, path_in, process_name
from tests.support.protocol_invariants import (
    MAINTAIN,
    Followed,
    Invariants,
    is_invisible,
    is_invisible_beside_forget,
    recover,
    recover_with_shards,
)


@pytest.fixture(autouse=True)
def _in_memory() -> Iterator[None]:
    with model():
        yield


def lake(*, crashed: bool) -> Disk:
    """One record is stored and judged. The job that did it has ended, or crashed at its very end."""
    disk, end = run_alone("p0", lambda: ingest(1, 1), empty_lake())
    assert end == "done"
    return disk.changed({path: None for path in disk.files if path.endswith(".released") and crashed})


def cut_off() -> Disk:
    """One record is stored and not judged: the job crashed before it wrote the first manifest."""
    job, disk = Process("p0", lambda: ingest(1, 1)), empty_lake()
    node = job.known(job.start, disk)
    while node.step is not None and "/manifest-" not in node.step[1]:
        answer, disk = carry_out(disk, node.step)
        node = job.known(node.after(answer), disk)
    assert node.step is not None
    return disk


def two() -> list[Process]:
    """One takes a record, the other two and doesn't wait for the first: they note different offsets for one batch."""
    return [Process("p1", lambda: ingest(2, 1)), Process("p2", lambda: ingest(3, 2, take_over=True))]


def three() -> list[Process]:
    """The same, and one more that takes over."""
    return [*two(), Process("p3", lambda: ingest(3, 1, take_over=True))]


CHECKPOINTS = "/_checkpoints/"
BEFORE = {"ended": lambda: lake(crashed=False), "crashed": lambda: lake(crashed=True), "cut off": cut_off}


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


LINES = ("done", "killed", "TakenOverError", "LakeBusyError")  # how a job may end


def problem(explored: Explored, *also: str) -> str:
    """The first line of what was found; a job that ends with another line than that of a loser counts too.

    Args:
        also: how a line may begin.
    """
    if explored.found is not None:
        return explored.found.partition("\n")[0]
    ends = (end.partition(": ")[2] for end in explored.ends)
    return next((end for end in ends if not end.startswith((*LINES, *also))), "none")


@pytest.mark.exhaustive
@pytest.mark.parametrize("before", BEFORE)
def test_one_switch_anywhere(before: str) -> None:
    explored = two_jobs(1, before, wake=False)
    assert problem(explored) == "none", explored.found
    assert {end[:12] for end in explored.ends} >= {"p1: done", "p2: done", "p1: TakenOve", "p2: TakenOve"}
    assert explored.states > 5000


@pytest.mark.slow
@pytest.mark.parametrize("before", BEFORE)
def test_two_switches_anywhere(before: str) -> None:
    explored = two_jobs(2, before, wake=False)
    assert problem(explored) == "none", explored.found
    assert explored.states > 50_000


@pytest.mark.slow
@pytest.mark.parametrize("before", BEFORE)
def test_whoever_wakes_after_a_recovery_changes_nothing(before: str) -> None:
    explored = two_jobs(1, before, wake=True)
    assert problem(explored) == "none", explored.found


def three_jobs(before: str) -> Explored:
    alone = partial(is_invisible, latest=4)
    explored = Explorer(three(), Invariants(3, wake=False), alone, 1).explore(BEFORE[before]())
    print(f"three jobs, 1 switch, {before}: {explored.states:,} states, {explored.disks:,} contents of the store")
    return explored


@pytest.mark.slow
@pytest.mark.parametrize(
    "before", [pytest.param(each, marks=pytest.mark.soak) if each == "cut off" else each for each in BEFORE]
)
def test_three_jobs_and_one_switch_anywhere(before: str) -> None:
    explored = three_jobs(before)
    assert problem(explored) == "none", explored.found
    assert explored.states > 100_000


def beside(
    name: str, code: Callable[[], str], invariants: Invariants | None = None, invisible: Any = is_invisible
) -> Explored:
    """A job, and another command beside it."""
    processes = [Process("p1", lambda: ingest(3, 1, take_over=True)), Process(name, code)]
    explored = Explorer(processes, invariants or Invariants(3, wake=False), invisible, 1).explore(lake(crashed=True))
    print(f"{name}, 1 switch: {explored.states:,} states, {explored.disks:,} contents of the store")
    return explored


@pytest.mark.exhaustive
def test_maintain_beside_a_job() -> None:
    explored = beside(MAINTAIN, maintain)
    assert problem(explored) == "none", explored.found
    assert f"{MAINTAIN}: done" in explored.ends
    assert explored.states > 1000


@pytest.mark.exhaustive
def test_a_merged_file_must_not_be_read_as_new(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_new(version: int, actions: Any) -> Commit:
        paths = tuple(action["add"]["path"] for action in actions if "add" in action)
        return Commit(version, paths, len(paths), len(paths))

    monkeypatch.setattr(followed_table, "_commit", all_new)
    assert "metric_points has rows twice" in problem(beside(MAINTAIN, maintain))


@pytest.mark.slow
def test_a_replay_beside_a_job() -> None:
    explored = beside("replay", swap)
    assert problem(explored) == "none", explored.found
    assert "replay: done" in explored.ends
    assert explored.states > 10_000


@pytest.mark.exhaustive
def test_a_replay_must_swap_under_its_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    finish = replay.finish_swap
    monkeypatch.setattr(replay, "finish_swap", lambda lake, checkpoints, _: finish(lake, checkpoints))
    assert "replay of epoch 2 has committed after epoch 3" in problem(beside("replay", swap))


def reshard_beside() -> Explored:
    return beside("reshard", lambda: reshard(2), Invariants(3, wake=False, recover=recover_with_shards))


@pytest.mark.slow
def test_a_reshard_beside_a_job() -> None:
    explored = reshard_beside()
    assert problem(explored, "StateError: batch 1 of", "StateError: batch 2 of") == "none", explored.found
    assert "reshard: done" in explored.ends
    assert explored.states > 10_000


def _reshard_without_its_claim(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(resharding, "TableLog", lambda table, lake, _: TableLog(table, lake))


def _the_new_number_before_its_manifest(patch: pytest.MonkeyPatch) -> None:
    write, commit, waiting = StateFolder.write, TableLog.commit, list[Any]()

    def early(self: TableLog, *args: Any) -> bool:
        done = commit(self, *args)
        if waiting:
            write(*waiting.pop())
        return done

    patch.setattr(
        resharding, "StateFolder", type("Late", (StateFolder,), {"write": lambda *args: waiting.append(args)})
    )
    patch.setattr(TableLog, "commit", early)


def _a_number_without_a_commit_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StateFolder, "drop_after", lambda *_: None)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("mutant", "expected"),
    [
        (_reshard_without_its_claim, "reshard of epoch 2 has committed after epoch 3"),
        (_the_new_number_before_its_manifest, "the manifest of batch 1, which is committed, is gone"),
        (_a_number_without_a_commit_counts, "recovery: ShardCountError: 1 shards requested"),
    ],
)
def test_no_guard_of_reshard_may_be_missing(monkeypatch: pytest.MonkeyPatch, mutant: Any, expected: str) -> None:
    mutant(monkeypatch)
    assert expected in problem(reshard_beside())


def forget_beside() -> Explored:
    with forgetting():
        return beside(FORGET, forget, Invariants(3, wake=False, erased={ERASED}), is_invisible_beside_forget)


@pytest.mark.slow
def test_a_forget_beside_a_job() -> None:
    explored = forget_beside()
    assert problem(explored) == "none", explored.found
    assert {"forget: done", "p1: done"} <= explored.ends.keys()
    assert explored.states > 10_000


def _forget_without_its_claim(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(history, "transaction", lambda app_id, version, *_: transaction(app_id, version))


def _an_erasure_ends_unseen(patch: pytest.MonkeyPatch) -> None:
    check = Fence.check
    patch.setattr(Fence, "check", lambda self: None if sys._getframe(1).f_code.co_name == "forget" else check(self))


def _old_files_go_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    commit = TableHistory.commit

    def late(self: TableHistory, files: Any) -> None:
        for file in files:
            ask("delete", f"{path_in(self._uri)}/{file.old}")
        commit(self, files)

    patch.setattr(TableHistory, "commit", late)
    patch.setattr(Files, "delete_file", lambda _, path: ask("delete", path))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("mutant", "expected"),
    [
        pytest.param(
            _forget_without_its_claim, "forget of epoch 2 has committed after epoch 3", marks=pytest.mark.slow
        ),
        (_an_erasure_ends_unseen, "the erasure has ended, and lake/_checkpoints/epoch-000000000003/points-state/"),
        (_old_files_go_before_the_commit, "which is gone"),
    ],
)
def test_no_guard_of_forget_may_be_missing(monkeypatch: pytest.MonkeyPatch, mutant: Any, expected: str) -> None:
    mutant(monkeypatch)
    assert expected in problem(forget_beside())


def in_folder(second: str) -> Explored:
    """Two jobs in a folder, of which each may be killed at each step: then its lock is free."""
    processes = [
        Process("p1", lambda: ingest(2, 1, lake=FOLDER)),
        Process("p2", lambda: ingest(3, 2, take_over=second == "takes over", lake=FOLDER)),
    ]
    wakes = second == "takes over"  # after a recovery by a job that has the lock
    invariants = Invariants(3, wake=wakes, recover=partial(recover, lake=FOLDER))
    with pytest.MonkeyPatch.context() as patch:
        if second == "on another machine":
            patch.setattr(fence, "_machine", lambda: "another" if process_name() == "p2" else "a machine")
        explored = Explorer(processes, invariants, is_invisible, 1, unlocked).explore(lake(crashed=True))
    print(f"in a folder, the second {second}: {explored.states:,} states, {explored.disks:,} contents of the store")
    return explored


@pytest.mark.slow
@pytest.mark.parametrize("second", ["waits for the lock", "takes over", "on another machine"])
def test_in_a_folder_with_its_lock(second: str) -> None:
    explored = in_folder(second)
    assert problem(explored) == "none", explored.found
    assert {"p1: killed", "p2: killed", "p2: done"} <= explored.ends.keys()
    assert explored.states > 5000


def _no_lock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(locks, "_lock", lambda *_: nullcontext())


def _each_claim_says_that_it_has_the_lock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fence, "replace", lambda claim, **_: replace(claim, locked=True))


def _locks_of_all_machines_are_one(patch: pytest.MonkeyPatch) -> None:
    read = Claims.read
    patch.setattr(Claims, "read", lambda *args: replace(read(*args), machine=fence._machine()))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("mutant", "second", "expected"),
    [
        (_no_lock, "waits for the lock", "of the last committed batch is gone"),
        (_each_claim_says_that_it_has_the_lock, "takes over", "the manifest of batch 1, which is committed, is gone"),
        (_locks_of_all_machines_are_one, "on another machine", "of the last committed batch is gone"),
    ],
)
def test_no_guard_of_the_lock_may_be_missing(
    monkeypatch: pytest.MonkeyPatch, mutant: Any, second: str, expected: str
) -> None:
    mutant(monkeypatch)
    assert expected in problem(in_folder(second))


def followers() -> Explored:
    """Both find the note of a job before them, and delete it once they have their own."""
    processes = [Process("p1", lambda: follow(2, 1)), Process("p2", lambda: follow(3, 2, take_over=True))]
    disk, end = run_alone("p0", lambda: follow(1, 1), empty_lake())
    assert end == "done"
    explored = Explorer(processes, Followed(3), is_invisible, 2).explore(disk)
    print(f"notes, 2 switches: {explored.states:,} states, {explored.disks:,} contents of the store")
    return explored


@pytest.mark.exhaustive
def test_notes_in_the_folders_of_tables() -> None:
    explored = followers()
    assert problem(explored) == "none", explored.found
    assert explored.states > 500


def _notes_without_their_epoch(patch: pytest.MonkeyPatch) -> None:
    made = EpochNote.__init__
    patch.setattr(EpochNote, "__init__", lambda self, uri, stem, _: made(self, uri, stem))


def _a_note_that_went_was_never_there(patch: pytest.MonkeyPatch) -> None:
    stored = EpochNote._stored
    patch.setattr(EpochNote, "_stored", lambda self: [] if _looks_again() else stored(self))


def _looks_again() -> bool:
    reading = sys._getframe(2)
    return reading.f_code.co_name == "read" and reading.f_locals.get("content", MISSING) is None


def _who_deletes_second_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EpochNote, "_drop", lambda self, epoch: self._filesystem.delete_file(self._path(epoch)))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("mutant", "expected"),
    [
        (_notes_without_their_epoch, "the rows of pushes [0, "),
        (_a_note_that_went_was_never_there, "the rows of pushes [0, "),
        (_who_deletes_second_ends, "FileNotFoundError"),
    ],
)
def test_no_guard_of_notes_may_be_missing(monkeypatch: pytest.MonkeyPatch, mutant: Any, expected: str) -> None:
    mutant(monkeypatch)
    assert expected in problem(followers())


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
