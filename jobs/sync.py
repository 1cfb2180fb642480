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
    from pipelines.config_history import Changes, ConfigTable

log = logging.getLogger("telemetry-lake")


class SyncSettings(JobSettings):
    """Keep the history of client metrics subscriptions (KIP-714) in the lake, by asking the cluster or from a file."""

    lake: str
    """folder or URI of the lake; made when it isn't there"""
    bootstrap_servers: str | None = None
    """brokers of the cluster to ask; the user needs DescribeConfigs on the cluster"""
    kafka_options: Annotated[dict[str, str], Field(default_factory=dict)]
    """options of Kafka's clients with the prefix kafka. (SASL, SSL), as for ingest; never logged"""
    subscriptions_file: Path | None = None
    """YAML file of subscriptions, instead of asking the cluster"""
    cluster_id: str | None = None
    """Kafka cluster id that the file is about, unless it says so"""
    check: bool = False
    """show what is different from the lake, and write nothing"""
    every_seconds: Annotated[float, Field(ge=1, le=86_400)] | None = None
    """go on, and look again that often [once]"""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """what the progress lines show"""


@dataclass(frozen=True)
class Poll:
    """What one look found: all entries of a table for a cluster, and what isn't understood of them."""

    table: ConfigTable
    cluster_id: str
    rows: Iterable[dict[str, Any]]
    problems: Iterable[str] = ()


def main(argv: list[str] | None = None) -> int:
    """Run the job; `argv` without the program's name. Gives the exit code."""
    try:
        settings = parse(SyncSettings, sys.argv[1:] if argv is None else argv, "telemetry-lake sync")
        if (settings.bootstrap_servers is None) == (settings.subscriptions_file is None):
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


def run(settings: SyncSettings, stop: threading.Event) -> int:
    """Sync once, or again and again until `stop` is set; then a failed look is told and the next one tried."""
    # Spark and Arrow take seconds to import: a wrong flag is told before that.
    from deltalake.exceptions import DeltaError  # noqa: PLC0415

    from pipelines.jars import JarsUnavailableError  # noqa: PLC0415
    from pipelines.kafka_admin import KafkaUnavailableError  # noqa: PLC0415
    from pipelines.session import JavaMissingError  # noqa: PLC0415
    from udfs.subscriptions import SubscriptionError  # noqa: PLC0415

    while True:
        try:
            sync(settings)
        except (JarsUnavailableError, JavaMissingError) as error:
            return fail(str(error), 2)
        except (KafkaUnavailableError, SubscriptionError, DeltaError, OSError) as error:
            if settings.every_seconds is None:
                return fail(f"{error}; the history stays as it was", 2)
            log.error("sync: %s; the history stays as it was", error)
        if settings.every_seconds is None or stop.wait(settings.every_seconds):
            return 0


def sync(settings: SyncSettings) -> None:
    """One look at everything that is kept, and what is new of it into the lake."""
    from pipelines.config_history import check, record  # noqa: PLC0415

    for poll in _polls(settings):
        compare = check if settings.check else record
        changes = compare(poll.table, settings.lake, poll.cluster_id, poll.rows, datetime.now(UTC))
        for line in _told(poll.table, changes):
            log.info("%s", line)
        for problem in poll.problems:
            log.warning("%s", problem)
        if not changes:
            log.info("%s: nothing new", poll.table.name)


def _polls(settings: SyncSettings) -> list[Poll]:
    """A look at each thing whose history is kept."""
    from pipelines.java_machine import java_machine  # noqa: PLC0415
    from pipelines.subscriptions import SUBSCRIPTIONS, read_subscriptions  # noqa: PLC0415
    from pipelines.subscriptions_file import read_subscriptions_file  # noqa: PLC0415

    if settings.subscriptions_file is not None:
        asked = read_subscriptions_file(settings.subscriptions_file, settings.cluster_id)
    else:
        assert settings.bootstrap_servers is not None
        with java_machine() as java:
            asked = read_subscriptions(java, settings.bootstrap_servers, settings.kafka_options)
    return [Poll(SUBSCRIPTIONS, asked.cluster_id, asked.rows(), asked.problems)]


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
