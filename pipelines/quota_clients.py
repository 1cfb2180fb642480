"""What clients tell of their quotas: byte counters and delays among their points become usage windows.

Rows of `quota_usage` with source `client` and `evidence`, beside the brokers' own. A stream of its own, since they are
few of the points and nobody waits for them.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from pipelines.delta_log import lake_uri
from pipelines.once import OffsetGuard
from pipelines.operator_task import without
from pipelines.push_files import table_paths
from pipelines.quota_windows import WINDOWS, at, replace_windows
from pipelines.quotas import QUOTAS
from pipelines.streams import Lake, Trigger, app_id_of, start_batches
from pipelines.tables import LANDED_DATE, METRIC_POINTS, PUSHES, QUOTA_REPORTS, QUOTA_USAGE
from udfs.quota_estimates import MAX_INTERVAL_S, estimated_usage, throttle_evidence
from udfs.quota_reports import METRICS, POINTS_IN, quota_reports
from udfs.quota_usage import USAGE, micros
from udfs.quota_versions import Version, limits_over_time
from udfs.rows import TIMESTAMP

log = logging.getLogger(__name__)

STREAM = "quota_reports"
MAX_BYTES_PER_BATCH = "256m"  # of metric_points; about a twentieth of the points tells of quotas
EVIDENCE_LASTS_S = 60  # a Java client tells of a delay for so long, under a quota that may be gone meanwhile
CHUNK_S = 600  # of windows that are computed at a time
RECORD = ("source", "topic", "partition", "offset", "landed_at")


def knows_quotas(lake: str) -> bool:
    """Whether the quotas of a cluster were ever kept in this lake: what clients tell is measured against them."""
    return DeltaTable.is_deltatable(QUOTAS.uri(lake))


def start_quota_reports(spark: SparkSession, lake: Lake, trigger: Trigger) -> StreamingQuery:
    """`metric_points` -> `quota_reports`, and the windows that they touch of `quota_usage`.

    Each batch appends the reports among its points, then computes the windows of each minute that one of them falls in
    anew, from all reports that are stored, against the limits that table `quotas` says were in force then.
    """
    for table in (QUOTA_REPORTS, QUOTA_USAGE):
        table.create(lake.path)
    held = OffsetGuard.load(spark, QUOTA_REPORTS.uri(lake.path), lake.checkpoint(STREAM)).held()
    points = (
        spark.readStream.format("delta")
        .option("ignoreDeletes", "true")
        .option("skipChangeCommits", "true")
        .option("maxBytesPerTrigger", MAX_BYTES_PER_BATCH)
        .load(METRIC_POINTS.uri(lake.path))
        .select(F.input_file_name().alias("file"))  # all that goes through the JVM
    )

    def run(batch: DataFrame, batch_id: int) -> None:
        began = time.monotonic()
        files = batch.agg(F.collect_set("file")).collect()[0][0]
        reports = read_reports(lake.path, sorted(files))
        if held is not None:
            reports = without(reports, held.within(reports))
        if reports.num_rows:
            app_id = app_id_of(batch, STREAM)
            _append(lake.path, reports, app_id, batch_id)
            replace_estimates(lake.path, minutes_of(reports), app_id, batch_id)
        log.info("%s: batch %d: %d reports, %.1f s", STREAM, batch_id, reports.num_rows, time.monotonic() - began)

    return start_batches(points, STREAM, lake, trigger, run)


def read_reports(lake: str, uris: Sequence[str]) -> pa.Table:
    """The reports among the points of these files of `metric_points`, columns of ``quota_reports.REPORTS``."""
    filesystem, root = pafs.FileSystem.from_uri(lake_uri(METRIC_POINTS.uri(lake)))
    found = []
    for path in table_paths(uris, METRIC_POINTS):
        with filesystem.open_input_file(f"{root}/{path}") as stream:
            points = _points(stream)
        found.append(quota_reports(points, _principals(lake, points)))
    return pa.concat_tables(found) if found else QUOTA_REPORTS.schema.empty_table()


def _points(stream: pa.NativeFile) -> pa.Table:
    """The points of a file that may tell of quotas. Text is read as dictionaries, at a third of the cost."""
    there = pq.read_schema(stream)
    names = [name for name in POINTS_IN.names if name in there.names]
    texts = [name for name in names if pa.types.is_string(there.field(name).type)]
    texts += [f"attributes.key_value.{side}" for side in ("key", "value") if "attributes" in names]
    file = pq.ParquetFile(stream, read_dictionary=texts)
    found = [POINTS_IN.empty_table()]
    for number in range(file.num_row_groups):
        points = file.read_row_group(number, names)
        points = points.filter(pc.is_in(points["metric"], pa.array(METRICS)))
        for field in POINTS_IN:
            if field.name not in names:  # all NULL, and left out
                points = points.append_column(field, pa.nulls(points.num_rows, field.type))
        found.append(points.select(POINTS_IN.names).cast(POINTS_IN))
    return pa.concat_tables(found)


def _principals(lake: str, points: pa.Table) -> pa.ChunkedArray:
    """The principal of each point's push."""
    records = points.select(RECORD).group_by(list(RECORD)).aggregate([])
    pushes = DeltaTable(PUSHES.uri(lake)).to_pyarrow_dataset()
    days = pc.unique(pc.cast(records["landed_at"], LANDED_DATE.type))
    held = pa.schema([PUSHES.schema.field(name) for name in (*RECORD, "principal")]).empty_table()
    for partition in pc.unique(records["partition"]).to_pylist():
        span = pc.min_max(records.filter(pc.field("partition") == partition)["offset"]).as_py()
        wanted = ds.field(LANDED_DATE.name).isin(days) & (ds.field("partition") == partition)
        wanted &= (ds.field("offset") >= span["min"]) & (ds.field("offset") <= span["max"])
        held = pa.concat_tables([held, pushes.to_table(held.column_names, filter=wanted).cast(held.schema)])
    numbered = points.select(RECORD).append_column("row", pa.array(range(points.num_rows), pa.int64()))
    return numbered.join(held, list(RECORD)).sort_by("row")["principal"]


