"""Brings in line with a replay what follows the operator's rows: quota reports and windows, clients' labels."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
from deltalake import DeltaTable

from pipelines.delta_log import DataFile, TableFiles, lake_uri
from pipelines.lifecycle import Lifecycle
from pipelines.lifecycle_tables import CLIENT_CHANGES
from pipelines.once import IDENTITY
from pipelines.operator_task import without
from pipelines.quota_clients import minutes_of, read_reports, replace_estimates
from pipelines.tables import LANDED_DATE, METRIC_POINTS, PUSH_OUTCOMES, QUOTA_REPORTS, QUOTA_USAGE
from udfs.lifecycle_labels import LABELS_IN

LATEST_LABELS = """
    SELECT source, topic, "partition", "offset", cluster_id, client_instance_id, labels FROM outcomes
    WHERE labels IS NOT NULL AND client_instance_id IS NOT NULL
    QUALIFY row_number() OVER (
        PARTITION BY cluster_id, client_instance_id ORDER BY landed_at DESC, "partition" DESC, "offset" DESC
    ) = 1
"""


def quota_reports_anew(lake: str, files: Sequence[DataFile]) -> tuple[list[DataFile], list[int]]:
    """All of `quota_reports`, with those of the replayed pushes read from their new points.

    Args:
        files: of the new generation, not yet committed.

    Returns:
        Files that are to be the table, and the minutes (Unix seconds) whose windows of `quota_usage` they touch.
        Nothing where the lake has no quotas.
    """
    if not DeltaTable.is_deltatable(QUOTA_REPORTS.uri(lake)):
        return [], []
    replayed, minutes = _outcomes_of(lake, files), set[int]()
    held = DeltaTable(QUOTA_REPORTS.uri(lake)).to_pyarrow_dataset()
    writer = TableFiles(QUOTA_REPORTS, lake)
    for day in pc.unique(held.to_table([LANDED_DATE.name])[LANDED_DATE.name]).to_pylist():
        old = held.to_table(QUOTA_REPORTS.schema.names, filter=pads.field(LANDED_DATE.name) == day)
        old = old.cast(QUOTA_REPORTS.schema)
        of_day = pads.field("landed_at").cast(pa.date32()) == day
        kept = without(old, replayed.to_table(list(IDENTITY), filter=of_day))
        minutes.update(minutes_of(without(old, kept)))
        writer.write(kept)
    for file in files:
        if file.table == METRIC_POINTS.name:
            reports = read_reports(lake, [f"/{METRIC_POINTS.name}/{file.path}"])
            minutes.update(minutes_of(reports))
            writer.write(reports)
    return writer.close(), sorted(minutes)


def follow(lake: str, minutes: Sequence[int], app_id: str) -> None:
    """After the swap: compute the windows of these minutes, and take the labels that pushes have now. May run again."""
    if minutes:
        QUOTA_USAGE.create(lake)
        replace_estimates(lake, minutes, app_id, 0)
    if DeltaTable.is_deltatable(CLIENT_CHANGES.uri(lake)):
        lifecycle = Lifecycle(lake)
        lifecycle.catch_up()
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("outcomes", DeltaTable(PUSH_OUTCOMES.uri(lake)).to_pyarrow_dataset())
            labels = connection.sql(LATEST_LABELS).to_arrow_table()
        lifecycle.relabel(labels.select(LABELS_IN.names).cast(LABELS_IN))


def _outcomes_of(lake: str, files: Sequence[DataFile]) -> pads.Dataset:
    filesystem, root = pafs.FileSystem.from_uri(lake_uri(PUSH_OUTCOMES.uri(lake)))
    paths = [f"{root}/{file.path}" for file in files if file.table == PUSH_OUTCOMES.name]
    return pads.dataset(paths, schema=PUSH_OUTCOMES.schema, filesystem=filesystem, format="parquet")
