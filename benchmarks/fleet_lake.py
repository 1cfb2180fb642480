"""A lake of a synthetic fleet, written by the operator without Spark, for benchmarks that read lakes.

python -m benchmarks.fleet_lake --lake DIR --clients 10000 --pushes 100000
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.fleet import INSTANCES, Fleet, Landing
from kafka_telemetry_lake.pipelines.ingest.operator_task import ShardTask
from kafka_telemetry_lake.pipelines.ingest.push_files import table_paths
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from kafka_telemetry_lake.pipelines.tables.operator import OPERATOR_TABLES, PUSHES, TABLES
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE
from kafka_telemetry_lake.udfs.kernels.sharding import shards_of
from tests.support.landed import as_landed

SHARDS = 2
TEXTS = [field.name for field in PUSHES.schema if pa.types.is_string(field.type)]
NUMBERS = ("push_interval_ms", "broker_id", "record_version", "payload_bytes")


def build(
    lake: Path, clients: int, pushes: int, batch: int = 2000, interval_s: float = 300, instances: int = INSTANCES
) -> int:
    """Write pushes of a fleet up to now, in micro-batches as the job would; returns the number of points.

    Args:
        instances: of an application.
    """
    for table in TABLES:
        table.create(str(lake))
    logs = {table.name: TableLog(table, str(lake)) for table in OPERATOR_TABLES}
    first_ms = int(time.time() * 1000) - int(pushes / clients * interval_s * 1000)
    fleet = Fleet(clients, first_ms, interval_s, instances=instances)
    states: dict[int, tuple[str, ...]] = {}
    points = 0
    (lake / "_state").mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, pushes, batch)):
        landings = list(fleet.landings(start, min(start + batch, pushes)))
        points += sum(landing.points for landing in landings)
        task = ShardTask(
            str(lake), number, _land(lake, pushes_rows(landings, start, SHARDS)), SHARDS, str(lake / "_state"), states
        )
        files: list[DataFile] = []
        for row in (row for result in task([_shards()]) for row in result.to_pylist()):
            states[row["shard"]] = tuple(row["state"])
            files += [DataFile.from_json(text) for text in row["files"]]
        for name, log in logs.items():
            log.commit([file for file in files if file.table == name], "fleet", number)
    return points


def _land(lake: Path, rows: pa.Table) -> tuple[str, ...]:
    """Append to table `pushes`, with every column written as Spark does; returns the new files' paths."""
    table = DeltaTable(PUSHES.uri(str(lake)))
    before = {unquote(uri) for uri in table.file_uris()}
    write_deltalake(table, rows.append_column(LANDED_DATE, rows["landed_at"].cast(pa.date32())), mode="append")
    return tuple(table_paths(sorted({unquote(uri) for uri in table.file_uris()} - before)))


def _shards() -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(range(SHARDS))})


def pushes_rows(landings: list[Landing], start: int, shards: int) -> pa.Table:
    """Rows of table `pushes`, of one partition per shard. Offsets count from `start`."""
    ids = pa.array([landing.client_instance_id for landing in landings])
    rows = [
        _row(landing, start + index, int(shard))
        for index, (landing, shard) in enumerate(zip(landings, shards_of(ids, shards), strict=True))
    ]
    return pa.Table.from_pylist(sorted(rows, key=lambda row: (row["partition"], row["offset"])), schema=PUSHES.schema)


def landing_rows(pushes: pa.Table) -> pa.Table:
    """The same as the query of the landing topics hands them to `StoreTask`, none of another topic."""
    return as_landed(pushes)


def _row(landing: Landing, offset: int, partition: int) -> dict[str, Any]:
    headers = {name: value.decode() for name, value in landing.headers}
    texts = {name: headers[name] for name in TEXTS if name in headers}
    numbers = {name: int(headers[name]) for name in NUMBERS}
    at = landing.landed_ms * 1000
    return texts | numbers | {
        "source": "kafka", "topic": "client-telemetry", "partition": partition, "offset": offset, "landed_at": at,
        "received_at": at, "terminating": False, "payload": landing.payload,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", type=Path, required=True)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--pushes", type=int, default=100_000)
    args = parser.parse_args()
    print(f"points: {build(args.lake, args.clients, args.pushes)}")


if __name__ == "__main__":
    main()
