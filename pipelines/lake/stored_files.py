"""The files of a table as rows of a list, and the rows in some of them.

delta-rs' own dataset of a table with 300,000 files takes half a minute and 4 GB, as each file becomes an expression.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE

CLOCKS_DIFFER = timedelta(days=1)


def files_table(delta: DeltaTable) -> pa.Table:
    """delta-rs' list of a table's files, with the landed date as text in column `day`; NULL without partitions."""
    actions = pa.table(delta.get_add_actions())
    if LANDED_DATE.name in delta.metadata().partition_columns:
        days = pc.cast(pc.struct_field(actions["partition"], LANDED_DATE.name), pa.string())
    else:
        days = pa.nulls(actions.num_rows, pa.string())
    return actions.append_column("day", days)


def files_since(delta: DeltaTable, at: datetime) -> pa.Table:
    """The files that may have been written since a time, as `files_table` has them.

    They stand in for the commits since then, which a log has forgotten.
    Merged files among them repeat older rows, and so do those of the day before: the times of files are those of the
    machines that wrote them.
    """
    files = files_table(delta)
    return files.filter(pc.greater_equal(files["modification_time"], int((at - CLOCKS_DIFFER).timestamp() * 1000)))


def rows_by_day(files: pa.Table) -> dict[str, int | None]:
    """The number of rows of each landed date; None: a file doesn't say how many it has."""
    days = files.group_by("day").aggregate([("num_records", "sum"), ("num_records", "count"), ("path", "count")])
    return {
        row["day"]: row["num_records_sum"] if row["num_records_count"] == row["path_count"] else None
        for row in days.to_pylist()
    }


def rows_in(uri: str, schema: pa.Schema, files: pa.Table) -> pads.Dataset:
    """The rows in some files of a table (column `path`, as its log has them). What a file lacks is NULL."""
    filesystem, root = filesystem_of(uri)
    paths = [f"{root}/{unquote(path)}" for path in files["path"].to_pylist()]
    if not paths:
        return pads.dataset(schema.empty_table())
    days = pads.partitioning(pa.schema([LANDED_DATE]), flavor="hive") if LANDED_DATE.name in schema.names else None
    return pads.dataset(paths, schema, "parquet", filesystem, partitioning=days, partition_base_dir=root)
