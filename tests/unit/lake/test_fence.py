"""Leases: who writes a lake, who waits, and what a process that was taken over can still do."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JError

from kafka_telemetry_lake.jobs.support.locks import LakeBusyError, TakenOverError, only_job
from kafka_telemetry_lake.pipelines.lake import delta_log, fence
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.errors import DamagedLeaseError, FencedError, UnfitStoreError, WriterRunsError
from kafka_telemetry_lake.pipelines.lake.fence import APP_ID, JOB, Leases, this_process
from kafka_telemetry_lake.pipelines.lake.log_files import NewFiles
from kafka_telemetry_lake.pipelines.lake.transactions import append_once
from kafka_telemetry_lake.pipelines.tables.lost_records import LOST_RECORDS
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.pipelines.tables.table import Table
from tests.support.expired_logs import expire_log
from tests.support.patience import PATIENCE_S
from tests.unit.lake.conftest import Overtaken

FAST = {"BEAT_S": 0.02, "PATIENCE_S": 0.3}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in FAST.items():
        monkeypatch.setattr(fence, name, seconds)


@pytest.fixture
def lake(tmp_path: Path) -> str:
    for table in (PUSHES, PUSH_OUTCOMES, LOST_RECORDS):
        table.create(str(tmp_path))
    return str(tmp_path)


def leases(lake: str) -> Leases:
    return Leases(lake, JOB)


def test_each_claim_has_the_next_epoch_and_one_of_many_gets_it(lake: str) -> None:
    own = this_process("ingest")
    assert [leases(lake).acquire(own, take_over=True).epoch for _ in range(3)] == [1, 2, 3]

    def acquire(number: int) -> int:
        try:
            return leases(lake).acquire(this_process(f"ingest {number}"), alone=True).epoch
        except WriterRunsError:
            return 0

    with ThreadPoolExecutor(8) as pool:
        epochs = [epoch for epoch in pool.map(acquire, range(8)) if epoch]
    assert epochs, "somebody gets each epoch"
    assert len(set(epochs)) == len(epochs), "and nobody else"
    assert sorted(epochs)[0] == 4


def test_a_process_that_shows_signs_of_life_is_left_alone(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence, "PATIENCE_S", 2 * PATIENCE_S)  # a sign ends the wait, and nobody waits without need
    first = leases(lake).acquire(this_process("ingest"))
    first.keep_alive(lambda: None)
    with pytest.raises(WriterRunsError, match=rf"`ingest`, process {os.getpid()} on \S+ \(epoch 1\)"):
        leases(lake).acquire(this_process("replay"))
    first.release(clean=True)
    assert (second := leases(lake).acquire(this_process("replay"))).epoch == 2
    assert not second.took_over, "the first said that it has ended"


def test_one_that_shows_none_is_taken_over_after_a_while(lake: str) -> None:
    leases(lake).acquire(this_process("ingest"))
    began = time.monotonic()
    second = leases(lake).acquire(this_process("ingest"))
    assert (second.epoch, second.took_over) == (2, True)
    assert time.monotonic() - began >= FAST["PATIENCE_S"]


def test_with_the_machines_lock_the_one_before_is_known_to_be_gone(lake: str) -> None:
    here = this_process("ingest")
    leases(lake).acquire(replace(here, machine="another"))
    assert leases(lake).acquire(here, alone=True).took_over, "the lock is of this machine only"
    assert not leases(lake).acquire(here, alone=True).took_over


def test_a_process_notices_that_it_was_taken_over(lake: str) -> None:
    lost = threading.Event()
    first = leases(lake).acquire(this_process("ingest"))
    first.keep_alive(lost.set)
    first.check()
    leases(lake).acquire(this_process("ingest"), take_over=True)
    assert lost.wait(PATIENCE_S)
    with pytest.raises(FencedError, match=r"epoch 1 has ended: the lake is written by `ingest`.*\(epoch 2\)"):
        first.check()
    first.release(clean=True)
    assert not list(Path(lake, "_writers").glob("*1.released")), "it can't say that it has ended well"


def test_only_the_highest_epoch_can_commit(lake: str) -> None:
    first = leases(lake).acquire(this_process("ingest"))
    old = TableLog(PUSH_OUTCOMES, lake, first)
    assert old.commit([], "job", 1, {"read": 1})
    second = leases(lake).acquire(this_process("ingest"), take_over=True)
    assert old.commit([], "job", 2, {"read": 2}), "until the other one has noted its epoch in the table"
    new = TableLog(PUSH_OUTCOMES, lake, second)
    version = DeltaTable(PUSH_OUTCOMES.uri(lake)).version()
    with pytest.raises(FencedError, match="epoch 1 has ended"):
        old.commit([], "job", 3, {"read": 3})
    assert first.loss is not None
    assert DeltaTable(PUSH_OUTCOMES.uri(lake)).version() == version
    assert new.commit([], "job", 3, {"read": 3})
    with pytest.raises(FencedError):
        TableLog(PUSH_OUTCOMES, lake, first)


def test_a_table_that_was_opened_earlier_says_no_less(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = PUSH_OUTCOMES.uri(lake)
    TableLog(PUSH_OUTCOMES, lake).commit([], "before", 1, {})
    opened = DeltaTable(uri)
    for number in range(3):
        TableLog(PUSH_OUTCOMES, lake).commit([], "after", number, {})
    lease = leases(lake).acquire(this_process("ingest"))
    with monkeypatch.context() as context:
        context.setattr(delta_log, "DeltaTable", None)  # nothing opens it again
        log = TableLog(PUSH_OUTCOMES, lake, lease, opened)
        versions = [log.transaction_version(name) for name in ("before", "after", "none", APP_ID)]
        again = TableLog(PUSH_OUTCOMES, lake, lease, opened)
    assert versions == [1, 2, None, lease.epoch]
    assert again.known_version == log.known_version == 5, "the epoch is committed once"
    TableLog(PUSH_OUTCOMES, lake, leases(lake).acquire(this_process("ingest"), take_over=True))
    with pytest.raises(FencedError):
        TableLog(PUSH_OUTCOMES, lake, lease, opened)


@pytest.mark.parametrize("commits", [1, 2], ids=["its own version", "the next commit, too"])
def test_a_table_that_was_opened_before_its_log_forgot_is_opened_again(lake: str, commits: int) -> None:
    opened, lease = DeltaTable(PUSH_OUTCOMES.uri(lake)), leases(lake).acquire(this_process("ingest"))
    for number in range(6 - commits, 6):
        TableLog(PUSH_OUTCOMES, lake).commit([], "after", number, {})
    expire_log(Path(PUSH_OUTCOMES.uri(lake)))
    log = TableLog(PUSH_OUTCOMES, lake, lease, opened)
    assert [log.transaction_version(name) for name in ("after", "none", APP_ID)] == [5, None, lease.epoch]


def test_an_epoch_that_comes_between_the_look_and_the_commit_wins(lake: str, overtaken: Overtaken) -> None:
    old = TableLog(PUSH_OUTCOMES, lake, leases(lake).acquire(this_process("ingest")))
    overtaken(lambda: TableLog(PUSH_OUTCOMES, lake, leases(lake).acquire(this_process("ingest"), take_over=True)))
    with pytest.raises(FencedError):
        old.commit([], "job", 1, {"read": 1})
    assert DeltaTable(PUSH_OUTCOMES.uri(lake)).transaction_version("job") is None


def test_commits_by_delta_rs_are_fenced_too(lake: str) -> None:
    def append(table: Table, version: int, by: fence.Fence) -> bool:
        delta = table.create(lake)
        return append_once(table, delta, table.schema.empty_table(), "job", version, by)

    first = leases(lake).acquire(this_process("ingest"))
    assert append(LOST_RECORDS, 1, first)
    stale = DeltaTable(LOST_RECORDS.uri(lake))
    second = leases(lake).acquire(this_process("ingest"), take_over=True)
    assert append(LOST_RECORDS, 2, second)
    with pytest.raises(FencedError):
        append(LOST_RECORDS, 3, first)
    with pytest.raises(Exception, match=r"[Cc]oncurrent transaction"):  # it had read the table before
        append_once(LOST_RECORDS, stale, LOST_RECORDS.schema.empty_table(), "job", 3, first)
    assert DeltaTable(LOST_RECORDS.uri(lake)).transaction_version(APP_ID) == 2


def test_a_commit_below_a_checkpoint_of_the_log_counts_as_none(
    lake: str, monkeypatch: pytest.MonkeyPatch, overtaken: Overtaken
) -> None:
    """The process slept for days between its look and its commit, and the log forgot the version."""
    old = TableLog(PUSH_OUTCOMES, lake)
    free = old.version + 1

    def days_pass() -> None:
        other = TableLog(PUSH_OUTCOMES, lake)
        for number in range(3):
            other.commit([], "maintain", number, {})
        DeltaTable(PUSH_OUTCOMES.uri(lake)).create_checkpoint()
        Path(lake, "push_outcomes", "_delta_log", f"{free:020d}.json").unlink()
        monkeypatch.setattr(delta_log, "LONG_S", 0.0)

    overtaken(days_pass)
    with pytest.raises(Exception, match="the log has forgotten the version that this commit was for"):
        old.commit([], "job", 1, {"read": 1})
    monkeypatch.setattr(delta_log, "LONG_S", 600.0)
    assert old.commit([], "job", 1, {"read": 1}), "tried again it counts"
    assert DeltaTable(PUSH_OUTCOMES.uri(lake)).transaction_version("job") == 1


def test_a_commit_whose_answer_was_lost_is_made_once(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log, real = TableLog(PUSH_OUTCOMES, lake), NewFiles.add

    def unanswered(self: NewFiles, name: str, data: bytes) -> bool:
        return real(self, name, data) and real(self, name, data)  # the library tries again: the file is there

    monkeypatch.setattr(NewFiles, "add", unanswered)
    version = log.version
    assert log.commit([], "job", 1, {"read": 1})
    assert log.version == version + 1


@pytest.mark.parametrize("content", ["", "{", "[]", '{"command": 7, "process": "x"}'])
def test_a_damaged_claim_counts_but_says_nothing(lake: str, content: str) -> None:
    leases(lake).acquire(this_process("ingest"))
    Path(lake, "_writers", "job-000000000001.json").write_text(content)
    second = leases(lake).acquire(this_process("ingest"), alone=True)
    assert (second.epoch, second.took_over) == (2, True)
    assert leases(lake).describe(1) == "`an unknown command`, process 0 on an unknown host (epoch 1)"


def test_an_epoch_from_the_future_is_followed_by_the_next_and_the_last_by_none(lake: str) -> None:
    folder = Path(lake, "_writers")
    folder.mkdir()
    (folder / "job-000000900000.json").write_text("{}")
    assert leases(lake).acquire(this_process("ingest")).epoch == 900_001
    (folder / f"job-{fence.LAST_EPOCH}.json").write_text("{}")
    with pytest.raises(DamagedLeaseError, match="epoch 999999999999 has no successor: delete its file"):
        leases(lake).acquire(this_process("ingest"), take_over=True)


def test_claims_of_another_lake_are_refused(lake: str) -> None:
    leases(lake).acquire(this_process("ingest", "lake one"))
    with pytest.raises(DamagedLeaseError, match=r"is another lake's: it was copied here\. Delete this folder"):
        leases(lake).acquire(this_process("ingest", "lake two"), alone=True)


def test_a_lost_folder_of_claims_does_not_begin_again(lake: str) -> None:
    """Tables note the epoch: the next one must be higher, or its own job could not commit."""
    for _ in range(3):
        with only_job(lake, "ingest", "busy") as own:
            TableLog(PUSHES, lake, own)
    for file in Path(lake, "_writers").iterdir():
        file.unlink()
    with only_job(lake, "ingest", "busy") as own:
        assert own.epoch == 4
        TableLog(PUSHES, lake, own)


def test_a_store_that_overwrites_is_refused(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def overwrite(self: NewFiles, name: str, data: bytes) -> bool:
        Path(self.uri, name).write_bytes(data)
        return True

    monkeypatch.setattr(NewFiles, "add", overwrite)
    with pytest.raises(UnfitStoreError, match=r"overwrites a file that must be new \(If-None-Match\)"):
        leases(lake).acquire(this_process("ingest"))


@pytest.mark.parametrize("overwritten", ["json", "alive"])
def test_a_claim_that_another_process_has_too_is_not_a_matter_of_checksums(
    lake: str, monkeypatch: pytest.MonkeyPatch, overwritten: str
) -> None:
    """As in a store that has told both that they have written; what is there now may be the other one's."""
    other, real = {"json": '{"command": "replay"}', "alive": "0" * 32}[overwritten], Leases.beat

    def beat(self: Leases, epoch: int) -> bytes:
        sign = real(self, epoch)
        Path(lake, "_writers", f"job-{epoch:012d}.{overwritten}").write_text(other)
        return sign

    monkeypatch.setattr(Leases, "beat", beat)
    with pytest.raises(UnfitStoreError, match=r"this store let two processes have epoch 1; the file names `") as error:
        leases(lake).acquire(this_process("ingest"))
    assert ("`replay`" in str(error.value)) == (overwritten == "json")


