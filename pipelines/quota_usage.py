"""The quota stream: samples to `quota_samples`, and the usage windows that they touch to `quota_usage`."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from pipelines.once import OffsetGuard
from pipelines.quota_samples import rejects, samples, to_quota_samples
from pipelines.streams import Lake, Trigger, _app_id, _start
from pipelines.tables import LANDED_DATE, QUARANTINE, QUOTA_SAMPLES, QUOTA_USAGE, Table
from udfs import quota_usage
from udfs.quota_usage import SAMPLES_IN
from udfs.rows import TIMESTAMP

log = logging.getLogger(__name__)

STREAM = "quota_samples"
WINDOWS = (10, 60)  # seconds; each divides a minute, the unit that is computed anew
MAX_RUNS = 50  # of a commit's condition: delta-rs takes nested ones by recursion
TEXT = "%Y-%m-%dT%H:%M:%SZ"


class QuotaSource(Protocol):
    """A source of landing records that holds quota samples."""

    @property
    def name(self) -> str: ...

    @property
    def may_repeat(self) -> bool: ...

    def quotas(self, spark: SparkSession) -> DataFrame:
        """Records of the quotas topic, columns of ``landing.RECORD``."""


def start_quota_samples(spark: SparkSession, lake: Lake, source: QuotaSource, trigger: Trigger) -> StreamingQuery:
    """Quota samples -> `quota_samples`, `quarantine` for the malformed, and `quota_usage`.

    Each batch appends its samples, then computes the windows of each minute that one of them falls in anew, from all
    samples that the table holds of it: late samples correct their window, and a batch that runs again gives the same.
    """
    for table in (QUOTA_SAMPLES, QUARANTINE, QUOTA_USAGE):
        table.create(lake.path)
    guards = {
        table: OffsetGuard.load(spark, table.uri(lake.path), lake.checkpoint(f"{STREAM}/{table.name}"))
        for table in (QUOTA_SAMPLES, QUARANTINE)
    }

    def append(table: Table, rows: DataFrame, app_id: str, batch_id: int) -> None:
        (
            guards[table]
            .unstored(rows, source.may_repeat)
            .write.format("delta")
            .mode("append")
            .option("txnAppId", app_id)
            .option("txnVersion", batch_id)
            .save(table.uri(lake.path))
        )

    def run(batch: DataFrame, batch_id: int) -> None:
        began = time.monotonic()
        app_id = _app_id(batch, STREAM)
        batch.persist()
        try:
            minute = F.when(F.col("reason").isNull(), F.unix_seconds(F.date_trunc("minute", "time")))
            told = batch.agg(F.count("reason").alias("bad"), F.collect_set(minute).alias("minutes")).collect()[0]
            if told["bad"]:
                append(QUARANTINE, rejects(batch), app_id, batch_id)
            append(QUOTA_SAMPLES, samples(batch), app_id, batch_id)
        finally:
            batch.unpersist()
        replace_usage(lake.path, sorted(told["minutes"]), app_id, batch_id)
        log.info(
            "%s: batch %d stored, %d bad, %d minutes of usage, %.1f s",
            STREAM, batch_id, told["bad"], len(told["minutes"]), time.monotonic() - began,
        )  # fmt: skip

    rows = to_quota_samples(source.quotas(spark), source.name, lake.cluster_id)
    return _start(rows, STREAM, lake, trigger, run)


def replace_usage(lake: str, minutes: Sequence[int], app_id: str, version: int) -> None:
    """Compute the windows of these minutes anew from `quota_samples` and replace their rows in `quota_usage`.

    In one commit, unless the minutes are scattered over more than `MAX_RUNS` runs, as those of a broken clock are: then
    the last of several commits carries the transaction, and whatever was committed before it is replaced by the same.

    Args:
        minutes: Unix seconds of minutes that got samples, ascending, each once.
        app_id, version: ``txnAppId``, ``txnVersion``; what they have committed already is not done again.
    """
    usage = DeltaTable(QUOTA_USAGE.uri(lake))
    done = usage.transaction_version(app_id)
    if not minutes or (done is not None and done >= version):
        return
    held = DeltaTable(QUOTA_SAMPLES.uri(lake)).to_pyarrow_dataset()
    runs = _runs(minutes)
    for first in range(0, len(runs), MAX_RUNS):
        group = runs[first : first + MAX_RUNS]
        is_last = first + MAX_RUNS >= len(runs)
        write_deltalake(
            usage,
            pa.concat_tables(table for run in group for table in _usage_of(held, *run)),
            mode="overwrite",
            predicate=_within(group),
            commit_properties=CommitProperties(app_transactions=[Transaction(app_id, version)] if is_last else None),
        )


def _runs(minutes: Sequence[int]) -> list[tuple[int, int]]:
    """Start and end of each run of minutes that follow each other."""
    starts = np.array(minutes)
    return [(int(run[0]), int(run[-1]) + 60) for run in np.split(starts, np.flatnonzero(np.diff(starts) > 60) + 1)]


def _usage_of(samples: ds.Dataset, start: int, end: int) -> Iterator[pa.Table]:
    """Rows of `quota_usage` for the windows from start to end, an hour of samples after the other."""
    for hour in range(start, end, 3600):
        low, high = (pa.scalar(_time(edge), TIMESTAMP) for edge in (hour, min(hour + 3600, end)))
        within = (ds.field("time") >= low) & (ds.field("time") < high)
        held = samples.to_table(SAMPLES_IN.names, filter=within).cast(SAMPLES_IN)
        for seconds in WINDOWS:
            rows = quota_usage.quota_usage(held, seconds)
            dates = pc.cast(rows["window_start"], LANDED_DATE.type)
            yield rows.append_column(LANDED_DATE, dates).cast(QUOTA_USAGE.stored)


def _within(runs: Sequence[tuple[int, int]]) -> str:
    """The windows of these runs as a condition on `quota_usage`."""
    times = [(f"'{_time(start):{TEXT}}'", f"'{_time(end):{TEXT}}'") for start, end in runs]
    spans = " OR ".join(f"(window_start >= {start} AND window_start < {end})" for start, end in times)
    first, last = (f"'{_time(edge):%Y-%m-%d}'" for edge in (runs[0][0], runs[-1][1]))
    return f"source = 'broker' AND {LANDED_DATE.name} >= {first} AND {LANDED_DATE.name} <= {last} AND ({spans})"


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
