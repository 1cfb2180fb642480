"""``telemetry-lake sync``: what is configured on the cluster becomes history in the lake.

Exit codes: 0 done or stopped cleanly, 1 failed while running, 2 can't run as asked.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, SecretStr

from jobs.ingest import log_to_stdout
from jobs.settings import JobSettings, UsageError, fail, parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.config_history import Changes, ConfigTable
    from pipelines.consumer_groups import ConsumerGroups

log = logging.getLogger("telemetry-lake")


class SyncSettings(JobSettings):
    """Keep the history of subscriptions (KIP-714), quotas and consumer groups, by asking the cluster or a file."""

    lake: str
    """folder or URI of the lake; made when it isn't there"""
    bootstrap_servers: str | None = None
    """brokers of the cluster to ask; the user needs DescribeConfigs on the cluster, and Describe on the groups"""
    kafka_options: Annotated[dict[str, str], Field(default_factory=dict)]
    """options of Kafka's clients with the prefix kafka. (SASL, SSL), as for ingest; never logged"""
    subscriptions_file: Path | None = None
    """YAML file of subscriptions, instead of asking the cluster"""
    aliases_file: Path | None = None
    """YAML or CSV file of client aliases: application and owner by client_id or client_instance_id; alone or besides"""
    aliases_topic: str | None = None
    """topic of client aliases instead, compacted: one JSON object a record with those keys, no value ends an alias"""
    consumer_groups: bool = True
    """ask for consumer groups too: their members and committed offsets"""
    personal_data: Literal["keep", "hash", "drop"] = "keep"
    """what is stored of the addresses of groups' members; as for ingest"""
    personal_data_key: SecretStr | None = None
    """key of the hashes, as for ingest; never logged"""
    cluster_id: str | None = None
    """Kafka cluster id that the file is about, unless it says so; aliases count for all clusters without it"""
    check: bool = False
    """show what is different from the lake, and write nothing"""
    every_seconds: Annotated[float, Field(ge=1, le=86_400)] | None = None
    """go on, and look again that often [once]"""
    database: str | None = None
    """Spark: database with the lake's views, in which one view per subscription is created and dropped"""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """what the progress lines show"""


@dataclass(frozen=True)
class Poll:
    """What one look found: all entries of a table for a cluster, and what isn't understood of them."""

    table: ConfigTable
    cluster_id: str | None
    rows: Iterable[dict[str, Any]]
    problems: Iterable[str] = ()
    counted: bool = False
    """tell how many entries changed, not which"""


def main(argv: list[str] | None = None) -> int:
    """Run the job; `argv` without the program's name. Gives the exit code."""
    try:
        settings = parse(SyncSettings, sys.argv[1:] if argv is None else argv, "telemetry-lake sync")
        asked = [given for given in (settings.bootstrap_servers, settings.subscriptions_file) if given is not None]
        if len(asked) > 1 or (not asked and settings.aliases_file is None):
            raise UsageError(
                "bootstrap_servers, subscriptions_file: give one of --bootstrap-servers, --subscriptions-file"
            )
        if settings.aliases_topic is not None and (settings.aliases_file or settings.bootstrap_servers is None):
            raise UsageError("aliases_topic: needs --bootstrap-servers, and no --aliases-file beside it")
    except UsageError as error:
        return fail(str(error), 2)
    log_to_stdout(settings.log_level)
    stop = threading.Event()
    if settings.every_seconds is not None:
        for sign in (signal.SIGTERM, signal.SIGINT):
            signal.signal(sign, lambda *_: stop.set())
    return run(settings, stop)


def run(settings: SyncSettings, stop: threading.Event, spark: SparkSession | None = None) -> int:
    """Sync once, or again and again until `stop` is set; then a failed look is told and the next one tried.

    Args:
        spark: a session whose JVM asks the cluster; None: the job's own.
    """
    # Spark and Arrow take seconds to import: a wrong flag is told before that.
    from deltalake.exceptions import DeltaError  # noqa: PLC0415
    from duckdb import Error as DuckDBError  # noqa: PLC0415

    from pipelines.client_aliases import AliasError  # noqa: PLC0415
    from pipelines.jars import JarsUnavailableError  # noqa: PLC0415
    from pipelines.kafka_admin import KafkaUnavailableError  # noqa: PLC0415
    from pipelines.session import JavaMissingError  # noqa: PLC0415
    from udfs.subscriptions import SubscriptionError  # noqa: PLC0415

    while True:
        try:
            sync(settings, spark)
        except (JarsUnavailableError, JavaMissingError) as error:
            return fail(str(error), 2)
        except (KafkaUnavailableError, SubscriptionError, AliasError, DeltaError, DuckDBError, OSError) as error:
            if settings.every_seconds is None:
                return fail(f"{error}; the history stays as it was", 2)
            log.error("sync: %s; the history stays as it was", error)
        if settings.every_seconds is None or stop.wait(settings.every_seconds):
            return 0


