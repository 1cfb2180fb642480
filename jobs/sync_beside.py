"""Runs `sync` in a thread of `ingest`, and adds the events of subscriptions when ingest ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

from deltalake.exceptions import DeltaError
from duckdb import Error as DuckDBError
from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.ingest_settings import IngestSettings
from kafka_telemetry_lake.jobs.sync import run as run_sync
from kafka_telemetry_lake.jobs.sync_settings import SyncSettings
from kafka_telemetry_lake.pipelines.events.subscriptions import add_subscription_events
from kafka_telemetry_lake.pipelines.runtime.beside import beside

END_PATIENCE_S = 30

log = logging.getLogger("telemetry-lake")


@contextmanager
def syncing(spark: SparkSession, settings: IngestSettings) -> Iterator[None]:
    """Sync every `sync_seconds`, if set, inside the block. A failure is logged and never ends the block."""
    never = settings.sync_seconds is None
    with nullcontext() if never else beside("sync", partial(_sync, spark, settings), END_PATIENCE_S):
        yield
    try:
        add_subscription_events(settings.folder)  # of pushes since the last sync
    except (DeltaError, DuckDBError, OSError) as error:
        log.warning("sync: %s; the next sync will match the new clients", error)


def _sync(spark: SparkSession, settings: IngestSettings, ended: threading.Event) -> None:
    sync_settings = SyncSettings.model_construct(
        lake=settings.folder,
        bootstrap_servers=settings.bootstrap_servers,
        kafka_options=settings.kafka_options,
        personal_data=settings.personal_data,
        personal_data_key=settings.personal_data_key,
        every_seconds=settings.sync_seconds,
    )
    try:
        run_sync(sync_settings, ended, spark)
    except Exception:
        if not ended.is_set():  # after `ended` the session's JVM may have stopped
            log.exception("sync: stopped by an error; changes on the cluster are no longer recorded")
