"""SIGTERM and SIGINT end a command within seconds, at any moment and whatever its main thread is in."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs.support import signals
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.lake  # it starts processes that are signalled

MOMENTS, LONGEST_S = 2000, 5e-4
MANY = """
import logging, sys, time
from kafka_telemetry_lake.jobs.support import signals
from kafka_telemetry_lake.jobs.support.console import log_to_stdout

log_to_stdout("INFO")
for turn in range(int(sys.argv[1])):
    stop = signals.stop_at_signals("cut off")
    print("ready", file=sys.stderr, flush=True)
    if turn % 2:
        while not stop.wait(1e-6):
            pass
    else:
        while not stop.is_set():
            logging.getLogger("telemetry-lake").info("a line")
    signals.leave_signals()
print("stopped", turn + 1, "times")
"""

BUSY = """
import ctypes, logging, sys, threading, time
from kafka_telemetry_lake.jobs.support import signals
from kafka_telemetry_lake.jobs.support.console import log_to_stdout

signals.STOP_S, signals.SAY_S, signals.ALARM_S = {stop_s}, {say_s}, {alarm_s}
log_to_stdout("INFO")
stop = signals.stop_at_signals("cut off", lambda: print("killed", file=sys.stderr, flush=True))
print("ready", file=sys.stderr, flush=True)
"""

# The thread that hears the signals ends the process 0.4 s after one. The alarm is left out, so it can't be what did.
BY_THE_THREAD = BUSY.format(stop_s=1.0, say_s=0.6, alarm_s=1.0) + "signals._Ears.arm = lambda _: None\n"
# The alarm comes an hour before that thread, which stands for one that can't run.
BY_THE_ALARM = BUSY.format(stop_s=1.0, say_s=-3600.0, alarm_s=1.0)

PLACES = {
    "the lock of the event": "with stop._cond: time.sleep(1000)",
    "a lock that nobody releases": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "waiting for a thread": "event = threading.Event(); t = threading.Thread(target=event.wait); t.start(); t.join()",
    "the lock of the log": "with logging.getLogger().handlers[0].lock: time.sleep(1000)",
    "the lock of all logs": "with logging._lock: time.sleep(1000)",
    "a line that nobody reads": "while True: print('x' * 65536, flush=True)",
    "a log line that nobody reads": "while True: logging.getLogger().info('x' * 65536)",
    "a library that isn't interruptible": "\nwhile True: ctypes.CDLL(None).usleep(100_000_000)",
    "its exit": "import atexit; atexit.register(time.sleep, 1000); sys.exit(5)",
    "a thread that outlives it": "threading.Thread(target=time.sleep, args=(1000,)).start(); sys.exit(5)",
}  # fmt: skip


@pytest.mark.slow
def test_at_thousands_of_random_moments(tmp_path: Path) -> None:
    """Signals of another process: one from a thread arrives only where the main thread waits."""
    draw, out = random.Random(1), tmp_path / "out"
    argv = [sys.executable, "-c", MANY, str(MOMENTS)]
    with out.open("w") as stdout, subprocess.Popen(argv, stdout=stdout, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for _ in range(MOMENTS):
            assert process.stderr.readline() == "ready\n"
            until = time.perf_counter() + draw.random() * LONGEST_S
            while time.perf_counter() < until:
                pass
            process.send_signal(draw.choice(signals.SIGNS))
        assert process.stderr.read() == ""
    assert process.returncode == 0
    lines = set(out.read_text().splitlines())
    assert f"stopped {MOMENTS} times" in lines
    assert not any("cut off" in line for line in lines)


@pytest.mark.parametrize("place", PLACES)
def test_whatever_the_main_thread_is_in(place: str) -> None:
    code, said = _ended_in(BY_THE_THREAD + PLACES[place])
    assert (code, said) == (0, "killed\n")


def test_even_if_no_thread_of_python_can_run_after_the_signal() -> None:
    """A call of C that keeps Python's lock: then the system ends the process, by its alarm."""
    holds = "while not stop.is_set(): time.sleep(0.01)\nctypes.PyDLL(None).sleep(1000)"
    assert _ended_in(BY_THE_ALARM + holds) == (-signal.SIGALRM, "")


def test_an_end_that_takes_longer_on_a_busy_machine_is_still_one() -> None:
    """The thread that has begun to end the process isn't cut off after `STOP_S`, which would give no exit code."""
    slow = BUSY.format(stop_s=1.0, say_s=0.6, alarm_s=signals.ALARM_S) + "kill = signals._ears.kill\n"
    slow += "signals._ears.kill = lambda: (time.sleep(1.5), kill())\ntime.sleep(1000)"
    assert _ended_in(slow) == (0, "killed\n")
    assert signals.STOP_S + 1.5 <= signals.ALARM_S < 10


def _ended_in(program: str) -> tuple[int, str]:
    """Exit code and stderr of a process that gets SIGTERM. Nobody reads its stdout until it has ended."""
    argv = [sys.executable, "-c", program]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "ready\n"
        threading.Event().wait(0.3)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()
        return process.returncode, process.stderr.read()


def test_a_job_that_was_taken_over_ends_although_nobody_reads_what_it_prints() -> None:
    code = """
import sys, threading, time
from kafka_telemetry_lake.jobs.support import signals

def lost():
    time.sleep(0.5)  # until the pipe is full
    signals.end_at_once(lambda: print("taken over", file=sys.stderr, flush=True), lambda: None, 7)

threading.Thread(target=lost).start()
while True:
    print("x" * 65536, file=sys.stderr, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as process:
        try:
            assert process.wait(PATIENCE_S) == 7
        finally:
            process.kill()


def test_a_fork_is_ended_by_its_own_signals_and_does_not_stop_its_parent() -> None:
    code = """
import os, signal, time
from kafka_telemetry_lake.jobs.support import signals
stop = signals.stop_at_signals("cut off")
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.write(writer, b"x")
    time.sleep(1000)
os.read(reader, 1)
os.kill(child, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), stop.wait(0.2))
"""
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert done.stdout == f"{-signal.SIGTERM} False\n"


def test_a_program_that_calls_a_command_gets_its_signals_back(capsys: pytest.CaptureFixture[str]) -> None:
    handlers = [signal.getsignal(sign) for sign in signals.SIGNS]
    threads = set(threading.enumerate())
    assert cli.main(["views"]) == 0
    stop = signals.stop_at_signals("cut off")
    assert signal.getsignal(signal.SIGTERM) != handlers[0]
    signals.leave_signals()
    assert [signal.getsignal(sign) for sign in signals.SIGNS] == handlers
    assert signal.set_wakeup_fd(-1) == -1
    assert not stop.is_set()
    for thread in set(threading.enumerate()) - threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), thread.name


def test_ctrl_c_on_a_command_that_follows_nothing_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run_command", interrupted)
    monkeypatch.setattr(sys, "argv", ["telemetry-lake", "maintain", "--lake", "x"])
    try:
        assert cli.main() == 130
    finally:
        signals.leave_signals()
    assert capsys.readouterr().err == "telemetry-lake: maintain: interrupted\n"
    with pytest.raises(KeyboardInterrupt):  # a notebook's own
        cli.main(["maintain", "--lake", "x"])