def test_old_claims_are_forgotten(lake: str) -> None:
    for _ in range(fence.RETAINED + 5):
        leases(lake).acquire(this_process("ingest"), alone=True).release(clean=True)
    assert len(list(Path(lake, "_writers").glob("*.json"))) == fence.RETAINED
    assert len(list(Path(lake, "_writers").glob("*.released"))) == fence.RETAINED


def test_the_job_is_refused_or_takes_over(lake: str) -> None:
    def start(command: str, take_over: bool | None = None) -> None:
        with only_job(lake, command, "busy", take_over=take_over):
            pass

    with only_job(lake, "ingest", "busy", take_over=False) as first:
        with pytest.raises(
            LakeBusyError, match=r"^busy: `ingest`, .* \(epoch 1\)\. If it was cut off, .* --take-over starts"
        ):
            start("ingest", take_over=False)
        with pytest.raises(LakeBusyError, match=r"^busy: `ingest`, process \d+ on \S+ \(epoch 1\)$"):
            start("replay")
        assert first.loss is None


def test_a_job_that_was_taken_over_ends_with_one_line(lake: str) -> None:
    def job() -> None:
        with only_job(lake, "ingest", "busy", take_over=False) as old:
            with only_job(lake, "ingest", "busy", take_over=True) as new:
                assert (old.epoch, old.took_over, new.epoch, new.took_over) == (1, False, 2, True)
                TableLog(PUSHES, lake, new)
            TableLog(PUSHES, lake, old)

    with pytest.raises(
        TakenOverError, match=r"^ingest: the lake was taken over by `ingest`, process .*epoch 2\)\. This"
    ):
        job()


