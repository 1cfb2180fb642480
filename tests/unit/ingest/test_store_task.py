"""The files that a micro-batch's pushes are stored in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkRuntimeError

from kafka_telemetry_lake.pipelines.ingest import store_task
from kafka_telemetry_lake.pipelines.ingest.operator_task import DEATHS, ShardTask
from kafka_telemetry_lake.pipelines.ingest.push_files import SLICE_BYTES, PushFiles
from kafka_telemetry_lake.pipelines.ingest.store_task import StoreTask, of_few_pushes, store
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from kafka_telemetry_lake.pipelines.tables.operator import (
    BROKER_CONNECTIONS,
    PUSHES,
    QUARANTINE,
    QUOTA_SAMPLES,
    RECEIVER_HEALTH,
)
from kafka_telemetry_lake.udfs.rows import PUSHES_IN
from tests.support.landed import as_landed
from tests.support.local_stream import SHARDS, run_tasks

SAMPLE = pa.struct(
    [
        *QUOTA_SAMPLES.schema,
        *(pa.field(name, QUARANTINE.schema.field(name).type) for name in ("reason", "detail", "scope", "payload")),
    ]
)
ENTRY = pa.struct([BROKER_CONNECTIONS.schema.field(number) for number in range(-4, 0)])
STATUS = pa.struct([*RECEIVER_HEALTH.schema, pa.field("connections", pa.list_(ENTRY))])
COLUMNS = pa.schema(
    [
        *PUSHES.schema,
        pa.field("receiver_health", STATUS),
        pa.field("quota_sample", SAMPLE),
    ]
)
AT = datetime(2026, 11, 21, 23, 59, 58, tzinfo=UTC)
JAVA = {"listener": "L", "client_software_name": "apache-kafka-java", "client_software_version": "4.3.1",
        "connections": 4}  # fmt: skip


def push(partition: int, offset: int, size: int = 10, seconds: int = 0) -> dict[str, object]:
    return {
        "source": "kafka", "topic": "client-telemetry", "partition": partition, "offset": offset,
        "landed_at": AT + timedelta(seconds=seconds), "client_instance_id": f"{offset:022d}", "client_id": "app",
        "payload": bytes([offset % 256]) * size, "payload_bytes": size, "terminating": False,
    }  # fmt: skip


def stored(folder: Path, *batches: list[dict[str, object]]) -> list[DataFile]:
    task = StoreTask(str(folder))
    (result,) = task(landed(rows) for rows in batches)
    return [DataFile.from_json(text) for text in result["file"].to_pylist()]


def landed(rows: list[dict[str, object]]) -> pa.RecordBatch:
    table = as_landed(pa.Table.from_pylist(rows, COLUMNS))
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], schema=table.schema)


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
    read = pa.concat_tables(PushFiles(str(tmp_path), [file.path for file in files]).slices())
    assert read.to_pylist() == pa.Table.from_pylist(rows, PUSHES_IN).to_pylist()


def test_payloads_that_are_alike_are_stored_once_although_they_are_apart(tmp_path: Path) -> None:
    """600 KB apart, which is within a page of a column and beyond what zstd's first level looks back."""
    payloads = [bytes(Random(number).randbytes(30_000)) for number in range(20)]
    rows = [push(0, offset) | {"payload": payloads[offset % 20]} for offset in range(30)]
    (file,) = stored(tmp_path, rows)
    assert 600_000 < file.size < 640_000


def test_payloads_of_a_client_id_are_stored_once_although_others_lie_between_them(tmp_path: Path) -> None:
    """60 applications push in turn, 1.8 MB of payloads: a page of 1 MB has few of each."""
    payloads = [bytes(Random(number).randbytes(30_000)) for number in range(60)]
    texts = [{"payload": payloads[offset % 60], "client_id": f"app-{offset % 60}"} for offset in range(240)]
    (file,) = stored(tmp_path, [push(0, offset) | text for offset, text in enumerate(texts)])
    assert 1_800_000 < file.size < 2_100_000  # in the order of landing: more than 7 MB
    (group,) = row_groups(tmp_path, file)
    assert group[:5] == [(0, 0), (0, 60), (0, 120), (0, 180), (0, 1)]
    read = pa.concat_tables(PushFiles(str(tmp_path), [file.path]).slices())
    assert read["offset"].to_pylist() == list(range(240))
    assert read["payload"].to_pylist() == [text["payload"] for text in texts]


def other(column: str, offset: int, **fields: object) -> dict[str, object]:
    at = {"source": "kafka", "topic": "other", "partition": 0, "offset": offset, "landed_at": AT}
    return {name: at[name] for name in ("source", "topic", "partition", "offset")} | {column: at | fields}


