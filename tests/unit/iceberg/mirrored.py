"""Iceberg tables of a lake in tests: made, read by Iceberg's own library, and compared with the Delta tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from kafka_telemetry_lake.pipelines.iceberg.folder_tables import FolderTables
from kafka_telemetry_lake.pipelines.iceberg.mirror import Change, MirroredTable
from kafka_telemetry_lake.pipelines.iceberg.places import FOLDER
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.delta_log import files_of as files_of_delta
from kafka_telemetry_lake.pipelines.lake.table_files import TableFiles
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.pipelines.tables.table import Table
from tests.support.lake_tables import table as delta_rows

CLIENT = "jHecHqLPQj2rnaP7QRzrmg"  # of the first row of each commit
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
POINTS = METRIC_POINTS.name
NAMES = (PUSHES.name, POINTS, PUSH_OUTCOMES.name)


def put(lake: Path | str, minute: int = 0, number: int = 2, table: Table = METRIC_POINTS) -> None:
    """Append rows in one commit, written and committed as the job does it."""
    table.create(str(lake))
    at = NOON + timedelta(minutes=minute, microseconds=minute + 1)
    own = [
        {"landed_at": at, "time": at + timedelta(seconds=each), "topic": "t", "offset": each, "metric": f"m{each}",
         "attributes": [("node_id", str(each))], "value_int": 2**62 + each,
         "client_instance_id": None if each else CLIENT}
        for each in range(number)
    ]  # fmt: skip
    files = TableFiles(table, str(lake))
    files.write(pa.Table.from_pylist(own, table.schema))
    TableLog(table, str(lake)).commit(files.close(), f"test-{minute}", 0)


def merge(lake: Path | str, table: Table = METRIC_POINTS) -> None:
    """Replace all files of the table by one of the same rows, as upkeep does."""
    delta = DeltaTable(table.uri(str(lake)))
    files = TableFiles(table, str(lake))
    files.write(delta.to_pyarrow_table().select(table.schema.names).cast(table.schema))
    TableLog(table, str(lake)).rearrange(files_of_delta(delta), files.close())


def mirrored(lake: Path, name: str, keep: int = 20) -> MirroredTable:
    return MirroredTable(str(lake), name, FolderTables(str(lake / FOLDER)), keep)


def follow(lake: Path, *names: str, keep: int = 20) -> dict[str, Change | None]:
    """A run of the command, for some tables."""
    return {name: mirrored(lake, name, keep).follow() for name in names or NAMES}


def iceberg(lake: Path, name: str) -> StaticTable:
    """The table as a stranger opens it: by its folder."""
    return StaticTable.from_metadata(str(lake / FOLDER / name))


def rows(data: pa.Table) -> list[str]:
    return sorted(str(sorted(row.items())) for row in data.to_pylist())


def is_same(lake: Path, *names: str) -> bool:
    """Whether Iceberg's reader has the rows of the Delta tables, of which there are some."""
    pairs = [(rows(iceberg(lake, name).scan().to_arrow()), rows(delta_rows(lake, name))) for name in names or NAMES]
    return all(own == delta and delta for own, delta in pairs)


def files_of(lake: Path, name: str) -> set[str]:
    """The data files of all snapshots that the table has."""
    found: set[str] = set(iceberg(lake, name).inspect.all_files()["file_path"].to_pylist())
    return found


def snapshots(lake: Path, name: str) -> list[dict[str, Any]]:
    """The summaries of the snapshots, oldest first."""
    known = sorted(iceberg(lake, name).snapshots(), key=lambda each: each.sequence_number or 0)
    return [{"operation": each.summary.operation.value, **each.summary.additional_properties}
            for each in known if each.summary is not None]  # fmt: skip