@pytest.mark.parametrize("own", [1, 2])
def test_of_two_epochs_that_are_committed_at_once_the_higher_one_stays(
    lake: str, overtaken: Overtaken, own: int
) -> None:
    first, second = (Leases(lake, JOB).acquire(this_process("ingest"), take_over=True) for _ in range(2))
    mine, other = (first, second) if own == 1 else (second, first)
    overtaken(lambda: TableLog(PUSHES, lake, other))
    with pytest.raises(FencedError) if own == 1 else nullcontext():
        TableLog(PUSHES, lake, mine)
    assert DeltaTable(PUSHES.uri(lake)).transaction_version(APP_ID) == 2


def test_a_job_that_took_over_from_one_with_the_lock_is_not_taken_for_dead_once_the_lock_is_free(lake: str) -> None:
    """It never had the lock: who gets it has learned nothing about this job."""
    second = ExitStack()
    with suppress(TakenOverError), only_job(lake, "ingest", "busy", take_over=False):
        second.enter_context(only_job(lake, "ingest", "busy", take_over=True))
    with suppress(TakenOverError), second:
        with pytest.raises(LakeBusyError, match=r"\(epoch 2\)"), only_job(lake, "ingest", "busy", take_over=False):
            pass
        with only_job(lake, "ingest", "busy", take_over=True) as third:
            assert third.took_over, "it works in a copy of the checkpoints"


