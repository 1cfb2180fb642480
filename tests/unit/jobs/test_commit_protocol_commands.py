"""Another command beside a job, at every interleaving of their steps (docs/commit-protocol.md)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka_telemetry_lake.pipelines.forget import erasure, history
from kafka_telemetry_lake.pipelines.ingest import reshard as resharding
from kafka_telemetry_lake.pipelines.lake import followed_table
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.followed_table import Commit
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.transactions import transaction
from kafka_telemetry_lake.pipelines.replay import replay
from kafka_telemetry_lake.pipelines.state.manifest import StateFolder
from tests.support.interleavings import Explored, Explorer, Process
from tests.support.model_forget import ERASED, FORGET, forget, forgetting
from tests.support.model_jobs import ingest, maintain, model, reshard, swap
from tests.support.model_store import Files, ask, path_in
from tests.support.protocol_invariants import (
    MAINTAIN,
    Invariants,
    is_invisible,
    is_invisible_beside_forget,
    recover_with_shards,
)
from tests.support.protocol_lakes import lake, problem


@pytest.fixture(autouse=True)
def _in_memory() -> Iterator[None]:
    with model():
        yield


def beside(
    name: str, code: Callable[[], str], invariants: Invariants | None = None, invisible: Any = is_invisible
) -> Explored:
    """A job, and another command beside it."""
    processes = [Process("p1", lambda: ingest(3, 1, take_over=True)), Process(name, code)]
    explored = Explorer(processes, invariants or Invariants(3, wake=False), invisible, 1).explore(lake(crashed=True))
    print(f"{name}, 1 switch: {explored.states:,} states, {explored.disks:,} contents of the store")
    return explored


@pytest.mark.slow
def test_maintain_beside_a_job() -> None:
    explored = beside(MAINTAIN, maintain)
    assert problem(explored) == "none", explored.found
    assert f"{MAINTAIN}: done" in explored.ends
    assert explored.states > 1000


@pytest.mark.slow
def test_a_merged_file_must_not_be_read_as_new(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_new(version: int, actions: Any, _: Any) -> Commit:
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


@pytest.mark.slow
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
    patch.setattr(resharding, "Lake", lambda uri, _: Lake(uri))


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


@pytest.mark.slow
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
    patch.setattr(history, "transaction", lambda versions, *_: transaction(versions))


def _an_erasure_ends_unseen(patch: pytest.MonkeyPatch) -> None:
    check = Fence.check
    patch.setattr(Fence, "check", lambda self: None if sys._getframe(1).f_code.co_name == "forget" else check(self))


def _old_files_go_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    def late(uri: str, files: Any, fence: Fence) -> int:
        for file in files:
            ask("delete", f"{path_in(uri)}/{file.old}")
        return history.commit(uri, files, fence)

    patch.setattr(erasure, "commit", late)
    patch.setattr(Files, "delete_file", lambda _, path: ask("delete", path))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "expected"),
    [
        (_forget_without_its_claim, "forget of epoch 2 has committed after epoch 3"),
        (_an_erasure_ends_unseen, "the erasure has ended, and lake/_checkpoints/epoch-000000000003/points-state/"),
        (_old_files_go_before_the_commit, "which is gone"),
    ],
)
def test_no_guard_of_forget_may_be_missing(monkeypatch: pytest.MonkeyPatch, mutant: Any, expected: str) -> None:
    mutant(monkeypatch)
    assert expected in problem(forget_beside())
