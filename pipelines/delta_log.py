"""Commits of files that tasks have written, straight into a Delta table's log.

The operator's tasks write Parquet from Arrow themselves, which spares the rows a way through the JVM; a batch's files
become visible in one commit per table, which carries ``txnAppId``/``txnVersion`` like Spark's own idempotent writes.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction, RemoveAction

from pipelines.tables import LANDED_DATE, Table

ROWS_PER_FILE_GROUP = 1 << 20
ALMOST_A_MILLISECOND = timedelta(microseconds=999)
LONGEST_TEXT_BOUND = 200


@dataclass(frozen=True)
class DataFile:
    """A Parquet file below a table's folder that no commit names yet."""

    table: str
    path: str
    size: int
    rows: int
    landed_date: str
    stats: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> DataFile:
        return DataFile(**json.loads(text))


def write_files(table: Table, lake: str, rows: pa.Table) -> list[DataFile]:
    """Write rows as Parquet files of the table, one for each landed date. They count once they are committed.

    Args:
        rows: columns of ``table.schema``; text may be dictionary-encoded.
    """
    if rows.num_rows == 0:
        return []
    filesystem, root = pafs.FileSystem.from_uri(lake_uri(table.uri(lake)))
    dates = pc.cast(rows["landed_at"], pa.date32())
    files = []
    for date in pc.unique(dates).to_pylist():
        part = rows.filter(pc.equal(dates, date))
        folder = f"{LANDED_DATE.name}={date.isoformat()}"
        path = f"{folder}/part-{uuid.uuid4()}.zstd.parquet"
        filesystem.create_dir(f"{root}/{folder}", recursive=True)
        dictionaries = [field.name for field in part.schema if pa.types.is_dictionary(field.type)]
        maps = [field.name for field in part.schema if pa.types.is_map(field.type)]
        pq.write_table(
            part,
            f"{root}/{path}",
            filesystem=filesystem,
            compression="zstd",
            compression_level=1,
            row_group_size=ROWS_PER_FILE_GROUP,
            # Numbers hardly repeat: building dictionaries of them costs more than it saves.
            use_dictionary=dictionaries + [f"{name}.key_value.{side}" for name in maps for side in ("key", "value")],
            store_schema=False,  # readers must see plain text, not Arrow's dictionary types
            write_statistics=list(table.statistics),
        )
        size = filesystem.get_file_info(f"{root}/{path}").size
        stats = json.dumps(_statistics(part, table.statistics))
        files.append(DataFile(table.name, path, size, part.num_rows, date.isoformat(), stats))
    return files


def commit(table: Table, lake: str, files: Iterable[DataFile], app_id: str, version: int) -> bool:
    """Add the files to the table in one commit, unless this application has already committed this version.

    Returns:
        Whether a commit was made.
    """
    delta = DeltaTable(table.uri(lake))
    done = delta.transaction_version(app_id)
    adds: list[AddAction | RemoveAction] = [_add(file) for file in files]
    if not adds or (done is not None and done >= version):
        return False
    delta.create_write_transaction(
        adds,
        mode="append",
        schema=table.stored,
        partition_by=[LANDED_DATE.name],
        commit_properties=CommitProperties(app_transactions=[Transaction(app_id, version)]),
    )
    return True


def lake_uri(path: str) -> str:
    """A local path or a URI as the URI that Arrow's file systems take."""
    if "://" in path:
        return path
    return Path(path).resolve().as_uri()


def _add(file: DataFile) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values={LANDED_DATE.name: file.landed_date},
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=file.stats,
    )


def _milliseconds(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03d}Z"


def _statistics(rows: pa.Table, columns: Sequence[str]) -> dict[str, Any]:
    """Delta's per-file statistics (protocol, "Per-file Statistics"): row count and bounds of the chosen columns."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in columns:
        column = rows[name]
        nulls[name] = column.null_count
        if pa.types.is_dictionary(column.type):  # bounds of the few distinct texts, not of every row
            column = pa.chunked_array([chunk.dictionary for chunk in column.chunks])
        bounds = pc.min_max(column).as_py()
        if bounds["min"] is None:
            continue
        if pa.types.is_timestamp(column.type):  # Delta states milliseconds: the upper bound is rounded up
            low[name], high[name] = _milliseconds(bounds["min"]), _milliseconds(bounds["max"] + ALMOST_A_MILLISECOND)
        elif not isinstance(bounds["max"], str) or len(bounds["max"]) <= LONGEST_TEXT_BOUND:
            low[name], high[name] = bounds["min"], bounds["max"]
    return {"numRecords": rows.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}