@pytest.mark.parametrize(
    "error", [OSError("a file that the other one has deleted"), Py4JError("a task of Spark has failed for lack of it")]
)
def test_an_error_after_the_lake_was_taken_over_names_who_did(lake: str, error: Exception) -> None:
    def job() -> None:
        with only_job(lake, "ingest", "busy"):
            Leases(lake, JOB).acquire(this_process("other"), take_over=True)
            raise error

    with pytest.raises(TakenOverError, match="was taken over by `other`"):
        job()


def test_a_successors_commit_isnt_taken_for_ones_own(lake: str) -> None:
    first = leases(lake).acquire(this_process("ingest"))
    log = TableLog(PUSH_OUTCOMES, lake, first)
    second = leases(lake).acquire(this_process("ingest"), take_over=True)
    TableLog(PUSH_OUTCOMES, lake, second).commit([], "points", 1, {"read": 9})
    lost = LOST_RECORDS.schema.empty_table()
    append_once(LOST_RECORDS, DeltaTable(LOST_RECORDS.uri(lake)), lost, "landing", 1, second)
    with pytest.raises(FencedError, match="epoch 1 has ended"):
        log.commit([], "points", 1, {"read": 9})
    with pytest.raises(FencedError, match="epoch 1 has ended"):
        append_once(LOST_RECORDS, DeltaTable(LOST_RECORDS.uri(lake)), lost, "landing", 1, first)
