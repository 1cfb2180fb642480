"""Whatever goes wrong over a push: it costs one row of quarantine, and the pushes beside it keep theirs."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_telemetry_lake.pipelines.ingest import operator_task, poison_pushes
from kafka_telemetry_lake.pipelines.ingest.poison_pushes import (
    PROCESSING_FAILED,
    Failure,
    Isolation,
    PushesFailedError,
    in_child,
)
from kafka_telemetry_lake.pipelines.lake.table_files import TableFiles
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES
from kafka_telemetry_lake.udfs.conversion import payloads
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS
from kafka_telemetry_lake.udfs.rows import PUSHES_IN
from tests.support import poison
from tests.support.lake_tables import table
from tests.support.landing_records import captured, record
from tests.support.local_stream import LocalStream
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.lake

GOOD = captured().slice(0, 20).to_pylist()
DEADLY = ("segv", "exit", "loop", "balloon")
CLIENT = "EZ0N9t0rS5mUyHrcB6Nf0g"


@pytest.fixture(autouse=True)
def _faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "decode", poison.decode)
    monkeypatch.setattr(poison_pushes, "TRIAL_GRACE_S", 0.5)
    monkeypatch.setattr(poison_pushes, "MEMORY_PER_BYTE", 16)


def poisoned(*names: str) -> list[dict[str, Any]]:
    """The good pushes with poison between them, all of partition 0, offsets from 0."""
    records = [dict(each) for each in GOOD]
    for place, name in enumerate(names):
        records.insert(3 + 2 * place, record(0, poison.payload(name), key=CLIENT))
    return [each | {"partition": 0, "offset": offset} for offset, each in enumerate(records)]


def judged(folder: Path, records: list[dict[str, Any]], guarded: bool = False) -> LocalStream:
    stream = LocalStream(folder)
    stream.land(records)
    stream.judge(stream.paths(), guarded)
    return stream


def rows(stream: LocalStream, name: str) -> list[dict[str, Any]]:
    """The good pushes' rows of a table, without the offsets that poison has moved."""
    found = table(stream.lake, name).to_pylist()
    of_others = [row for row in found if row.get("client_instance_id") != CLIENT]
    return sorted(({**row, "offset": 0} for row in of_others), key=repr)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> LocalStream:
    return judged(tmp_path_factory.mktemp("sound"), poisoned())


def assert_one_row_each(stream: LocalStream, names: tuple[str, ...], sound: LocalStream) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table(stream.lake, "quarantine").to_pylist()
    assert [row["reason"] for row in found] == [PROCESSING_FAILED] * len(names)
    assert sorted(row["payload"] for row in found) == sorted(poison.payload(name) for name in names)
    assert {row["client_instance_id"] for row in found} == {CLIENT}
    outcomes = table(stream.lake, "push_outcomes").to_pylist()
    assert [row["outcome"] for row in outcomes if row["client_instance_id"] == CLIENT] == ["quarantined"] * len(names)
    for name in ("metric_points", "push_outcomes", "client_events"):
        assert rows(stream, name) == rows(sound, name)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("fault", poison.FAULTS)
def test_a_push_that_fails_costs_one_row(tmp_path: Path, sound: LocalStream, fault: str) -> None:
    stream = judged(tmp_path, poisoned(fault), guarded=fault in DEADLY)
    (row,) = assert_one_row_each(stream, (fault,), sound)
    assert (
        row["detail"]
        == {
            "value_error": "ValueError: a bug",
            "memory_error": "MemoryError: no more",
            "arrow_invalid": "ArrowInvalid: Take operation overflowed",
            "arrow_io": "OSError: Invalid: a text is too long for Parquet",
            "segv": "ends its process: SIGSEGV",
            "exit": "ends its process: exit code 3",
            "loop": "takes more time than any push may",
            "balloon": row["detail"],
        }[fault]
    )
    if fault == "balloon":
        assert "MemoryError" in row["detail"]


@pytest.mark.slow
def test_three_of_different_kinds_cost_three_rows(tmp_path: Path, sound: LocalStream) -> None:
    names = ("segv", "value_error", "exit")
    assert_one_row_each(judged(tmp_path, poisoned(*names), guarded=True), names, sound)


@pytest.mark.slow
def test_when_all_fail_each_has_its_row(tmp_path: Path) -> None:
    records = [record(offset, poison.payload("value_error"), key=CLIENT) for offset in range(7)]
    stream = judged(tmp_path, records)
    assert table(stream.lake, "quarantine")["reason"].to_pylist() == [PROCESSING_FAILED] * 7
    assert stream.counts["set_aside"] == 7
    assert len(stream.set_aside) == 7


def test_pushes_that_fail_only_together_are_processed_apart(tmp_path: Path) -> None:
    records = [record(offset, poison.payload(name), key=CLIENT) for offset, name in enumerate(["pair a", "pair b"])]
    stream = judged(tmp_path, records)
    assert table(stream.lake, "quarantine").num_rows == 0
    assert table(stream.lake, "push_outcomes")["outcome"].to_pylist() == ["heartbeat"] * 2
    assert stream.counts["set_aside"] == 0


