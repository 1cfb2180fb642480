"""Sync beside ingest: what is configured on the cluster is looked up in a thread; at the end clients are matched."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from duckdb import Error as DuckDBError

from jobs.sync import SyncSettings
from jobs.sync import run as run_sync
from pipelines.subscription_events import keep_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.ingest import IngestSettings

END_PATIENCE_S = 30

log = logging.getLogger("telemetry-lake")


@contextmanager
def syncing(spark: SparkSession, settings: IngestSettings) -> Iterator[None]:
    """Sync every `sync_seconds` inside the block, where set; a failure is told and never ends the block."""
    ended = threading.Event()
    thread = threading.Thread(target=_sync, args=(spark, settings, ended), name="sync", daemon=True)
    if settings.sync_seconds is not None:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if thread.is_alive():
            thread.join(END_PATIENCE_S)
    try:
        keep_events(settings.lake)  # of clients that came since the last look, or are new to a lake that `sync` keeps
    except (DeltaError, DuckDBError, OSError) as error:
        log.warning("sync: %s; the next one matches the clients that are new", error)


def _sync(spark: SparkSession, settings: IngestSettings, ended: threading.Event) -> None:
    wanted = SyncSettings.model_construct(
        lake=settings.lake,
        bootstrap_servers=settings.bootstrap_servers,
        kafka_options=settings.kafka_options,
        personal_data=settings.personal_data,
        personal_data_key=settings.personal_data_key,
        every_seconds=settings.sync_seconds,
    )
    try:
        run_sync(wanted, ended, spark)
    except Exception:
        if not ended.is_set():  # the session's JVM may be gone by then
            log.exception("sync: has ended; what is configured is no longer followed")
