"""``telemetry-lake notify``: sends changes of findings to Alertmanager, webhooks, chats and mail."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

from deltalake.exceptions import DeltaError

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.jobs.settings.base import UsageError
from kafka_telemetry_lake.jobs.settings.notify import NotifySettings
from kafka_telemetry_lake.jobs.support.locks import NOTIFY, only
from kafka_telemetry_lake.jobs.support.running import JobFailedError
from kafka_telemetry_lake.jobs.support.signals import stop_at_signals
from kafka_telemetry_lake.jobs.support.supervisor import Companion, Report, Step, supervised
from kafka_telemetry_lake.pipelines.notify.delivery import deliveries, delivery, previews, send_all
from kafka_telemetry_lake.pipelines.notify.file import NotifyFile, read_notify_file
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES


def run_job(settings: NotifySettings) -> int:
    """Send what there is to send; with `follow` until a signal."""
    file = read_notify_file(settings.notify)
    if not is_lake(settings.lake):
        raise UsageError(f"no lake at {settings.lake}")
    try:
        problems = _preview(settings, file) if settings.dry_run else _send(settings, file)
    except (DeltaError, OSError) as error:
        raise JobFailedError(f"notify: {' '.join(str(error).split())}; run it again") from error
    if problems:
        raise JobFailedError("\n".join(f"notify: {each}; the next run sends what it misses" for each in problems))
    return 0


def _preview(settings: NotifySettings, file: NotifyFile) -> list[str]:
    lines = list(previews(settings.lake, file, datetime.now(UTC)))
    print(*lines or ["nothing to send"], sep="\n")
    return []


def _send(settings: NotifySettings, file: NotifyFile) -> list[str]:
    """Returns a line for each sink that was given up."""
    stop = stop_at_signals("notify: stopped while a sink was slow to answer; its message will be sent again")
    lake = settings.lake
    with only(NOTIFY, lake, f"another notify is running on {lake}"):
        FINDING_CHANGES.create(lake)
        if not settings.follow:
            return send_all(deliveries(lake, file), stop, settings.give_up_seconds)
        deliveries(lake, file)  # a damaged file of one is an error now
        with supervised(lake, sinks(lake, file, settings.poll_seconds)):
            stop.wait()
    return []


@contextmanager
def following(lake: str, file: NotifyFile, poll_s: float, report: Report) -> Iterator[Step]:
    """Send what there is and what comes while the block runs: each sink has a thread, which is started again by itself.

    The step that it yields does nothing.
    """
    FINDING_CHANGES.create(lake)
    with supervised(lake, sinks(lake, file, poll_s), report=report):
        yield lambda _: None


@contextmanager
def sending_once(lake: str, file: NotifyFile, give_up_s: float) -> Iterator[Step]:
    """Yields a step that sends what there is.

    Raises:
        JobFailedError: from the step, a sink was given up.
    """

    def step(stop: threading.Event) -> None:
        FINDING_CHANGES.create(lake)
        if problems := send_all(deliveries(lake, file), stop, give_up_s):
            raise JobFailedError("; ".join(problems))

    yield step


def sinks(lake: str, file: NotifyFile, poll_s: float) -> list[Companion]:
    return [
        # A message that is being sent at the end is sent again by the next start.
        Companion(f"notify: {name}", partial(_sink, lake, name, file), poll_s, patience_s=1.0)
        for name in file.sinks
    ]


@contextmanager
def _sink(lake: str, name: str, file: NotifyFile) -> Iterator[Step]:
    yield delivery(lake, name, file).deliver


if __name__ == "__main__":
    sys.exit(run_command("notify"))
