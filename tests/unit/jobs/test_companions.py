"""What works beside the job's streams: whatever it dies of, it is started again, and the streams hear nothing."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import yaml
from prometheus_client import CollectorRegistry

from kafka_telemetry_lake.jobs.companions import Followed, companions
from kafka_telemetry_lake.jobs.settings.base import parse
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from kafka_telemetry_lake.jobs.support import supervisor
from kafka_telemetry_lake.jobs.support.locks import only
from kafka_telemetry_lake.jobs.support.observed import Observers
from kafka_telemetry_lake.jobs.support.supervisor import NEVER, Companion, Step, stateless, supervised
from kafka_telemetry_lake.pipelines.ingest.streams import JobLake
from kafka_telemetry_lake.pipelines.observe.metrics_server import JobHealth, JobMetrics
from tests.support.patience import PATIENCE_S, wait_until

NAMES = (
    "lifecycle", "quota_usage", "quota_reports", "upkeep", "export", "findings", "notify", "sync", "events",
)  # fmt: skip
WITH_A_LOCK = ("export", "findings", "notify")
# One of each kind: with a last step, with none, with a lock, opened anew for each step, and without a next step.
each_kind = pytest.mark.parametrize("name", ["lifecycle", "upkeep", "export", "findings", "notify"])


def rows(tmp_path: Path, *flags: str) -> list[Companion]:
    """The companions of a job with all that may run beside its streams."""
    file = tmp_path / "notify.yml"
    sinks = {"one": {"type": "webhook", "url": "http://127.0.0.1:1/"}}
    file.write_text(yaml.safe_dump({"sinks": sinks}))
    argv = ["--source", "kafka", "--bootstrap-servers", "127.0.0.1:1", "--lake", str(tmp_path / "lake")]
    argv += ["--findings-minutes", "5", "--notify", str(file), "--sync-seconds", "60", "--events-topic", "events"]
    settings = parse(IngestSettings, [*argv, *(flags or ("--metrics-port", "0", "--metrics-fleet"))], "ingest")
    lake = JobLake(settings.folder, f"{settings.folder}/_checkpoints")
    followed = Followed(MagicMock(), MagicMock(), MagicMock(), MagicMock(), (1, MagicMock()))
    return companions(settings, MagicMock(), lake, followed, CollectorRegistry(), lambda *_: None)


class Work:
    """Stands in for a companion's work: what it opened, did and closed."""

    def __init__(self, step: Step = lambda _: None) -> None:
        self.opened = self.closed = self.steps = 0
        self._step = step

    @contextmanager
    def open(self) -> Iterator[Step]:
        self.opened += 1
        try:
            yield self._one
        finally:
            self.closed += 1

    def _one(self, ended: threading.Event) -> None:
        self.steps += 1
        self._step(ended)


@pytest.fixture
def observers(tmp_path: Path) -> Observers:
    return Observers(MagicMock(), JobMetrics(), JobHealth(300, tmp_path / "health.json"))


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> list[int]:
    """The numbers of failures for which a pause was asked; each pause is short."""
    caplog.set_level(logging.INFO)
    asked: list[int] = []

    def pause(number: int, _error: BaseException) -> float:
        asked.append(number)
        return 0.01

    monkeypatch.setattr(supervisor, "pause_after", pause)
    return asked


def one(tmp_path: Path, name: str, opened: Callable[[], AbstractContextManager[Step]]) -> Companion:
    """The companion of that name, with other work and no time to wait."""
    (row,) = [row for row in rows(tmp_path) if row.name == name]
    return replace(row, opened=opened, interval_s=0.01, waits_first=False)


def failed(observers: Observers, name: str) -> float | None:
    by = {"companion": name}
    return observers.metrics.registry.get_sample_value("telemetry_lake_companion_failures_total", by)


def test_the_table_has_all_that_runs_beside_the_streams(tmp_path: Path) -> None:
    assert tuple(row.name for row in rows(tmp_path)) == NAMES
    assert tuple(row.name for row in rows(tmp_path) if row.role is not None) == WITH_A_LOCK
    once = rows(tmp_path, "--once")
    assert [(row.name, row.after) for row in once] == [
        ("findings", True), ("notify", True), ("sync", False), ("events", False),
    ]  # fmt: skip


def test_the_docs_have_the_table(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "operate.md").read_text(encoding="utf-8")
    said = re.findall(r"^\| `(\w+)` \|[^|]*\| (?:`([\w-]+)`|) *\|[^|]*\| (\d+) s \|", page, re.MULTILINE)
    assert said == [(row.name, row.role or "", f"{row.patience_s:.0f}") for row in rows(tmp_path)]


@each_kind
def test_one_that_fails_at_each_start_is_started_again_and_delays_nothing(
    tmp_path: Path, name: str, failures: list[int], observers: Observers, caplog: pytest.LogCaptureFixture
) -> None:
    is_broken, work = True, Work()

    def opened() -> AbstractContextManager[Step]:
        if is_broken:
            raise OSError("disk full")
        return work.open()

    row = one(tmp_path, name, opened)
    with supervised(str(tmp_path), [row], report=observers.companion):
        wait_until(lambda: len(failures) > 3)
        assert failures[:4] == [1, 2, 3, 4]
        state = observers.health.state()
        assert (state["companions"], state["status"]) == ({name: "disk full"}, "ok")
        is_broken = False
        wait_until(lambda: work.steps > 1)
        assert observers.health.state()["companions"] == {}
    assert f"{name}: disk full; tried again in 0 s" in caplog.messages
    assert caplog.messages.count(f"{name}: works again") == 1
    assert failed(observers, name) == len(failures)
    is_broken = True
    with supervised(str(tmp_path), [row]):
        wait_until(lambda: failures[-1] > 1)
    assert work.opened == work.closed


