"""Locks and notes in folders, at every interleaving of two processes (docs/commit-protocol.md)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from kafka_telemetry_lake.jobs.support import locks
from kafka_telemetry_lake.pipelines.lake import fence
from kafka_telemetry_lake.pipelines.lake.fence import Leases
from kafka_telemetry_lake.pipelines.lake.notes import FencedNote
from tests.support.interleavings import Explored, Explorer, Process, run_alone
from tests.support.model_jobs import FOLDER, empty_lake, follow, ingest, model, unlocked
from tests.support.model_store import process_name
from tests.support.protocol_invariants import Followed, Invariants, is_invisible, recover
from tests.support.protocol_lakes import lake, problem


@pytest.fixture(autouse=True)
def _in_memory() -> Iterator[None]:
    with model():
        yield


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
@pytest.mark.parametrize(
    "second",
    [
        "takes over",
        *(pytest.param(each, marks=pytest.mark.soak) for each in ("waits for the lock", "on another machine")),
    ],
)
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
    read = Leases.read
    patch.setattr(Leases, "read", lambda *args: replace(read(*args), machine=fence._machine()))


@pytest.mark.slow
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


@pytest.mark.slow
def test_notes_in_the_folders_of_tables() -> None:
    explored = followers()
    assert problem(explored) == "none", explored.found
    assert explored.states > 500


def _notes_without_their_epoch(patch: pytest.MonkeyPatch) -> None:
    made = FencedNote.__init__
    patch.setattr(FencedNote, "__init__", lambda self, *args: made(self, *args[:4]))


def _a_note_that_went_was_never_there(patch: pytest.MonkeyPatch) -> None:
    stored = FencedNote._stored
    patch.setattr(FencedNote, "_stored", lambda self: [] if _looks_again() else stored(self))


def _looks_again() -> bool:
    reading = sys._getframe(2)
    return reading.f_code is FencedNote.read.__code__ and "path" in reading.f_locals


def _who_deletes_second_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FencedNote, "_drop", lambda self, epoch: self._filesystem.delete_file(self._path(epoch)))


@pytest.mark.slow
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