def test_statuses_and_samples_become_files_of_their_tables(tmp_path: Path) -> None:
    sound = {"reason": None, "detail": None, "scope": "quota_sample", "payload": b"{}"}
    bad = sound | {"reason": "INVALID_RECORD", "detail": "null value", "payload": None}
    first = [
        push(0, 1), push(0, 2),
        other("receiver_health", 7, received=5, dropped=[("full", 2)], problem=None, broker_id=1, reported_at=AT,
              connections=[JAVA, {"listener": "L", "connections": 0}]),
        other("quota_sample", 8, time=AT, quota_type="fetch", observed_rate=1.5, **sound),
        other("quota_sample", 9, quota_type="lunch", cluster_id="c", **bad),
    ]  # fmt: skip
    second = [
        other("receiver_health", 10, problem="not JSON"), push(0, 3),
        other("receiver_health", 11, broker_id=2, reported_at=AT, connections=[JAVA]),
        other("receiver_health", 12, broker_id=3, reported_at=AT, connections=[]),
    ]  # fmt: skip
    files = {file.table: file for file in stored(tmp_path, first, second)}
    assert {name: file.rows for name, file in files.items()} == {
        "pushes": 3, "receiver_health": 4, "broker_connections": 3, "quota_samples": 1, "quarantine": 1,
    }  # fmt: skip
    assert row_groups(tmp_path, files["pushes"]) == [[(0, 1), (0, 2), (0, 3)]]

    def rows(name: str) -> Any:
        return pq.ParquetFile(tmp_path / name / files[name].path).read().to_pylist()

    at = {"source": "kafka", "topic": "other", "partition": 0, "landed_at": AT}
    nothing = dict.fromkeys(("received", "dropped", "problem", "broker_id"))
    status = at | nothing | {"reported_at": AT}
    assert rows("receiver_health") == [
        status | {"offset": 7, "received": 5, "dropped": [("full", 2)], "broker_id": 1},
        status | {"offset": 10, "problem": "not JSON", "reported_at": None},
        status | {"offset": 11, "broker_id": 2},
        status | {"offset": 12, "broker_id": 3},
    ]
    assert rows("broker_connections") == [
        at | {"offset": 7, "broker_id": 1, "reported_at": AT} | JAVA,
        at | {"offset": 7, "broker_id": 1, "reported_at": AT, "listener": "L", "connections": 0}
        | dict.fromkeys(("client_software_name", "client_software_version")),
        at | {"offset": 11, "broker_id": 2, "reported_at": AT} | JAVA,
    ]  # fmt: skip
    assert rows("quota_samples") == [at | {"offset": 8, "time": AT, "quota_type": "fetch", "observed_rate": 1.5}]
    assert rows("quarantine") == [
        at | {"offset": 9, "cluster_id": "c", "reason": "INVALID_RECORD", "detail": "null value",
              "scope": "quota_sample"},
    ]  # fmt: skip


def test_a_batch_of_pushes_alone_needs_no_columns_of_other_records(tmp_path: Path) -> None:
    rows = [push(0, 1), push(1, 2)]
    (result,) = StoreTask(str(tmp_path))(as_landed(pa.Table.from_pylist(rows, PUSHES.schema)).to_batches())
    (file,) = [DataFile.from_json(text) for text in result["file"].to_pylist()]
    assert (file.table, row_groups(tmp_path, file)) == ("pushes", [[(0, 1)], [(1, 2)]])