@each_kind
def test_one_that_hangs_at_the_end_is_left_behind(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "SAY_AFTER_S", 0.05)
    caplog.set_level(logging.INFO)
    released, work = threading.Event(), Work(lambda _: released.wait(PATIENCE_S))
    with supervised(str(tmp_path), [replace(one(tmp_path, name, work.open), patience_s=0.3)]):
        wait_until(lambda: work.steps)
    assert (work.steps, work.closed) == (1, 0)
    released.set()
    wait_until(lambda: work.closed)
    assert work.steps == 1  # it was left behind, so it makes no last step
    waits, left = caplog.messages
    assert waits == f"{name}: is busy; its end is waited for up to 0 s"
    assert left == f"{name}: has not ended within 0 s and is left behind; the next start repeats its step"


@pytest.mark.parametrize("name", WITH_A_LOCK)
def test_one_whose_lock_another_process_holds_waits_for_it(
    tmp_path: Path, name: str, failures: list[int], observers: Observers
) -> None:
    lake, work = str(tmp_path / "lake"), Work()
    row = one(tmp_path, name, work.open)
    assert row.role is not None
    busy = f"another process has the role {row.role} of this lake"
    with supervised(lake, [], report=observers.companion), only(row.role, lake, ""):
        with supervised(lake, [row], report=observers.companion):
            wait_until(lambda: len(failures) > 1)
            assert observers.health.state()["companions"] == {name: busy}
        assert work.opened == 0
    with supervised(lake, [row]):
        wait_until(lambda: work.steps > 1)
    with only(row.role, lake, "it is over"):
        pass


@each_kind
def test_one_that_is_killed_in_mid_work_goes_on(
    tmp_path: Path, name: str, failures: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    deaths = [None, SystemExit("sink-token"), None]

    def step(_: threading.Event) -> None:
        if deaths and (error := deaths.pop(0)):
            raise error

    work = Work(step)
    row = one(tmp_path, name, work.open)
    with supervised(str(tmp_path), [row]):
        wait_until(lambda: work.steps > 3)
    assert failures == [1]
    assert work.opened == work.closed
    if not row.reopens:
        assert work.opened == 2
    (line,) = [line for line in caplog.messages if "tried again" in line]
    assert re.match(rf"{name}: SystemExit at line \d+ of test_companions\.py; tried again in 0 s$", line)
    assert "sink-token" not in caplog.text


def test_the_end_asks_in_order_and_a_last_step_covers_what_came_before(tmp_path: Path) -> None:
    done: list[str] = []

    def step(name: str, ended: threading.Event) -> None:
        if ended.is_set():
            done.append(name)

    started = [Companion(name, stateless(partial(step, name)), NEVER, 5, last_step=True) for name in ("a", "b")]
    with supervised(str(tmp_path), [*started, Companion("c", stateless(partial(step, "c")), NEVER, 5)]):
        pass
    assert done == ["a", "b"]


def test_a_step_that_the_end_cuts_off_is_no_failure_but_a_last_step_that_fails_is_a_line(
    tmp_path: Path, observers: Observers, caplog: pytest.LogCaptureFixture
) -> None:
    steps: list[bool] = []

    def step(ended: threading.Event) -> None:
        steps.append(ended.is_set())
        ended.wait()
        raise OSError("the broker is gone")

    cut, last = Work(step), Work(step)
    row = Companion("cut", cut.open, 1, 5)
    with supervised(str(tmp_path), [row, replace(row, name="last", opened=last.open, last_step=True)], None,
                    observers.companion):  # fmt: skip
        wait_until(lambda: len(steps) == 2)
    assert caplog.messages == ["last: the broker is gone; its next start goes on"]
    assert (cut.steps, last.steps) == (1, 2)
    assert observers.health.state()["companions"] == {}


def test_what_comes_after_the_block_is_done_once_unless_the_job_failed_or_was_stopped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    def fails(_: threading.Event) -> None:
        done.append("fails")
        raise OSError("disk full")

    def say(word: str, _: threading.Event) -> None:
        done.append(word)

    follows = [Companion("first", stateless(fails), 1, 5, role="a", after=True),
               Companion("second", stateless(partial(say, "second")), 1, 5, role="b", after=True)]  # fmt: skip
    with supervised(str(tmp_path), follows):
        done.append("streams")
    assert done == ["streams", "fails", "second"]
    with only("b", str(tmp_path), ""), supervised(str(tmp_path), follows):
        pass
    assert done[3:] == ["fails"]
    failure = "first: disk full; the next start goes on"
    assert caplog.messages == [failure, failure, "second: another process has the role b of this lake; left to it"]
    stop = threading.Event()
    with supervised(str(tmp_path), follows, stop):
        stop.set()
    with pytest.raises(RuntimeError, match="of the job"), supervised(str(tmp_path), follows):
        raise RuntimeError("of the job")
    assert len(done) == 4


def test_a_companion_that_takes_long_gets_its_part_of_the_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    began: list[float] = []

    def step(_: threading.Event) -> None:
        began.append(time.monotonic())
        time.sleep(0.05)

    with supervised(str(tmp_path), [Companion("slow", stateless(step), 0.01, 5, rest=9)]):
        wait_until(lambda: len(began) > 2)
    assert all(after - before >= 0.5 for before, after in pairwise(began))
    assert "slow: took 0 s, again in 0 s" in caplog.messages
