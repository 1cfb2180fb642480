"""``telemetry-lake export``: fleet figures for Prometheus over HTTP, points and events by OTLP."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from pydantic import SecretStr

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.jobs.settings.base import UsageError
from kafka_telemetry_lake.jobs.settings.export import ExportSettings
from kafka_telemetry_lake.jobs.support.locks import export_as, only
from kafka_telemetry_lake.jobs.support.running import JobFailedError
from kafka_telemetry_lake.jobs.support.signals import stop_at_signals
from kafka_telemetry_lake.jobs.support.supervisor import Companion, Step, supervised
from kafka_telemetry_lake.pipelines.export.counting import Counting, Selection
from kafka_telemetry_lake.pipelines.export.known_clients import KnownClients
from kafka_telemetry_lake.pipelines.export.prometheus import Fleet, RenderedOnce
from kafka_telemetry_lake.pipelines.lake.place import no_lake
from kafka_telemetry_lake.pipelines.observe.metrics_server import JobHealth, MetricsServer
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake

if TYPE_CHECKING:
    from kafka_telemetry_lake.pipelines.export.otlp import Otlp

STALE_AFTER_S = 300.0
FIGURES = "figures"
SEND_PATIENCE_S = 3.0  # what is being sent then is sent again by the next start
log = logging.getLogger("telemetry-lake")


def run_job(settings: ExportSettings) -> int:
    """Serve and send until a signal."""
    if not is_lake(settings.lake):
        raise UsageError(no_lake(settings.lake))
    stop = stop_at_signals("export: stopped while the lake or an endpoint was slow to answer")
    busy = f"another exporter of {settings.lake} runs under the name {settings.name}: give this one a --name of its own"
    try:
        with only(export_as(settings.name), settings.lake, busy):
            _export(settings, stop)
    except (DeltaError, OSError) as error:
        raise JobFailedError(f"export: {' '.join(str(error).split())}; run it again") from error
    log.info("export: stopped")
    return 0


def selection_of(settings: ExportSettings) -> Selection:
    """What the settings select."""
    dimensions = tuple(dict.fromkeys(settings.by.split(",")))
    return Selection(dimensions, settings.top, settings.stale_minutes * 60, settings.window_minutes * 60)


def _export(settings: ExportSettings, stop: threading.Event) -> None:
    with contextlib.ExitStack() as stack:
        counting = stack.enter_context(contextlib.closing(_counting(settings)))
        fleet = Fleet(settings.lake, counting, settings.top)
        health = JobHealth(max(STALE_AFTER_S, 5 * settings.refresh_seconds))
        _refresh(fleet, health)
        try:
            server = stack.enter_context(MetricsServer(settings.host, settings.port, RenderedOnce(fleet), health))
        except OSError as error:
            raise UsageError(f"port: can't listen on {settings.host}:{settings.port}: {error.strerror}") from error
        log.info("export: figures and health at http://%s:%d/metrics and /health", settings.host, server.port)
        if settings.otlp is not None:
            stack.enter_context(
                supervised(settings.lake, _senders(settings, settings.otlp, fleet), report=health.companion)
            )
        while not stop.wait(settings.refresh_seconds):
            _refresh(fleet, health)


def _counting(settings: ExportSettings) -> Counting:
    return Counting(settings.lake, settings.name, selection_of(settings))


def _refresh(fleet: Fleet, health: JobHealth) -> None:
    if fleet.refresh():
        health.reported(FIGURES)


def _senders(settings: ExportSettings, url: SecretStr, fleet: Fleet) -> list[Companion]:
    # What sends needs the extra `notify`, serving doesn't.
    from kafka_telemetry_lake.pipelines.export.otlp import PAUSE_S, SIGNALS, Otlp  # noqa: PLC0415  # it needs the extra
    from kafka_telemetry_lake.pipelines.runtime.trust import (  # noqa: PLC0415  # the same
        trust_what_the_machine_trusts,
    )

    trust_what_the_machine_trusts()
    clients, rows = KnownClients(settings.lake), list[Companion]()
    for signal in dict.fromkeys(settings.otlp_signals.split(",")):
        sender = Otlp(
            settings.lake, settings.name, SIGNALS[signal], clients, url, settings.otlp_headers,
            is_cumulative=settings.otlp_temporality == "cumulative", from_start=settings.otlp_since == "start",
        )  # fmt: skip
        fleet.also(sender.families)
        rows.append(
            Companion(f"otlp-{signal}", partial(_sending, sender), PAUSE_S, patience_s=SEND_PATIENCE_S, last_step=True)
        )
    return rows


@contextlib.contextmanager
def _sending(sender: Otlp) -> Iterator[Step]:
    sender.restore()
    yield sender.send_new


if __name__ == "__main__":
    sys.exit(run_command("export"))
