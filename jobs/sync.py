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

from pydantic import Field

from jobs.ingest import log_to_stdout
from jobs.settings import JobSettings, UsageError, fail, parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.config_history import Changes, ConfigTable

log = logging.getLogger("telemetry-lake")


class SyncSettings(JobSettings):
    """Keep the history of client metrics subscriptions (KIP-714) and client quotas, by asking the cluster or a file."""

    lake: str
    """folder or URI of the lake; made when it isn't there"""
    bootstrap_servers: str | None = None
    """brokers of the cluster to ask; the user needs DescribeConfigs on the cluster"""
    kafka_options: Annotated[dict[str, str], Field(default_factory=dict)]
    """options of Kafka's clients with the prefix kafka. (SASL, SSL), as for ingest; never logged"""
    subscriptions_file: Path | None = None
    """YAML file of subscriptions, instead of asking the cluster"""
    aliases_file: Path | None = None
    """YAML or CSV file of client aliases: application and owner by client_id or client_instance_id; alone or besides"""
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


def main(argv: list[str] | None = None) -> int:
    """Run the job; `argv` without the program's name. Gives the exit code."""
    try:
        settings = parse(SyncSettings, sys.argv[1:] if argv is None else argv, "telemetry-lake sync")
        asked = [given for given in (settings.bootstrap_servers, settings.subscriptions_file) if given is not None]
        if len(asked) > 1 or (not asked and settings.aliases_file is None):
            raise UsageError(
                "bootstrap_servers, subscriptions_file: give one of --bootstrap-servers, --subscriptions-file"
            )
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
    from pipelines.subscription_events import keep_events  # noqa: PLC0415

    began = datetime.now(UTC)
    polls = _polls(settings, spark)
    now = datetime.now(UTC)
    for poll in polls:
        compare = check if settings.check else record
        changes = compare(poll.table, settings.lake, poll.cluster_id, poll.rows, now, began)
        for line in _told(poll.table, changes):
            log.info("%s", line)
        for problem in poll.problems:
            log.warning("%s", problem)
        if not changes and settings.every_seconds is None:
            log.info("%s: nothing new", poll.table.name)
    if not settings.check:
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

    keep_subscription_views(spark_session("telemetry-lake sync"), lake, set(views()), database)


def _polls(settings: SyncSettings, spark: SparkSession | None) -> list[Poll]:
    """A look at each thing whose history is kept."""
    from pipelines.client_aliases import read_aliases  # noqa: PLC0415
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
        return [Poll(SUBSCRIPTIONS, asked.cluster_id, asked.rows(), asked.problems), *aliases]
    if settings.bootstrap_servers is None:
        return aliases
    with java_machine(spark) as java:
        asked = read_subscriptions(java, settings.bootstrap_servers, settings.kafka_options)
        limits = read_quotas(java, settings.bootstrap_servers, settings.kafka_options)
    return [
        Poll(SUBSCRIPTIONS, asked.cluster_id, asked.rows(), asked.problems),
        Poll(QUOTAS, limits.cluster_id, limits.quotas),
        *aliases,
    ]


def _told(table: ConfigTable, changes: Changes) -> Iterable[str]:
    """A line for a person per entry that changed."""
    ended = {table.key(row) for row in changes.ended}
    begun = {table.key(row) for row in changes.begun}
    for row in changes.begun:
        values = ", ".join(f"{field.name} {row[field.name]}" for field in table.values)
        yield f"{table.name}: {'changed' if table.key(row) in ended else 'created'} {_name(table.key(row))}: {values}"
    for key in sorted(ended - begun):
        yield f"{table.name}: deleted {_name(key)}"


def _name(key: tuple[Any, ...]) -> str:
    return ", ".join(map(str, key))


if __name__ == "__main__":
    sys.exit(main())
