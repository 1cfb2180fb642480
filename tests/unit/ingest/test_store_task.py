"""The files that a micro-batch's pushes are stored in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_telemetry_lake.pipelines.ingest.push_files import SLICE_BYTES, PushFiles
from kafka_telemetry_lake.pipelines.ingest.store_task import StoreTask
from kafka_telemetry_lake.pipelines.lake.delta_log import DataFile
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.udfs.rows import PUSHES_IN

AT = datetime(2026, 11, 21, 23, 59, 58, tzinfo=UTC)


def push(partition: int, offset: int, size: int = 10, seconds: int = 0) -> dict[str, object]:
    return {
        "source": "kafka", "topic": "client-telemetry", "partition": partition, "offset": offset,
        "landed_at": AT + timedelta(seconds=seconds), "client_instance_id": f"{offset:022d}", "client_id": "app",
        "payload": bytes([offset % 256]) * size, "payload_bytes": size, "terminating": False,
    }  # fmt: skip


def stored(folder: Path, *batches: list[dict[str, object]]) -> list[DataFile]:
    task = StoreTask(str(folder))
    (result,) = task(pa.RecordBatch.from_pylist(rows, PUSHES.schema) for rows in batches)
    return [DataFile.from_json(text) for text in result["file"].to_pylist()]


def row_groups(folder: Path, file: DataFile) -> list[list[tuple[int, int]]]:
    read = pq.ParquetFile(folder / "pushes" / file.path)
    groups = [read.read_row_group(n, ["partition", "offset"]) for n in range(read.num_row_groups)]
    return [list(zip(group["partition"].to_pylist(), group["offset"].to_pylist(), strict=True)) for group in groups]


def test_a_row_group_has_the_pushes_of_one_landing_partition(tmp_path: Path) -> None:
    (file,) = stored(tmp_path, [push(0, 5), push(0, 6), push(2, 1)], [push(2, 2)], [push(3, 9)])
    assert row_groups(tmp_path, file) == [[(0, 5), (0, 6)], [(2, 1), (2, 2)], [(3, 9)]]
    assert (file.rows, file.landed_date) == (5, "2026-11-21")


def test_a_row_group_ends_at_the_bytes_of_a_slice(tmp_path: Path) -> None:
    large = SLICE_BYTES // 2
    batches = [[push(0, offset, large)] for offset in range(5)]
    (file,) = stored(tmp_path, *batches)
    assert [len(group) for group in row_groups(tmp_path, file)] == [2, 2, 1]


def test_every_landed_day_has_a_file_and_the_operator_reads_what_was_landed(tmp_path: Path) -> None:
    rows = [push(0, 1), push(0, 2, seconds=5) | {"client_id": None, "client_software_name": "kgo"}]
    files = stored(tmp_path, rows)
    assert [file.landed_date for file in files] == ["2026-11-21", "2026-11-22"]
    read = pa.concat_tables(PushFiles(str(tmp_path), [file.path for file in files]).slices(0, 1))
    assert read.to_pylist() == pa.Table.from_pylist(rows, PUSHES_IN).to_pylist()


def test_no_pushes_leave_no_file(tmp_path: Path) -> None:
    assert stored(tmp_path) == []
    assert stored(tmp_path, []) == []


def test_payloads_that_are_alike_are_stored_once_although_they_are_apart(tmp_path: Path) -> None:
    """600 KB apart, which is within a page of a column and beyond what zstd's first level looks back."""
    payloads = [bytes(Random(number).randbytes(30_000)) for number in range(20)]
    rows = [push(0, offset) | {"payload": payloads[offset % 20]} for offset in range(30)]
    (file,) = stored(tmp_path, rows)
    assert 600_000 < file.size < 640_000
