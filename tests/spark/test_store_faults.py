"""A whole job on an S3 store that fails, whose keys expire, that is cut off, or whose clock is another one.

The job goes on, or ends with one line and an exit code. The next one makes of the lake what an undisturbed one does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ledger_faults import LOCAL
from tests.support.ledger_run import StoreRun
from tests.support.patience import PATIENCE_S
from tests.support.s3_proxy import Fault, S3Proxy, proxied
from tests.support.s3_server import S3Server

pytestmark = pytest.mark.slow
ANY, ALWAYS = ".*", 1 << 30


@pytest.fixture
def store(server: S3Server) -> Iterator[S3Proxy]:
    with proxied(server.environment["AWS_ENDPOINT_URL"]) as proxy:
        yield proxy


@pytest.fixture
def run(server: S3Server, store: S3Proxy, tmp_path: Path) -> Iterator[StoreRun]:
    run = StoreRun(tmp_path, server, store.endpoint)
    run.look_s = 0.2
    yield run
    store.recover()
    run.close()


def last_line(log: Path) -> str:
    lines = log.read_text().splitlines()
    assert not [line for line in lines if "Traceback" in line], lines[-40:]
    return lines[-1]


def once(run: StoreRun, *flags: str, code: int = 0) -> str:
    """A job that reads what there is; returns its last line."""
    log = run.folder / f"once-{len(run.running)}.log"
    assert run.start("--once", *LOCAL, *flags, log=log).wait(PATIENCE_S) == code, run.said()
    return last_line(log)


def test_requests_that_fail_now_and_then_change_nothing(run: StoreRun, store: S3Proxy) -> None:
    run.land()
    strikes = [
        store.strike(Fault.UNAVAILABLE, "PUT", r"landed_date=.*\.parquet", times=3),
        store.strike(Fault.UNAVAILABLE, "GET|HEAD", "_delta_log", times=3),
        store.strike(Fault.SLOW, "PUT", "points-state/", seconds=4.0),
        store.strike(Fault.CUT, "PUT", r"_delta_log/\d{20}\.json"),
        store.strike(Fault.ANSWER_LOST, "PUT", r"push_outcomes/_delta_log/\d{20}\.json"),
        store.strike(Fault.CUT, "PUT", "landing/offsets/"),  # by Spark's own client
    ]
    once(run)
    assert [len(strike.struck) for strike in strikes] == [strike.times for strike in strikes]
    assert run.verdict().problems == []


def test_keys_that_expire_end_the_job_with_one_line_and_new_ones_go_on(run: StoreRun, store: S3Proxy) -> None:
    run.land()
    job = run.start("--trigger-seconds", "0.5", *LOCAL)
    run.wait_for_all(job)
    store.strike(Fault.EXPIRED, ANY, ANY, times=ALWAYS)
    run.land()
    assert job.wait(PATIENCE_S) == 1, run.said()
    line = last_line(run.log)
    # Which of its requests comes first is chance: the answer to a HEAD request has no body that names the code.
    assert re.match(r"telemetry-lake: stream \w+ failed: .*(ExpiredToken|403 Forbidden|ACCESS_DENIED)", line), line
    store.recover()
    once(run, "--take-over")
    assert run.verdict().problems == []


class Silence:
    """The store takes requests and doesn't answer."""

    prefix: tuple[str, ...] = ()  # of the command of a job behind it

    def __init__(self, store: S3Proxy) -> None:
        self._store, self.endpoint, self.mend = store, store.endpoint, store.recover

    def cut(self) -> None:
        self._store.strike(Fault.SILENT, ANY, ANY, times=ALWAYS)


class Cable:
    """A network of its own for a job, by one cable to this machine. What goes through it when it is cut is lost."""

    def __init__(self, name: str) -> None:
        self._name, self.host = name, "169.254.77.1"
        self.prefix = ("ip", "netns", "exec", name)
        self.endpoint = ""
        ip("netns", "add", name)
        ip("link", "add", name, "type", "veth", "peer", "name", "cable", "netns", name)
        ip("addr", "add", f"{self.host}/30", "dev", name)
        self.mend()
        ip("-n", name, "addr", "add", "169.254.77.2/30", "dev", "cable")
        for device in ("lo", "cable"):
            ip("-n", name, "link", "set", device, "up")

    def cut(self) -> None:
        ip("link", "set", self._name, "down")

    def mend(self) -> None:
        ip("link", "set", self._name, "up")

    def remove(self) -> None:
        ip("netns", "del", self._name)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture(params=[pytest.param("silence", marks=pytest.mark.soak), "cable"])
def network(request: pytest.FixtureRequest, server: S3Server, store: S3Proxy) -> Iterator[Silence | Cable]:
    if request.param == "silence":
        yield Silence(store)
        return
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("a network of its own needs root and iproute2")
    cable = Cable(f"tl{os.getpid()}")
    try:
        with proxied(server.environment["AWS_ENDPOINT_URL"], cable.host) as behind:
            cable.endpoint = behind.endpoint
            yield cable
    finally:
        cable.remove()


def test_a_job_whose_network_is_cut_is_taken_over_and_ends_when_it_is_back(
    run: StoreRun, server: S3Server, network: Silence | Cable
) -> None:
    run.land()
    command = (*network.prefix, sys.executable, "-m", "kafka_telemetry_lake.jobs.cli", "ingest", *run.source(),
               "--lake", run.uri, "--driver-memory", "1g", "--trigger-seconds", "0.5", *LOCAL)  # fmt: skip
    job = run.start(command=command, environment={"AWS_ENDPOINT_URL": network.endpoint})
    run.wait_for_all(job)
    network.cut()
    run.land()
    run.environment = server.environment  # the other one's network isn't
    once(run, "--take-over")
    assert job.poll() is None, "it is cut off"
    assert run.verdict().problems == []
    network.mend()
    assert job.wait(PATIENCE_S) == 1, run.said()
    assert "telemetry-lake: ingest: the lake was taken over by `ingest`, process" in last_line(run.log)
    run.land()
    once(run)
    assert run.verdict().problems == [], "the next job goes on where the second one was"


def test_a_clock_that_is_off_by_an_hour_is_one_line(run: StoreRun) -> None:
    """The store refuses its signatures."""
    if shutil.which("faketime") is None:
        pytest.skip("faketime is not installed")
    run.land()
    log = run.folder / "clock.log"
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    environment = {"LD_PRELOAD": str(library), "FAKETIME": "+1h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    job = run.start("--once", *LOCAL, log=log, environment=environment)
    assert job.wait(PATIENCE_S) in (1, 2), run.said()
    assert "RequestTimeTooSkewed" in last_line(log)
    once(run, "--take-over")
    assert run.verdict().problems == []