def test_rows_that_cannot_be_written_are_found_too(
    tmp_path: Path, sound: LocalStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = TableFiles.write

    def overflow(self: TableFiles, found: pa.Table) -> None:
        if self._table is PUSH_OUTCOMES and (CLIENT, "heartbeat") in zip(
            found["client_instance_id"].to_pylist(), found["outcome"].to_pylist(), strict=True
        ):
            raise OSError("Invalid: List index overflow")
        write(self, found)

    monkeypatch.setattr(TableFiles, "write", overflow)
    (row,) = assert_one_row_each(judged(tmp_path, poisoned("pair a")), ("pair a",), sound)
    assert row["detail"] == "OSError: Invalid: List index overflow"


def test_a_full_disk_is_no_pushs_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: TableFiles, found: pa.Table) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(TableFiles, "write", full)
    for guarded in (False, True):
        with pytest.raises(OSError, match="No space left"):
            judged(tmp_path / str(guarded), poisoned(), guarded)


def test_the_state_is_that_of_all_pushes_but_the_one(tmp_path: Path, sound: LocalStream) -> None:
    stream = judged(tmp_path, poisoned("value_error"))
    again = [dict(each) | {"partition": 0, "offset": 100 + offset} for offset, each in enumerate(GOOD)]
    stream.batch(again)
    outcomes = table(stream.lake, "push_outcomes").to_pylist()
    fates = {row["outcome"] for row in outcomes if row["offset"] >= 100}
    assert fates <= {"duplicate", "heartbeat"}  # the same bytes again: the clients were remembered


def test_a_failure_that_no_trial_shows_names_the_pushes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_task.PushConversion, "_rehearse", lambda *_: None)
    with pytest.raises(PushesFailedError) as failed:
        judged(tmp_path, poisoned("value_error"))
    first = GOOD[0]
    assert " and " in str(failed.value)
    assert f"{first['topic']}/0/" in str(failed.value)
    assert str(failed.value).endswith("ValueError: a bug")


def pushes(number: int) -> pa.Table:
    return pa.Table.from_pylist(
        [{"topic": "t", "partition": 0, "offset": n, "client_instance_id": CLIENT} for n in range(number)], PUSHES_IN
    )


def parts(isolation: Isolation, number: int) -> Iterator[list[tuple[int, str | None]]]:
    for part in isolation.sound_parts(pushes(number)):
        yield list(zip(part["offset"].to_pylist(), part["reject_reason"].to_pylist(), strict=True))


def fails_on(*bad: int, timed_out: bool = False) -> tuple[list[int], Any]:
    trials: list[int] = []

    def trial(part: pa.Table) -> Failure | None:
        trials.append(part.num_rows)
        waiting = zip(part["offset"].to_pylist(), part["reject_reason"].to_pylist(), strict=True)
        return Failure("bad", timed_out) if any(n in bad and reason is None for n, reason in waiting) else None

    return trials, trial


def test_trials_grow_with_the_culprits_and_the_logarithm_of_the_slice() -> None:
    trials, trial = fails_on(5000)
    isolation = Isolation(trial)
    found = [row for part in parts(isolation, 8192) for row in part]
    assert [offset for offset, _ in found] == list(range(8192))
    assert [offset for offset, reason in found if reason] == [5000]
    assert len(trials) == 1 + 2 * 13 + 1  # two of each size from the half down to one, and the push as rejected
    assert isolation.lines == [f"client {CLIENT}, t/0/5000: bad"]


def test_the_system_ends_a_process_in_an_endless_loop_of_compiled_code() -> None:
    """No Python handler would ever run there: what an ordinary attempt has is SIGPROF's default."""
    program = (
        "import collections, itertools\n"
        "from kafka_telemetry_lake.pipelines.ingest.poison_pushes import processor_limit\n"
        "processor_limit(0.2)\n"
        "collections.deque(itertools.repeat(0), maxlen=0)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], check=False, timeout=PATIENCE_S)
    assert ended.returncode == -signal.SIGPROF


def test_trials_that_run_out_of_time_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poison_pushes, "MOST_TIMEOUTS", 4)
    trials, trial = fails_on(*range(64), timed_out=True)
    isolation = Isolation(trial)
    found = [row for part in parts(isolation, 64) for row in part]
    assert [offset for offset, _ in found] == list(range(64))
    assert isolation.pushes == 64
    assert len(trials) < 16


def test_a_push_that_fails_even_as_rejected_goes_without_its_client() -> None:
    def trial(part: pa.Table) -> Failure | None:
        known = zip(part["offset"].to_pylist(), part["client_instance_id"].to_pylist(), strict=True)
        return Failure("bad") if any(offset == 2 and client for offset, client in known) else None

    found = pa.concat_tables(Isolation(trial).sound_parts(pushes(4)))
    assert found["client_instance_id"].to_pylist() == [CLIENT, CLIENT, None, CLIENT]
    assert found["reject_detail"].to_pylist()[2] == f"client {CLIENT}, t/0/2: bad"


def test_a_push_that_cannot_be_set_aside_ends_the_task_by_name() -> None:
    with pytest.raises(PushesFailedError, match=rf"client {CLIENT}, t/0/0 can't be set aside: worse; at first: worse"):
        list(Isolation(lambda _: Failure("worse")).sound_parts(pushes(1)))


def wait_for_ever() -> None:
    threading.Event().wait()


def test_a_child_that_waits_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poison_pushes, "WALL_PER_PROCESSOR", 0.01)
    monkeypatch.setattr(poison_pushes, "TASK_GRACE_S", 1.0)
    failure = in_child(wait_for_ever, DEFAULT_LIMITS)
    assert failure == Failure("takes more time than any push may", timed_out=True)
