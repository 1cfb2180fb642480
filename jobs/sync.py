"""``telemetry-lake sync``: records the history of subscriptions, quotas, groups, brokers, applications and prices."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from deltalake.exceptions import DeltaError
from duckdb import Error as DuckDBError
from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.settings.sync import SyncSettings
from kafka_telemetry_lake.jobs.support.privacy import privacy_of
from kafka_telemetry_lake.jobs.support.signals import stop_at_signals
from kafka_telemetry_lake.pipelines.applications.aliases import AliasError, read_aliases
from kafka_telemetry_lake.pipelines.applications.aliases_topic import read_aliases_topic
from kafka_telemetry_lake.pipelines.applications.costs import PricesError, read_brokers, read_prices
from kafka_telemetry_lake.pipelines.events.subscriptions import add_subscription_events
from kafka_telemetry_lake.pipelines.groups.members import ConsumerGroups, read_groups
from kafka_telemetry_lake.pipelines.groups.next_records import NextRecords
from kafka_telemetry_lake.pipelines.groups.offsets import record_lag, record_offsets
from kafka_telemetry_lake.pipelines.lake.config_history import (
    ConfigChanges,
    Unknown,
    all_known,
    check,
    none_known,
    record,
)
from kafka_telemetry_lake.pipelines.query.subscription_views import update_subscription_views
from kafka_telemetry_lake.pipelines.query.views import views
from kafka_telemetry_lake.pipelines.quotas.configured import read_quotas
from kafka_telemetry_lake.pipelines.runtime.java_machine import java_machine
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import HasJvm, KafkaRefusedError, KafkaUnavailableError
from kafka_telemetry_lake.pipelines.runtime.kafka_reach import check_brokers
from kafka_telemetry_lake.pipelines.runtime.session import spark_session
from kafka_telemetry_lake.pipelines.subscriptions.client_matches import update_client_matches
from kafka_telemetry_lake.pipelines.subscriptions.configured import ConfiguredSubscriptions, read_subscriptions
from kafka_telemetry_lake.pipelines.subscriptions.file import read_subscriptions_file
from kafka_telemetry_lake.pipelines.tables.costs import BROKERS, PRICES
from kafka_telemetry_lake.pipelines.tables.groups import GROUP_MEMBERS, GROUP_STATES
from kafka_telemetry_lake.pipelines.tables.lifecycle import APPLICATION_RULES, CLIENT_ALIASES
from kafka_telemetry_lake.pipelines.tables.quotas import QUOTAS
from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS
from kafka_telemetry_lake.pipelines.tables.table import HistoryTable
from kafka_telemetry_lake.udfs.errors import CannotRunError
from kafka_telemetry_lake.udfs.subscriptions.matching import SubscriptionError

log = logging.getLogger("telemetry-lake")


@dataclass(frozen=True)
class Poll:
    """The result of one poll: all current entries of a history table for a cluster, and problems with them."""

    table: HistoryTable
    cluster_id: str | None
    rows: Iterable[dict[str, Any]]
    problems: Iterable[str] = ()
    counts_only: bool = False
    """log how many entries changed, not which"""
    is_unknown: Unknown = all_known
    """whether the poll says nothing about an entry"""


@dataclass
class Memory:
    """What a periodic sync remembers of its polls: problems of the last one, logged once, and records that it found."""

    said: set[str] = field(default_factory=set)
    records: NextRecords = field(default_factory=NextRecords)


class RefusedListsError(KafkaUnavailableError):
    """Lists of the cluster were refused; the others are recorded. The message names the lists and says why."""


class SyncFailedError(CannotRunError):
    """A sync failed; the message says why, and what it didn't record."""


def run_job(settings: SyncSettings) -> int:
    """Sync once, or every `every_seconds` until a signal."""
    if settings.every_seconds is None:
        run(settings, threading.Event())
    else:
        run(settings, stop_at_signals("sync: stopped while the cluster or the lake was slow to answer"))
    return 0


def run(settings: SyncSettings, stop: threading.Event) -> None:
    """Sync once, or every `every_seconds` until `stop` is set. A periodic sync that fails is logged and retried.

    Raises:
        SyncFailedError: the sync failed, and `every_seconds` isn't set.
        JarsUnavailableError, JavaMissingError: no sync can succeed.
    """
    memory = Memory()
    while True:
        try:
            sync(settings, memory=memory)
        except (
            KafkaUnavailableError,
            SubscriptionError,
            AliasError,
            PricesError,
            DeltaError,
            DuckDBError,
            OSError,
        ) as error:
            text = f"{error}; {'their' if isinstance(error, RefusedListsError) else 'the'} history is unchanged"
            if settings.every_seconds is None:
                raise SyncFailedError(text) from error
            log.error("sync: %s", text)
        if settings.every_seconds is None or stop.wait(settings.every_seconds):
            return


