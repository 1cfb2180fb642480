"""What a loss of power may not take: files are on the disk before anything names them."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from kafka_telemetry_lake.pipelines.ingest.offset_log import drop_torn_entries, entries
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.durable import read_json, write_json
from kafka_telemetry_lake.pipelines.lake.table_files import TableFiles
from kafka_telemetry_lake.pipelines.lake.transactions import append_once
from kafka_telemetry_lake.pipelines.state.chain import Chain, ShardFiles
from kafka_telemetry_lake.pipelines.tables.lost_records import LOST_RECORDS
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.udfs.conversion.shard import process
from kafka_telemetry_lake.udfs.conversion.state import ShardState
from kafka_telemetry_lake.udfs.rows import PUSHES_IN
from tests.unit.ingest.test_store_task import push


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files and folders that were written to the disk, in order."""
    names: list[str] = []

    def fsync(descriptor: int) -> None:
        names.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(os, "fsync", fsync)
    return names


def test_rows_are_on_the_disk_before_their_task_names_the_file(tmp_path: Path, synced: list[str]) -> None:
    files = TableFiles(PUSHES, str(tmp_path))
    files.write(pa.Table.from_pylist([push(0, 1)], PUSHES.schema))
    assert synced == []
    (file,) = files.close()
    assert synced[0] == Path(file.path).name
    assert set(synced[1:]) == {"landed_date=2026-11-21", "pushes"}  # their names


def test_a_commit_is_on_the_disk_when_it_returns(tmp_path: Path, synced: list[str]) -> None:
    PUSHES.create(str(tmp_path))
    log = TableLog(PUSHES, str(tmp_path))
    for number in range(1, 3):
        assert log.commit([], "app", number, {"also": number})
        content, *names = synced
        assert content.startswith("_commit_")  # before the commit has its name
        assert names == [f"{number:020d}.json", "_delta_log"]
        synced.clear()
    assert not log.commit([], "app", 2, {"also": 2})


def test_a_checkpoint_that_a_commit_of_delta_rs_makes_is_on_the_disk(tmp_path: Path, synced: list[str]) -> None:
    delta = LOST_RECORDS.create(str(tmp_path))
    delta.alter.set_table_properties({"delta.checkpointInterval": "3"})
    append_once(LOST_RECORDS, delta, LOST_RECORDS.schema.empty_table(), "app", 7)
    assert f"{2:020d}.json" in synced
    assert f"{2:020d}.checkpoint.parquet" in synced
    assert "_last_checkpoint" in synced


def test_a_note_is_on_the_disk_before_it_replaces_the_one_before(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    filesystem = pafs.LocalFileSystem()
    path = f"{tmp_path}/note.json"
    write_json(filesystem, path, {"a": 1}, durable=False)
    assert synced == []
    write_json(filesystem, path, {"a": 2})
    assert synced.index("note.json.tmp") < synced.index("note.json")
    assert synced[synced.index("note.json") + 1] == tmp_path.name  # the new name
    assert read_json(filesystem, path) == {"a": 2}


def test_a_state_is_on_the_disk_before_a_manifest_names_it(tmp_path: Path, synced: list[str]) -> None:
    _, state = process(pa.Table.from_pylist([push(0, 1)], PUSHES_IN), ShardState.empty())
    chain = ShardFiles(str(tmp_path), 0).write(Chain(), state, 4)
    assert synced[0] == chain.names[-1]


def checkpoint(folder: Path, begun: int, done: int) -> None:
    for log, last, line in (("offsets", begun, '{"t":{"0":5}}'), ("commits", done, "")):
        (folder / log).mkdir(parents=True)
        for number in range(last + 1):
            (folder / log / str(number)).write_text(f'v1\n{{"nextBatchWatermarkMs":0}}\n{line}'.rstrip("\n"))
            (folder / log / f".{number}.crc").write_bytes(b"crc")


def left(folder: Path) -> list[list[str]]:
    return [sorted(path.name for path in (folder / log).iterdir()) for log in ("offsets", "commits")]


@pytest.mark.parametrize(
    ("begun", "name", "torn", "commits"),
    [
        (1, "commits/1", b"", [".0.crc", "0"]),
        (1, "commits/1", b"\0" * 40, [".0.crc", "0"]),
        (1, "commits/1", b'v1\n{"nextBatch', [".0.crc", "0"]),
        (2, "offsets/.2.crc", b"", [".0.crc", ".1.crc", "0", "1"]),
    ],
)
def test_an_entry_that_is_torn_is_dropped_and_its_batch_runs_again(
    tmp_path: Path, begun: int, name: str, torn: bytes, commits: list[str]
) -> None:
    checkpoint(tmp_path / "landing", begun, done=1)
    (tmp_path / "landing" / name).write_bytes(torn)
    drop_torn_entries(str(tmp_path))
    assert left(tmp_path / "landing") == [[".0.crc", ".1.crc", "0", "1"], commits]


def test_whole_entries_stay_with_and_without_a_checksum(tmp_path: Path) -> None:
    checkpoint(tmp_path / "landing", begun=1, done=0)
    (tmp_path / "landing" / "offsets" / ".1.crc").unlink()
    (tmp_path / "landing" / "offsets" / "1").write_text('v1\n{"batchWatermarkMs":0}\n-\n{}')
    before = left(tmp_path / "landing")
    drop_torn_entries(str(tmp_path))
    assert left(tmp_path / "landing") == before


def test_a_batch_begins_when_the_end_of_the_one_before_is_on_the_disk() -> None:
    assert entries("/c", 3) == ["/c/offsets/3", "/c/offsets/.3.crc", "/c/commits/2", "/c/commits/.2.crc"]
