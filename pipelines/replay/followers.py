"""Updates the tables derived from the operator's rows after a replay: quota reports and windows, clients' labels."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.stored_pushes import IDENTITY, without
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from kafka_telemetry_lake.pipelines.quotas.client_reports import minutes_of, read_reports, replace_estimates
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, PUSH_OUTCOMES, QUOTA_REPORTS, QUOTA_USAGE
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE
from kafka_telemetry_lake.udfs.lifecycle.labels import LABELS_IN

LATEST_LABELS = """
    SELECT source, topic, "partition", "offset", cluster_id, client_instance_id, labels FROM outcomes
    WHERE labels IS NOT NULL AND client_instance_id IS NOT NULL
    QUALIFY row_number() OVER (
        PARTITION BY cluster_id, client_instance_id ORDER BY landed_at DESC, "partition" DESC, "offset" DESC
    ) = 1
"""


def rewrite_quota_reports(lake: Lake, files: Sequence[DataFile]) -> tuple[list[DataFile], list[int]]:
    """Write all of `quota_reports` again, with the reports of replayed pushes read from their new points.

    Args:
        files: of the new generation, not yet committed.

    Returns:
        The new files of the table, and the minutes (Unix seconds) whose windows of `quota_usage` change. Both are
        empty for a lake without quotas.
    """
    if not lake.has(QUOTA_REPORTS):
        return [], []
    replayed, minutes = _outcomes_of(lake, files), set[int]()
    reports = lake.rows(QUOTA_REPORTS)
    writer = lake.files(QUOTA_REPORTS)
    for day in pc.unique(reports.to_table([LANDED_DATE.name])[LANDED_DATE.name]).to_pylist():
        old = reports.to_table(QUOTA_REPORTS.schema.names, filter=pads.field(LANDED_DATE.name) == day)
        old = old.cast(QUOTA_REPORTS.schema)
        of_day = pads.field("landed_at").cast(pa.date32()) == day
        unchanged = without(old, replayed.to_table(list(IDENTITY), filter=of_day))
        minutes.update(minutes_of(without(old, unchanged)))
        writer.write(unchanged)
    for file in files:
        if file.table == METRIC_POINTS.name:
            new = read_reports(lake, [f"/{METRIC_POINTS.name}/{file.path}"])
            minutes.update(minutes_of(new))
            writer.write(new)
    return writer.close(), sorted(minutes)


def update_followers(lake: Lake, minutes: Sequence[int]) -> None:
    """After the swap, recompute the quota windows of these minutes and the labels of clients. Idempotent."""
    if minutes:
        lake.create(QUOTA_USAGE)
        replace_estimates(lake, minutes, {})
    if lake.has(CLIENT_CHANGES):
        lifecycle = Lifecycle(lake.uri, lake.fence)
        lifecycle.catch_up()
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("outcomes", lake.rows(PUSH_OUTCOMES))
            labels = connection.sql(LATEST_LABELS).to_arrow_table()
        lifecycle.relabel(labels.select(LABELS_IN.names).cast(LABELS_IN))


def _outcomes_of(lake: Lake, files: Sequence[DataFile]) -> pads.Dataset:
    filesystem, root = lake.folder(PUSH_OUTCOMES)
    paths = [f"{root}/{file.path}" for file in files if file.table == PUSH_OUTCOMES.name]
    return pads.dataset(paths, schema=PUSH_OUTCOMES.schema, filesystem=filesystem, format="parquet")