def sync(settings: SyncSettings, spark: SparkSession | None = None) -> None:
    """One look at everything that is kept, and what is new of it into the lake."""
    from pipelines.client_matches import keep_matches  # noqa: PLC0415
    from pipelines.config_history import check, record  # noqa: PLC0415
    from pipelines.consumer_group_offsets import record_offsets  # noqa: PLC0415
    from pipelines.subscription_events import keep_events  # noqa: PLC0415

    began = datetime.now(UTC)
    polls, groups = _polls(settings, spark)
    now = datetime.now(UTC)
    for poll in polls:
        compare = check if settings.check else record
        changes = compare(poll.table, settings.lake, poll.cluster_id, poll.rows, now, began)
        for line in _told(poll.table, changes) if not poll.counted else _counted(poll.table, changes):
            log.info("%s", line)
        for problem in poll.problems:
            log.warning("%s", problem)
        if not changes and settings.every_seconds is None:
            log.info("%s: nothing new", poll.table.name)
    if not settings.check:
        if groups is not None and (back := record_offsets(settings.lake, groups.cluster_id, groups.committed, now)):
            log.warning("group_offsets: %d committed offsets went back: event offset_rewound", back)
        if new := keep_matches(settings.lake):
            log.info("subscriptions: %d new clients matched", new)
        if events := keep_events(settings.lake):
            log.info("subscriptions: %d events", events)
        if settings.database is not None:
            _keep_views(settings.lake, settings.database)


def _keep_views(lake: str, database: str) -> None:
    from pipelines.session import spark_session  # noqa: PLC0415
    from pipelines.subscription_views import keep_subscription_views  # noqa: PLC0415
    from pipelines.views import views  # noqa: PLC0415

    keep_subscription_views(spark_session("telemetry-lake sync", lake=lake), lake, set(views()), database)


def _polls(settings: SyncSettings, spark: SparkSession | None) -> tuple[list[Poll], ConsumerGroups | None]:
    """A look at each thing whose history is kept, and at the consumer groups, unless they can't be asked now."""
    from pipelines.client_aliases import read_aliases  # noqa: PLC0415
    from pipelines.client_aliases_topic import read_aliases_topic  # noqa: PLC0415
    from pipelines.consumer_groups import GROUP_MEMBERS, GROUP_STATES  # noqa: PLC0415
    from pipelines.java_machine import java_machine  # noqa: PLC0415
    from pipelines.lifecycle_tables import CLIENT_ALIASES  # noqa: PLC0415
    from pipelines.quotas import QUOTAS, read_quotas  # noqa: PLC0415
    from pipelines.subscriptions import SUBSCRIPTIONS, read_subscriptions  # noqa: PLC0415
    from pipelines.subscriptions_file import read_subscriptions_file  # noqa: PLC0415

    aliases: list[Poll] = []
    if settings.aliases_file is not None:
        aliases = [Poll(CLIENT_ALIASES, settings.cluster_id, read_aliases(settings.aliases_file))]
    if settings.subscriptions_file is not None:
        asked = read_subscriptions_file(settings.subscriptions_file, settings.cluster_id)
        return [Poll(SUBSCRIPTIONS, asked.cluster_id, asked.rows(), asked.problems), *aliases], None
    if settings.bootstrap_servers is None:
        return aliases, None
    with java_machine(spark) as java:
        asked = read_subscriptions(java, settings.bootstrap_servers, settings.kafka_options)
        limits = read_quotas(java, settings.bootstrap_servers, settings.kafka_options)
        groups = _groups(settings, settings.bootstrap_servers, java) if settings.consumer_groups else None
        if settings.aliases_topic is not None:
            told = read_aliases_topic(java, settings.bootstrap_servers, settings.kafka_options, settings.aliases_topic)
            aliases = [Poll(CLIENT_ALIASES, settings.cluster_id, told.rows, told.problems)]
    polls = [
        Poll(SUBSCRIPTIONS, asked.cluster_id, asked.rows(), asked.problems),
        Poll(QUOTAS, limits.cluster_id, limits.quotas),
        *aliases,
    ]
    if groups is not None:
        polls += [
            Poll(GROUP_STATES, groups.cluster_id, groups.states, counted=True),
            Poll(GROUP_MEMBERS, groups.cluster_id, groups.members, counted=True),
        ]
    return polls, groups


def _groups(settings: SyncSettings, bootstrap_servers: str, java: SparkSession) -> ConsumerGroups | None:
    """The cluster's consumer groups; None, told, when one of their coordinators doesn't answer: the rest goes on."""
    from pipelines.consumer_groups import read_groups  # noqa: PLC0415
    from pipelines.kafka_admin import KafkaUnavailableError  # noqa: PLC0415
    from pipelines.landing import Privacy  # noqa: PLC0415

    key = "" if settings.personal_data_key is None else settings.personal_data_key.get_secret_value()
    try:
        return read_groups(java, bootstrap_servers, settings.kafka_options, Privacy(settings.personal_data, key))
    except KafkaUnavailableError as error:
        log.warning("consumer groups: %s; they stay as they were", error)
        return None


def _told(table: ConfigTable, changes: Changes) -> Iterable[str]:
    """A line for a person per entry that changed."""
    ended = {table.key(row) for row in changes.ended}
    begun = {table.key(row) for row in changes.begun}
    for row in changes.begun:
        values = ", ".join(f"{field.name} {row[field.name]}" for field in table.values)
        yield f"{table.name}: {'changed' if table.key(row) in ended else 'created'} {_name(table.key(row))}: {values}"
    for key in sorted(ended - begun):
        yield f"{table.name}: deleted {_name(key)}"


def _counted(table: ConfigTable, changes: Changes) -> Iterable[str]:
    if changes:
        yield f"{table.name}: {len(changes.begun)} versions begun, {len(changes.ended)} ended"


def _name(key: tuple[Any, ...]) -> str:
    return ", ".join(map(str, key))


if __name__ == "__main__":
    sys.exit(main())