def _append(lake: str, reports: pa.Table, app_id: str, version: int) -> None:
    table = DeltaTable(QUOTA_REPORTS.uri(lake))
    done = table.transaction_version(app_id)
    if done is None or done < version:
        dates = pc.cast(reports["landed_at"], LANDED_DATE.type)
        write_deltalake(
            table,
            reports.append_column(LANDED_DATE, dates).cast(QUOTA_REPORTS.stored),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction(app_id, version)]),
        )


def minutes_of(reports: pa.Table) -> list[int]:
    """Unix seconds of the minutes whose windows these reports touch, ascending."""
    last = micros(reports["time"])
    first = micros(pc.coalesce(reports["delta_start"], reports["time"]))
    near = last - first <= MAX_INTERVAL_S * 1_000_000
    minute = 60 * 1_000_000
    spans = np.unique(np.stack([first[near] // minute, last[near] // minute]), axis=1)
    minutes = {number for start, end in spans.T.tolist() for number in range(start, end + 1)}
    return [60 * number for number in sorted(minutes)]


def replace_estimates(lake: str, minutes: Sequence[int], app_id: str, version: int) -> None:
    """Compute the clients' windows of these minutes (Unix seconds, ascending) anew from all reports of them."""
    stored = DeltaTable(QUOTA_REPORTS.uri(lake)).to_pyarrow_dataset()
    versions: dict[str | None, list[Version]] = defaultdict(list)
    for version_row in QUOTAS.create(lake).to_pyarrow_table().to_pylist():
        versions[version_row["cluster_id"]].append(version_row)

    def usage_of(start: int, end: int) -> Iterator[pa.Table]:
        yield USAGE.empty_table()
        for first in range(start, end, CHUNK_S):
            last = min(first + CHUNK_S, end)
            low, high = pa.scalar(at(first), TIMESTAMP), pa.scalar(at(last), TIMESTAMP)
            furthest = pa.scalar(at(last) + timedelta(seconds=MAX_INTERVAL_S), TIMESTAMP)
            within = (ds.field("time") >= low) & (ds.field("time") <= furthest)
            within &= ds.field("delta_start").is_null() | (ds.field("delta_start") < high)
            reports = stored.to_table(QUOTA_REPORTS.schema.names, filter=within)
            for cluster in pc.unique(reports["cluster_id"]).to_pylist():
                named = pc.field("cluster_id").is_null() if cluster is None else pc.field("cluster_id") == cluster
                yield from cluster_usage(reports.filter(named), versions[cluster], first, last)

    replace_windows(lake, ["client", "evidence"], minutes, usage_of, app_id, version)


def cluster_usage(reports: pa.Table, versions: Sequence[Version], start: int, end: int) -> Iterator[pa.Table]:
    """Rows of `quota_usage` for the windows of one cluster from start to end (Unix seconds, whole minutes).

    Args:
        reports: columns of ``quota_reports.REPORTS``.
        versions: the cluster's rows of table `quotas`.
    """
    for quota_type in pc.unique(reports["quota_type"]).to_pylist():
        mine = reports.filter(pc.field("quota_type") == quota_type)
        moved, delayed = mine.filter(pc.field("bytes").is_valid()), mine.filter(pc.field("throttle_ms").is_valid())
        for seconds in WINDOWS:
            for span in limits_over_time(versions, quota_type, start, end, seconds, EVIDENCE_LASTS_S):
                yield throttle_evidence(delayed, quota_type, span.limits, seconds, span.start, span.end)
            for span in limits_over_time(versions, quota_type, start, end, seconds):
                if span.limits:
                    yield estimated_usage(moved, quota_type, span.limits, seconds, span.start, span.end)
