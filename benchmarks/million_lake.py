"""A lake of a million client instances that come and go within an hour, for benchmarks that read lakes.

Each instance pushes once, with 100 data points or 10. The rows are those that the operator and the lifecycle make of
one push of each captured client (`benchmarks.fleet`), repeated under other names and times: minutes for 10^8 points.
A commit for each minute adds a file to every table, rollups too. Payloads are left out: no page reads them.

python -m benchmarks.million_lake --lake DIR --points 100000000
"""

from __future__ import annotations

import argparse
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from benchmarks.fleet import INSTANCES, PRINCIPALS, captured_templates, instance_id
from benchmarks.fleet_lake import build
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.table_files import TableFiles
from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import (
    CLIENT_EVENTS,
    METRIC_POINTS,
    METRIC_ROLLUPS_1H,
    METRIC_ROLLUPS_1M,
    PUSH_OUTCOMES,
    PUSHES,
    TABLES,
)
from kafka_telemetry_lake.pipelines.tables.table import Table

CLIENTS, MINUTES = 1_000_000, 60
APPLICATIONS = CLIENTS // INSTANCES
OF_INSTANCES = (PUSHES, METRIC_POINTS, PUSH_OUTCOMES, CLIENT_EVENTS, CLIENT_CHANGES)
ROLLUPS = {METRIC_ROLLUPS_1M: timedelta(minutes=1), METRIC_ROLLUPS_1H: timedelta(hours=1)}
SUMMED = (
    "points",
    "increase",
    "increase_int",
    "covered_s",
    "resets",
    "baselines",
    "refused",
    "value_count",
    "value_sum",
)
TEMPLATE = "_template"  # column with the number of the captured client that a row is of
# Metrics that the pages show, by which the points of a narrow push are chosen.
PRINCIPAL_NAMES = pa.array([f"User:team-{number}" for number in range(PRINCIPALS)])
SHOWN = ("record.send.total", "byte.total", "consumed.total", "latency.avg", "creation.total", "queue.time.avg",
         "records.lag.max", "rebalance.total", "throttle.time.max", "idle.ratio.avg")  # fmt: skip

Numbers = npt.NDArray[np.int64]


class Seed:
    """The rows of one table that the captured clients' second pushes make, in the order of the clients."""

    def __init__(self, rows: pa.Table) -> None:
        order = pc.sort_indices(rows[TEMPLATE])
        rows = rows.take(order)
        self.at = np.searchsorted(rows[TEMPLATE].to_numpy(), np.arange(len(captured_templates()) + 1))
        self.rows = pa.table({name: _encoded(rows[name]) for name in rows.column_names if name != TEMPLATE})

    def places(self, templates: Numbers) -> tuple[Numbers, Numbers]:
        """Row numbers of the rows of each of these templates, and the index of the template that each is for."""
        counts = self.at[templates + 1] - self.at[templates]
        of = np.repeat(np.arange(len(templates)), counts)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.at[templates][of] + within, of


