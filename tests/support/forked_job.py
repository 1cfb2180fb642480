"""A job without Spark (`job_without_spark`) that stops itself at a step (`stopped_job`), as a fork."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kafka_telemetry_lake.udfs.kernels import numba_cache
from tests.support import stopped_job

_FORKS = multiprocessing.get_context("forkserver")
PRELOADED = "tests.support.preloaded_job"


class ForkedJob:
    """A running one, with what tests use of ``Popen``. It has a session of its own.

    Args:
        step: where it stops itself, as `stopped_job` says.
        steps: file for the names of its steps.
        argv: command and flags.
        log: file for its output.
        environment: added to this process's own.
    """

    def __init__(self, step: str, steps: Path, argv: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        numba_cache.configure()
        main = getattr(sys.modules["__main__"], "__spec__", None)  # each fork loads it, too
        _FORKS.set_forkserver_preload([PRELOADED, *([] if main is None else [main.name])])
        self._process = _FORKS.Process(target=_run, args=(step, steps, list(argv), log, dict(environment)))
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """None: it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a forked job", timeout or 0)
        return self._process.exitcode

    def send_signal(self, sign: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.kill(self.pid, sign)


def _run(step: str, steps: Path, argv: list[str], log: Path, environment: dict[str, str]) -> None:
    os.setsid()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for standard in (1, 2):
        os.dup2(output, standard)
    sys.exit(stopped_job.main(step, steps, [stopped_job.WITHOUT_SPARK, *argv]))
