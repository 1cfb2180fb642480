"""The companions of `ingest`: what works in its background, each in a thread (`supervisor`).

With ``--once`` the job itself brings the tables up to date that follow others: the lifecycle, quota usage and reports.
Then findings are evaluated and messages sent, a single time; sync and the feed of events run meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.findings import evaluate
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from kafka_telemetry_lake.jobs.settings.sync import SyncSettings
from kafka_telemetry_lake.jobs.support.locks import FINDINGS, NOTIFY, export_as
from kafka_telemetry_lake.jobs.support.running import RunningQuery
from kafka_telemetry_lake.jobs.support.supervisor import NEVER, Companion, Report, Step, stateless
from kafka_telemetry_lake.jobs.sync import Memory, RefusedListsError, sync
from kafka_telemetry_lake.pipelines.events import feed
from kafka_telemetry_lake.pipelines.events.subscriptions import add_subscription_events
from kafka_telemetry_lake.pipelines.export.counting import Counting, Selection
from kafka_telemetry_lake.pipelines.export.measures import DEFAULT_DIMENSIONS
from kafka_telemetry_lake.pipelines.export.prometheus import Fleet
from kafka_telemetry_lake.pipelines.findings.model import Overrides
from kafka_telemetry_lake.pipelines.findings.overrides import read_overrides
from kafka_telemetry_lake.pipelines.ingest.streams import JobLake
from kafka_telemetry_lake.pipelines.lifecycle import live_source
from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from kafka_telemetry_lake.pipelines.lifecycle.shard_runs import RunTask
from kafka_telemetry_lake.pipelines.quotas import broker_usage, client_reports
from kafka_telemetry_lake.pipelines.quotas.client_reports import ReportFollower
from kafka_telemetry_lake.pipelines.upkeep.small_files import PAUSE_S as UPKEEP_S
from kafka_telemetry_lake.pipelines.upkeep.small_files import Upkeep

EXPORT_NAME = "prometheus"  # the default of `export`: it goes on where the job ended, and the other way round
REFRESH_S = 15.0
POLL_S = 5.0  # of sinks
GIVE_UP_S = 60.0  # of a sink, with --once
PATIENCE_S = 30.0
FIGURES_PATIENCE_S = 5.0
SINKS_PATIENCE_S = 2.0
FEED_PATIENCE_S = 35.0  # its producer answers within 30 s
# An evaluation reads the whole hour under way again: it gets a tenth of the time, and a large fleet waits longer.
EVALUATION_REST = 9.0

log = logging.getLogger("telemetry-lake")
T = TypeVar("T")


@dataclass(frozen=True)
class Followed:
    """What the job's own followers need.

    Attributes:
        landing: the query whose status says up to when the source is read.
        lifecycle, reports: of the job's start; after a failure they are made anew from what is stored.
        tasks: of the lifecycle.
    """

    landing: RunningQuery
    lifecycle: Lifecycle
    reports: ReportFollower | None
    upkeep: Upkeep
    tasks: tuple[int, RunTask]


def companions(
    settings: IngestSettings,
    spark: SparkSession,
    lake: JobLake,
    followed: Followed,
    registry: CollectorRegistry,
    report: Report,
) -> list[Companion]:
    """What works in the background, in the order in which it ends: each sees what those before it wrote.

    Raises:
        CannotRunError: a file of settings is invalid.
    """
    rows = [] if settings.once else _followers(settings, lake, followed)
    if settings.metrics_fleet:
        rows.append(exporting(lake.path, registry))
    if settings.findings_minutes is not None:
        overrides = read_overrides(settings.rules)
        rows.append(evaluating(lake.path, settings.findings_minutes, overrides, after=settings.once))
    if settings.notify is not None:
        rows.append(notifying(settings, settings.notify, report))
    rows.append(syncing(settings, spark))
    if settings.events_topic is not None:
        sending = partial(feed.sending, spark, lake.path, *events_address(settings))
        rows.append(Companion("events", sending, feed.PAUSE_S, patience_s=FEED_PATIENCE_S, last_step=True))
    return rows


def exporting(lake: str, registry: CollectorRegistry) -> Companion:
    """Gives a registry the figures of the fleet, as `export` serves them."""
    return Companion(
        "export",
        partial(_figures, lake, registry),
        REFRESH_S,
        role=export_as(EXPORT_NAME),
        patience_s=FIGURES_PATIENCE_S,
    )


def evaluating(lake: str, minutes: float, overrides: Overrides = (), *, after: bool = False) -> Companion:
    """Evaluates findings, as the command does."""
    return Companion(
        "findings", stateless(lambda _: evaluate(lake, overrides)), 60 * minutes, role=FINDINGS, reopens=True,
        rest=EVALUATION_REST, waits_first=True, after=after, patience_s=PATIENCE_S,
    )  # fmt: skip


def notifying(settings: IngestSettings, path: Path, report: Report) -> Companion:
    """Sends messages about findings to the sinks of a file.

    Raises:
        NotifyFileError: the file is invalid.
    """
    # It needs the extra `notify`.
    from kafka_telemetry_lake.jobs.notify import following, sending_once  # noqa: PLC0415  # the extra
    from kafka_telemetry_lake.pipelines.notify.file import read_notify_file  # noqa: PLC0415  # the extra

    lake, file = settings.folder, read_notify_file(path)
    opened = partial(following, lake, file, POLL_S, report)
    if settings.once:
        opened = partial(sending_once, lake, file, GIVE_UP_S)
    return Companion("notify", opened, NEVER, role=NOTIFY, patience_s=SINKS_PATIENCE_S, after=settings.once)


def syncing(settings: IngestSettings, spark: SparkSession) -> Companion:
    """Syncs every `sync_seconds`, if set. At the end it adds the events of subscriptions in any case."""
    asked = SyncSettings.model_construct(
        lake=settings.folder,
        bootstrap_servers=settings.bootstrap_servers,
        kafka_options=settings.kafka_options,
        personal_data=settings.personal_data,
        personal_data_key=settings.personal_data_key,
        every_seconds=settings.sync_seconds,
    )
    memory = Memory()

    def step(ended: threading.Event) -> None:
        if ended.is_set():
            add_subscription_events(settings.folder)  # of pushes since the last sync
            return
        try:
            sync(asked, spark, memory)
        except RefusedListsError as error:  # the next poll asks for them again, no sooner
            log.error("sync: %s; their history is unchanged", error)

    return Companion(
        "sync",
        stateless(step),
        settings.sync_seconds or NEVER,
        waits_first=settings.sync_seconds is None,
        patience_s=PATIENCE_S,
        last_step=True,
    )


def judging(
    lifecycle: Lifecycle, make: Callable[[], Lifecycle], until: Callable[[], int | None], interval_s: float
) -> Companion:
    """Follows the lifecycle of clients while a live source is read, and takes what is there at the end.

    Args:
        make: another one, from what is stored.
        until: returns the time (µs) until which the source is known to have been read; None: not known.
    """

    def step(each: Lifecycle, ended: threading.Event) -> None:
        if ended.is_set():
            each.catch_up()
        else:
            live_source.step(each, until())

    opened = _anew(lifecycle, make, step)
    return Companion("lifecycle", opened, interval_s, PATIENCE_S, last_step=True)


def _followers(settings: IngestSettings, lake: JobLake, followed: Followed) -> list[Companion]:
    trigger_s, reports = settings.trigger_seconds, followed.reports
    usage = _anew(None, lambda: broker_usage.sample_windows(lake.path, lake.fence), lambda each, _: each.catch_up())
    rows = [
        judging(
            followed.lifecycle,
            lambda: Lifecycle(lake.path, lake.fence, tasks=followed.tasks),
            lambda: live_source.read_until(followed.landing.status, trigger_s),
            max(trigger_s, live_source.LEAST_PAUSE_S),
        ),
        Companion(broker_usage.STREAM, usage, broker_usage.PAUSE_S, PATIENCE_S, last_step=True),
    ]
    if reports is not None:
        opened = _anew(reports, lambda: ReportFollower(lake.path, lake.fence), lambda each, _: each.catch_up())
        pause_s = max(trigger_s, client_reports.PAUSE_S)
        rows.append(Companion(client_reports.STREAM, opened, pause_s, PATIENCE_S, last_step=True))
    return [*rows, Companion("upkeep", stateless(followed.upkeep.look), UPKEEP_S, PATIENCE_S, waits_first=True)]


def events_address(settings: IngestSettings) -> tuple[str, str, dict[str, str]]:
    """Topic of the events, its brokers and their options."""
    assert settings.events_topic is not None  # ensured by the caller
    assert settings.bootstrap_servers is not None  # ensured by `check_together`
    return settings.events_topic, settings.bootstrap_servers, settings.kafka_options


def _anew(
    first: T | None, make: Callable[[], T], step: Callable[[T, threading.Event], object]
) -> Callable[[], AbstractContextManager[Step]]:
    """Steps of an object that is used up by a failure: `first`, then others."""
    made = [] if first is None else [first]
    return lambda: nullcontext(partial(step, made.pop() if made else make()))


@contextlib.contextmanager
def _figures(lake: str, registry: CollectorRegistry) -> Iterator[Step]:
    selection = Selection(DEFAULT_DIMENSIONS)
    with contextlib.closing(Counting(lake, EXPORT_NAME, selection)) as counting:
        fleet = Fleet(lake, counting, selection.top)
        registry.register(fleet)
        try:
            yield lambda _: fleet.refresh()
        finally:
            registry.unregister(fleet)
