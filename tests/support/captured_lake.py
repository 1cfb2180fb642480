"""A lake of the captured pushes, by the operator itself but without Spark, and with names that a page must not run."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from kafka_telemetry_lake.pipelines.ingest.operator_task import ShardTask
from kafka_telemetry_lake.pipelines.ingest.push_files import table_paths
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.moments import COMMIT_ORDER, MOMENT, READ, note_of
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES, PUSHES, TABLES
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE
from tests.support.landing_records import captured

TEXTS = [field.name for field in PUSHES.schema if pa.types.is_string(field.type)]
NUMBERS = ("push_interval_ms", "broker_id", "payload_bytes")
HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=1</script> [a](javascript:alert) $x$ :red[b]'
# A client id that was captured, and what it is called here.
RENAMED = {"java-consumer_none-delta": HOSTILE}


@cache
def _made() -> TemporaryDirectory[str]:
    folder = TemporaryDirectory(ignore_cleanup_errors=True)
    rows = [push_row(record) for record in captured().to_pylist()]
    write_lake(Path(folder.name) / "lake", pa.Table.from_pylist(rows, PUSHES.schema))
    return folder


def captured_lake(lake: Path) -> Path:
    """Make the lake of the captured pushes: a copy of the one that this process has made."""
    return Path(shutil.copytree(Path(_made().name) / "lake", lake))


def write_lake(lake: Path, pushes: pa.Table) -> Path:
    """Make a lake of one batch of pushes, rows of table `pushes`."""
    for table in TABLES:
        table.create(str(lake))
    if pushes.num_rows == 0:
        return lake
    stored = pushes.append_column(LANDED_DATE, pushes["landed_at"].cast(pa.date32()))
    write_deltalake(
        PUSHES.uri(str(lake)), stored.sort_by([("partition", "ascending"), ("offset", "ascending")]), mode="append"
    )
    uris = [unquote(uri) for uri in DeltaTable(PUSHES.uri(str(lake))).file_uris()]
    states = lake / "_state"
    states.mkdir()
    task = ShardTask(str(lake), 0, tuple(table_paths(uris)), 1, str(states))
    (result,) = task([pa.RecordBatch.from_pydict({"id": [0]})])
    files = [DataFile.from_json(text) for row in result.to_pylist() for text in row["files"]]
    versions = {PUSHES.name: DeltaTable(PUSHES.uri(str(lake))).version()}
    for table in COMMIT_ORDER:
        own, log = [file for file in files if file.table == table.name], TableLog(table, str(lake))
        also = {MOMENT: 1} | ({READ: versions[PUSHES.name]} if table is PUSH_OUTCOMES else {})
        note = note_of(1, versions) if table is PUSH_OUTCOMES else None
        log.commit(own, "captured", 0, also if own else None, note)
        versions[table.name] = log.version
    return lake


def push_row(record: dict[str, Any]) -> dict[str, Any]:
    """A row of table `pushes` of a landing record, as Spark's Kafka source has it."""
    headers = {header["key"]: header["value"].decode() for header in record["headers"]}
    key = {name: record[name] for name in ("topic", "partition", "offset")}
    columns = {name: headers[name] for name in TEXTS if name in headers} | {
        name: int(headers[name]) for name in NUMBERS if name in headers
    }
    columns["client_id"] = RENAMED.get(headers["client_id"], headers["client_id"])
    return key | columns | {
        "source": "files", "landed_at": record["timestamp"], "terminating": headers.get("terminating") == "true",
        "payload": record["value"],
    }  # fmt: skip