def build_million(lake: Path, points: int, clients: int = CLIENTS, minutes: int = MINUTES) -> int:
    """Write the lake, with the newest push landing now; returns the number of points, about `points`."""
    narrow = points // clients < len(SHOWN) + 1
    seeds, landed_us = _seeds(narrow)
    for table in TABLES:
        table.create(str(lake))
    CLIENT_CHANGES.create(str(lake))
    logs = {table.name: TableLog(table, str(lake)) for table in (*OF_INSTANCES, *ROLLUPS)}
    first_us = (time.time_ns() // 1000) - minutes * 60_000_000
    written = 0
    for minute in range(minutes):
        numbers = np.arange(clients * minute // minutes, clients * (minute + 1) // minutes)
        at_us = first_us + numbers * (minutes * 60_000_000) // clients
        for table in OF_INSTANCES:
            rows = _repeated(seeds[table.name], numbers, at_us - landed_us)
            written += rows.num_rows if table is METRIC_POINTS else 0
            _commit(logs[table.name], table, str(lake), rows, minute)
        for table, window in ROLLUPS.items():
            rows = _summed(seeds[table.name], numbers, at_us, window // timedelta(microseconds=1))
            _commit(logs[table.name], table, str(lake), rows, minute)
    return written


def _commit(log: TableLog, table: Table, lake: str, rows: pa.Table, number: int) -> None:
    files = TableFiles(table, lake)
    files.write(rows)
    log.commit(files.close(), "million", number)


def _seeds(narrow: bool) -> tuple[dict[str, Seed], int]:
    """What each table gets of the captured clients' second pushes, and when these landed, in µs."""
    templates = captured_templates()
    count = len(templates)
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder) / "lake"
        build(lake, count, 2 * count, batch=count, instances=1)
        Lifecycle(str(lake)).catch_up()
        tables = {
            table.name: DeltaTable(table.uri(str(lake))).to_pyarrow_table(columns=table.schema.names)
            for table in (*OF_INSTANCES, *ROLLUPS)
        }
    half = pc.quantile(tables[PUSHES.name]["landed_at"].cast(pa.int64()), 0.5)[0].as_py()
    landed = int(half)
    names = pa.array([f"{template.client_id}-{number}" for number, template in enumerate(templates)])
    shown = None
    if narrow:
        points = tables[METRIC_POINTS.name]
        metrics = pc.unique(points["metric"]).to_pylist()
        shown = pa.array([metric for metric in metrics if metric.endswith(SHOWN)])
    seeds = {}
    for name, all_rows in tables.items():
        rows = all_rows
        if name not in (CLIENT_CHANGES.name, CLIENT_EVENTS.name):
            rows = rows.filter(pc.greater(rows["landed_at"].cast(pa.int64()), landed))
        if shown is not None and "metric" in rows.column_names:
            rows = rows.filter(pc.is_in(rows["metric"], shown))
        seeds[name] = Seed(rows.append_column(TEMPLATE, pc.index_in(rows["client_id"], names)))
    return seeds, landed


def _repeated(seed: Seed, numbers: Numbers, later_us: Numbers) -> pa.Table:
    """The seed's rows for each of these instances, under its names and so much later."""
    places, of = seed.places(numbers % APPLICATIONS % len(captured_templates()))
    rows = seed.rows.take(places)
    ids = pa.DictionaryArray.from_arrays(pa.array(of, pa.int32()), pa.array([instance_id(int(n)) for n in numbers]))
    replaced = {
        "client_instance_id": ids,
        "client_id": _client_ids(numbers % APPLICATIONS, of),
        "offset": numbers[of],
        "partition": (numbers % 2)[of].astype(np.int32),
        "principal": pa.DictionaryArray.from_arrays(pa.array((numbers % PRINCIPALS)[of], pa.int32()), PRINCIPAL_NAMES),
        "payload": pa.nulls(len(of), pa.binary()),
    }
    columns = {}
    for name in rows.column_names:
        column = rows[name]
        if name in replaced:
            column = pa.array(replaced[name])
        elif pa.types.is_timestamp(column.type):
            column = pc.add(column.cast(pa.int64()), pa.array(later_us[of])).cast(column.type)
        columns[name] = column
    return pa.table(columns)


def _summed(seed: Seed, numbers: Numbers, at_us: Numbers, window_us: int) -> pa.Table:
    """The seed's rollups for the client ids of these instances, by the window in which they pushed."""
    windows = at_us // window_us * window_us
    keys, counts = np.unique(np.stack([windows, numbers % APPLICATIONS]), axis=1, return_counts=True)
    starts, applications = keys
    places, of = seed.places(applications % len(captured_templates()))
    rows = seed.rows.take(places)
    times = pa.array(counts[of])
    columns = {}
    for name in rows.column_names:
        column = rows[name]
        if name in SUMMED:
            column = pc.multiply(column, times.cast(column.type))
        elif name == "client_id":
            column = _client_ids(applications, of)
        elif name == "window_start":
            column = pa.array(starts[of]).cast(column.type)
        elif name == "landed_at":
            column = pa.array(np.full(len(of), at_us.max())).cast(column.type)
        columns[name] = column
    return pa.table(columns)


def _client_ids(applications: Numbers, of: Numbers) -> pa.DictionaryArray:
    """The client ids of applications, repeated as `of` says: the names that a `Fleet` gives."""
    templates = captured_templates()
    names = [f"{templates[a % len(templates)].client_id}-{a}" for a in range(APPLICATIONS)]
    return pa.DictionaryArray.from_arrays(pa.array(applications[of], pa.int32()), pa.array(names))


def _encoded(column: pa.ChunkedArray) -> pa.Array:
    column = column.combine_chunks()
    return column.dictionary_encode() if pa.types.is_string(column.type) else column


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", type=Path, required=True)
    parser.add_argument("--points", type=int, default=100_000_000)
    args = parser.parse_args()
    print(f"points: {build_million(args.lake, args.points)}")


if __name__ == "__main__":
    main()