def sync(settings: SyncSettings, spark: SparkSession | None = None, memory: Memory | None = None) -> None:
    """Poll once and record the changes in the lake; with `check` only log them.

    Args:
        spark: session whose JVM runs Kafka's Admin client; None: a JVM is started for it.

    Raises:
        RefusedListsError: lists of the cluster were refused; all others are recorded.
    """
    began, memory = datetime.now(UTC), memory or Memory()
    refused: dict[str, KafkaRefusedError] = {}
    polls, groups = _polls(settings, spark, memory.records, refused)
    now = datetime.now(UTC)
    for poll in polls:
        compare = check if settings.check else record
        changes = compare(poll.table, settings.lake, poll.cluster_id, poll.rows, now, began, poll.is_unknown)
        for line in _count(poll.table, changes) if poll.counts_only else _describe(poll.table, changes):
            log.info("%s", line)
        for problem in poll.problems:
            if problem not in memory.said:
                log.warning("%s", problem)
        if not changes and settings.every_seconds is None:
            log.info("%s: no changes", poll.table.name)
    memory.said = {problem for poll in polls for problem in poll.problems}
    if not settings.check:
        if groups is not None:
            rewound = record_offsets(
                settings.lake, groups.cluster_id, groups.committed, now, groups.has_unknown_offsets
            )
            if rewound:
                log.warning("group_offsets: %d committed offsets moved backwards: see event offset_rewound", rewound)
            record_lag(settings.lake, groups)
        if new := update_client_matches(settings.lake):
            log.info("subscriptions: matched %d new clients", new)
        if events := add_subscription_events(settings.lake):
            log.info("subscriptions: added %d events", events)
        if settings.database is not None:
            _update_views(settings.lake, settings.database)
    if refused:
        texts = dict.fromkeys(map(str, refused.values()))
        named = (
            f"{', '.join(name for name, error in refused.items() if str(error) == text)}: {text}" for text in texts
        )
        raise RefusedListsError("; ".join(named))


def _update_views(lake: str, database: str) -> None:
    update_subscription_views(spark_session("telemetry-lake sync", lake=lake), lake, set(views()), database)


def _polls(
    settings: SyncSettings, spark: SparkSession | None, records: NextRecords, refused: dict[str, KafkaRefusedError]
) -> tuple[list[Poll], ConsumerGroups | None]:
    """One poll per history table, and the consumer groups unless they are switched off or unavailable.

    Lists that the brokers refuse are left out, and put into `refused`.
    """
    aliases: list[Poll] = []
    prices: list[Poll] = []
    if settings.prices_file is not None:
        prices = [Poll(PRICES, settings.cluster_id, read_prices(settings.prices_file))]
    if settings.aliases_file is not None:
        listed = read_aliases(settings.aliases_file)
        aliases = [
            Poll(CLIENT_ALIASES, settings.cluster_id, listed.aliases),
            Poll(APPLICATION_RULES, settings.cluster_id, listed.rules),
        ]
    if settings.subscriptions_file is not None:
        asked = _meant(settings, read_subscriptions_file(settings.subscriptions_file, settings.cluster_id))
        return [Poll(SUBSCRIPTIONS, asked.cluster_id, asked.rows(), asked.problems), *aliases, *prices], None
    if settings.bootstrap_servers is None:
        return [*aliases, *prices], None
    servers, options = settings.bootstrap_servers, settings.kafka_options
    check_brokers(servers, options)
    polls = []
    with java_machine(spark) as java:
        with _unless_refused("subscriptions", refused):
            found = _meant(settings, read_subscriptions(java, servers, options))
            polls.append(
                Poll(SUBSCRIPTIONS, found.cluster_id, found.rows(), found.problems, is_unknown=found.is_unknown)
            )
        with _unless_refused("quotas", refused):
            limits = read_quotas(java, servers, options)
            polls.append(Poll(QUOTAS, limits.cluster_id, limits.quotas, limits.problems))
        with _unless_refused("brokers", refused):
            brokers = read_brokers(java, servers, options)
            polls.append(Poll(BROKERS, brokers.cluster_id, brokers.rows))
        groups = _groups(settings, servers, java, records) if settings.consumer_groups else None
        if settings.aliases_topic is not None:
            read = read_aliases_topic(java, servers, options, settings.aliases_topic)
            is_unknown = all_known if read.is_complete else none_known
            aliases = [Poll(CLIENT_ALIASES, settings.cluster_id, read.rows, read.problems, is_unknown=is_unknown)]
    polls += [*aliases, *prices]
    if groups is not None:
        polls += [
            Poll(GROUP_STATES, groups.cluster_id, groups.states, groups.warnings, True, groups.has_unknown_state),
            Poll(GROUP_MEMBERS, groups.cluster_id, groups.members, (), True, groups.has_unknown_members),
        ]
    return polls, groups


@contextmanager
def _unless_refused(name: str, refused: dict[str, KafkaRefusedError]) -> Iterator[None]:
    """End the block, in which a list is asked for, where the brokers refuse it."""
    try:
        yield
    except KafkaRefusedError as error:
        refused[name] = error


def _meant(settings: SyncSettings, asked: ConfiguredSubscriptions) -> ConfiguredSubscriptions:
    """The subscriptions as the brokers read them."""
    return asked.all_for_none() if settings.empty_metrics == "all" else asked


def _groups(
    settings: SyncSettings, bootstrap_servers: str, java: HasJvm, records: NextRecords
) -> ConsumerGroups | None:
    """The cluster's consumer groups; None (with a warning) if a coordinator doesn't answer."""
    try:
        looking = records if settings.unread_records else None
        return read_groups(java, bootstrap_servers, settings.kafka_options, privacy_of(settings), looking)
    except KafkaUnavailableError as error:
        log.warning("consumer groups: %s; their history is unchanged", error)
        return None


def _describe(table: HistoryTable, changes: ConfigChanges) -> Iterable[str]:
    """One log line per entry that changed."""
    ended = {table.key(row) for row in changes.ended}
    begun = {table.key(row) for row in changes.begun}
    for row in changes.begun:
        values = ", ".join(f"{name} {row[name]}" for name in table.values)
        yield f"{table.name}: {'changed' if table.key(row) in ended else 'created'} {_name(table.key(row))}: {values}"
    for key in sorted(ended - begun):
        yield f"{table.name}: deleted {_name(key)}"


def _count(table: HistoryTable, changes: ConfigChanges) -> Iterable[str]:
    if changes:
        yield f"{table.name}: {len(changes.begun)} versions started, {len(changes.ended)} ended"


def _name(key: tuple[Any, ...]) -> str:
    return ", ".join(map(str, key))