def test_large_rejected_samples_are_written_as_they_come(tmp_path: Path) -> None:
    bad = {
        "reason": "INVALID_RECORD",
        "detail": "not JSON",
        "scope": "quota_sample",
        "payload": bytes(SLICE_BYTES // 2),
    }
    (file,) = stored(tmp_path, *[[other("quota_sample", offset, **bad)] for offset in range(5)])
    groups = pq.ParquetFile(tmp_path / "quarantine" / file.path).metadata
    assert [groups.row_group(number).num_rows for number in range(groups.num_row_groups)] == [2, 2, 1]


@pytest.fixture
def judge(tmp_path: Path) -> ShardTask:
    """Of batch 4, after states that don't exist."""
    (tmp_path / "state").mkdir()
    return ShardTask(str(tmp_path), 4, (), SHARDS, str(tmp_path / "state"))


def results(task: StoreTask, *rows: dict[str, object]) -> tuple[list[DataFile], list[dict[str, Any]]]:
    batches = list(task([landed(list(rows))]))
    given = [row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict")]
    files = [DataFile.from_json(row["file"]) for row in given if row["file"] is not None]
    return files, [row["judged"] for row in given if row["judged"] is not None]


def test_few_pushes_are_judged_by_the_task_that_stores_them(tmp_path: Path, judge: ShardTask) -> None:
    files, judged = results(StoreTask(str(tmp_path), judge), *(push(0, offset) for offset in range(5)))
    task = of_few_pushes(judge, files)
    assert task is not None
    assert (task.batch_id, task.paths) == (4, tuple(file.path for file in files))
    expected = list(run_tasks(task))
    assert [row["shard"] for row in judged] == [0, 1] == [row["shard"] for row in expected]
    assert [row["counts"] for row in judged] == [row["counts"] for row in expected]
    assert judged[-1]["counts"]["judged"] == 5
    outcomes = [DataFile.from_json(text) for row in judged for text in row["files"]]
    assert sum(file.rows for file in outcomes if file.table == "push_outcomes") == 5


def test_a_task_that_is_tried_again_only_stores(
    tmp_path: Path, judge: ShardTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_task, "was_tried_before", lambda: True)
    batches = list(StoreTask(str(tmp_path), judge)([landed([push(0, 1)])]))
    (file,), (failed,) = (batch.to_pylist() for batch in batches)
    assert (DataFile.from_json(file["file"]).rows, file["judged"], file["failed"]) == (1, None, None)
    assert failed == {"file": None, "judged": None, "failed": True}
    monkeypatch.setattr(store_task, "WORKER_BYTES", 100)
    batches = list(StoreTask(str(tmp_path), judge)([landed([push(0, 1)])]))
    assert [row["failed"] for batch in batches for row in batch.to_pylist()] == [None]  # they are many


def test_many_pushes_and_none_are_only_stored(
    tmp_path: Path, judge: ShardTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stored(tmp_path) == stored(tmp_path, []) == []
    files, judged = results(StoreTask(str(tmp_path), judge), other("receiver_health", 1))
    assert ([file.table for file in files], judged) == (["receiver_health"], [])
    one, _ = results(StoreTask(str(tmp_path)), push(0, 1))
    monkeypatch.setattr(store_task, "WORKER_BYTES", one[0].size)
    assert of_few_pushes(judge, one) is None
    monkeypatch.setattr(store_task, "WORKER_BYTES", one[0].size + 1)
    assert of_few_pushes(judge, one) is not None
    monkeypatch.setattr(store_task, "WORKER_BYTES", 100)
    files, judged = results(StoreTask(str(tmp_path), judge), push(0, 1))
    assert ([file.rows for file in files], judged) == ([1], [])


CORES = 4


class Rows:
    """Rows of a session without repeated attempts, in which a task that judges ends with `error`."""

    def __init__(self, folder: Path, error: str) -> None:
        self.folder, self.error = folder, error
        self.tasks = list[StoreTask]()
        self.partitions = list[int]()
        self.sparkSession = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=CORES))

    def coalesce(self, partitions: int) -> Rows:
        self.partitions.append(partitions)
        return self

    def mapInArrow(self, task: StoreTask, _: str) -> Rows:  # noqa: N802  # Spark's name
        self.tasks.append(task)
        return self

    def collect(self) -> list[dict[str, Any]]:
        task = self.tasks[-1]
        if task.judge is not None and not task.tried_before:
            raise PySparkRuntimeError(self.error)
        batches = task([landed([push(0, 1)])])
        return [row for batch in batches for row in batch.to_pylist()]


def test_pushes_that_end_the_process_are_stored_and_judged_later(tmp_path: Path, judge: ShardTask) -> None:
    rows = Rows(tmp_path, f"Job aborted: {DEATHS[0]} (crashed)")
    stored = store(rows, str(tmp_path), 1, judge)  # type: ignore[arg-type]  # a stand-in
    assert [task.tried_before for task in rows.tasks] == [False, True]
    assert ([file.rows for file in stored.files], stored.judged, stored.failed) == ([1], None, True)
    rows = Rows(tmp_path, "Job 3 cancelled part of cancelled job group")
    with pytest.raises(PySparkRuntimeError, match="cancelled"):
        store(rows, str(tmp_path), 1, judge)  # type: ignore[arg-type]  # a stand-in
    assert len(rows.tasks) == 1
    stored = store(rows, str(tmp_path), 1)  # type: ignore[arg-type]  # a stand-in
    assert (len(stored.files), stored.failed) == (1, False)


def test_landing_records_are_stored_by_as_many_tasks_as_they_are_worth(tmp_path: Path) -> None:
    rows = Rows(tmp_path, "")
    for workers in (1, 2, 11):
        store(rows, str(tmp_path), workers)  # type: ignore[arg-type]  # a stand-in
    assert rows.partitions == [1, 2, CORES]
