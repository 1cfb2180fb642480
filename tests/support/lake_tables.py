"""Reading a lake in tests, without Spark."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable


def table(lake: Path, name: str, columns: list[str] | None = None) -> pa.Table:
    """A Delta table's rows, or columns of them, read without Spark."""
    return DeltaTable(str(lake / name)).to_pyarrow_table(columns=columns)


Sums = dict[tuple[Any, ...], list[Any]]
SERIES = ["client_id", "metric", "temporality"]


def rollup_sums(lake: Path, name: str) -> Sums:
    """Per window, client id, metric and temporality: points, exact increase, refused points, as the rollup has them."""
    sums: Sums = defaultdict(lambda: [0, 0, 0])
    for row in table(lake, name, ["window_start", *SERIES, "points", "increase_int", "refused"]).to_pylist():
        entry = sums[row["window_start"], row["client_id"], row["metric"], row["temporality"]]
        entry[0] += row["points"]
        entry[1] += row["increase_int"] or 0
        entry[2] += row["refused"]
    return sums


def point_sums(lake: Path, seconds: int) -> Sums:
    """The same of metric_points, for windows of so many seconds; series that aren't whole numbers count 0."""
    sums: Sums = defaultdict(lambda: [0, 0, 0])
    for row in table(lake, "metric_points", ["time", *SERIES, "delta_int", "delta_status"]).to_pylist():
        start = datetime.fromtimestamp(int(row["time"].timestamp()) // seconds * seconds, row["time"].tzinfo)
        entry = sums[start, row["client_id"], row["metric"], row["temporality"]]
        entry[0] += 1
        entry[1] += row["delta_int"] or 0
        entry[2] += row["delta_status"] in ("late", "duplicate", "conflict", "too_late")
    return sums


def clients_of(lake: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The last row of each client in `client_changes`, but for the number of its step."""
    rows = sorted(table(lake, "client_changes").to_pylist(), key=lambda row: row["step"])
    return {(row["cluster_id"], row["client_instance_id"]): {**row, "step": 0} for row in rows}
