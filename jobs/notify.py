"""``telemetry-lake notify``: sends changes of findings to Alertmanager, webhooks, Kafka topics, chats and mail."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from deltalake.exceptions import DeltaError

from kafka_telemetry_lake.jobs.entry import run_command
from kafka_telemetry_lake.jobs.locks import NOTIFY, only
from kafka_telemetry_lake.jobs.notify_settings import NotifySettings
from kafka_telemetry_lake.jobs.running import JobFailedError
from kafka_telemetry_lake.jobs.settings import UsageError
from kafka_telemetry_lake.jobs.signals import stop_at_signals
from kafka_telemetry_lake.pipelines.notify.delivery import deliveries, previews
from kafka_telemetry_lake.pipelines.notify.file import KafkaSink, NotifyFile, read_notify_file
from kafka_telemetry_lake.pipelines.notify.run import run
from kafka_telemetry_lake.pipelines.notify.topic import Machine
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
    with only(NOTIFY, settings.lake, f"another notify is running on {settings.lake}"):
        FINDING_CHANGES.create(settings.lake)
        return run(
            deliveries(settings.lake, file, _machine(file)),
            stop,
            settings.poll_seconds,
            None if settings.follow else settings.give_up_seconds,
        )


def _machine(file: NotifyFile) -> Machine | None:
    """What provides a JVM, if a sink needs one."""
    if not any(isinstance(sink, KafkaSink) for sink in file.sinks.values()):
        return None
    from kafka_telemetry_lake.pipelines.runtime.java_machine import java_machine  # noqa: PLC0415  # it needs pyspark

    return java_machine


if __name__ == "__main__":
    sys.exit(run_command("notify"))
