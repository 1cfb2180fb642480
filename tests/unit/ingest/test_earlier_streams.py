"""Where the one query begins after the queries of earlier releases, and what it passes over."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from kafka_telemetry_lake.pipelines.ingest.earlier_streams import guard_folder, take_over
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES, QUARANTINE, QUOTA_SAMPLES, RECEIVER_HEALTH
from kafka_telemetry_lake.pipelines.tables.table import Table

AT = datetime(2026, 11, 21, tzinfo=UTC)


def checkpoint(folder: Path, *batches: dict[str, Any], done: int, notes: tuple[str, ...] = (".",)) -> None:
    """As Spark leaves one: the offsets of its batches, of which `done` are finished."""
    for name in ("offsets", "commits", *notes):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text('{"id":"query"}')
    for number, offsets in enumerate(batches):
        (folder / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(offsets)}')
        (folder / "offsets" / f".{number}.crc").write_bytes(b"crc")
    for number in range(done):
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    for note in notes:
        (folder / note / "offsets-before.json").write_text('{"version": 3, "ranges": []}')


def store(lake: Path, to: Table, topic: str, *offsets: tuple[int, int]) -> None:
    identity = {"source": "kafka", "topic": topic, "landed_at": AT, "landed_date": AT.date()}
    rows = [identity | {"partition": partition, "offset": offset} for partition, offset in offsets]
    write_deltalake(to.create(str(lake)), pa.Table.from_pylist(rows, to.stored), mode="append")


def noted(checkpoints: Path, table: Table) -> list[tuple[str, int, int, int]]:
    note = json.loads((Path(guard_folder(str(checkpoints), table)) / "offsets-before.json").read_text())
    return sorted((each["topic"], each["partition"], each["low"], each["high"]) for each in note["ranges"])


def test_each_stream_is_continued_after_its_last_finished_batch(tmp_path: Path) -> None:
    lake, old = tmp_path / "lake", tmp_path / "checkpoints"
    checkpoint(old / "pushes", {"t": {"0": 5, "1": 7}}, {"t": {"0": 9, "1": 7}}, done=1)
    checkpoint(old / "receiver_health", {"s": {"0": 3}}, done=1)
    quotas = (QUOTA_SAMPLES.name, QUARANTINE.name)
    checkpoint(old / "quota_samples", {"q": {"0": 10}}, {"q": {"0": 14, "1": 2}}, done=1, notes=quotas)
    store(lake, PUSHES, "t", (0, 4), (1, 6), (0, 5), (0, 8))  # the second batch was stored and not finished
    store(lake, RECEIVER_HEALTH, "s", (0, 0), (0, 2))
    store(lake, QUARANTINE, "q", (0, 9), (0, 13), (1, 0))  # stored before the batch's samples, which are not
    store(lake, QUARANTINE, "t", (0, 8))
    store(lake, QUOTA_SAMPLES, "q", (0, 8))
    assert take_over(str(lake), str(old)) == {"t": {0: 5, 1: 7}, "s": {0: 3}, "q": {0: 10}}
    assert noted(old, PUSHES) == [("t", 0, 5, 8)]
    assert noted(old, RECEIVER_HEALTH) == []
    assert noted(old, QUOTA_SAMPLES) == []
    assert noted(old, QUARANTINE) == [("q", 0, 13, 13), ("q", 1, 0, 0)]
    assert take_over(str(lake), str(old)) == {"t": {0: 5, 1: 7}, "s": {0: 3}, "q": {0: 10}}  # killed before it began
    (old / "landing" / "metadata").write_text('{"id":"new"}')  # and before Spark noted its first offsets
    assert take_over(str(lake), str(old)) == {"t": {0: 5, 1: 7}, "s": {0: 3}, "q": {0: 10}}
    checkpoint(old / "landing", {"t": {"0": 6}}, done=0)
    assert take_over(str(lake), str(old)) == {}


def test_what_is_read_already_is_not_looked_for_again(tmp_path: Path) -> None:
    """Each range that is looked for makes a batch a join with the table."""
    lake, old = tmp_path / "lake", tmp_path / "checkpoints"
    checkpoint(old / "pushes", {"t": {"0": 5, "1": 7}}, done=1)
    checkpoint(old / "quota_samples", {"q": {"0": 10}}, done=1, notes=(QUOTA_SAMPLES.name, QUARANTINE.name))
    ranges = [("t", 0, 0, 4), ("t", 0, 0, 5), ("t", 1, 0, 6), ("t", 2, 0, 3), ("other", 0, 0, 3)]
    note = {"version": 3, "ranges": [
        {"source": "kafka", "topic": topic, "partition": partition, "low": low, "high": high}
        for topic, partition, low, high in ranges
    ]}  # fmt: skip
    for folder in ("pushes", "quota_samples/quarantine"):
        (old / folder / "offsets-before.json").write_text(json.dumps(note))
    for each in (PUSHES, QUARANTINE):
        each.create(str(lake))
    take_over(str(lake), str(old))
    for each in (PUSHES, QUARANTINE):
        assert noted(old, each) == [("other", 0, 0, 3), ("t", 0, 0, 5), ("t", 2, 0, 3)]


def test_a_stream_that_finished_no_batch_is_continued_at_its_first_offset(tmp_path: Path) -> None:
    old = tmp_path / "checkpoints"
    checkpoint(old / "receiver_health", {"s": {"0": 90}}, done=0)
    (old / "receiver_health" / "sources" / "0").mkdir(parents=True)
    (old / "receiver_health" / "sources" / "0" / "0").write_bytes(b'\x00v1\n{"s":{"0":40}}')
    RECEIVER_HEALTH.create(str(tmp_path / "lake"))
    assert take_over(str(tmp_path / "lake"), str(old)) == {"s": {0: 40}}


def test_files_have_no_offsets_to_go_on_from(tmp_path: Path) -> None:
    old = tmp_path / "checkpoints"
    checkpoint(old / "pushes", {"logOffset": 0}, done=1)
    store(tmp_path / "lake", PUSHES, "t", (0, 4))
    assert take_over(str(tmp_path / "lake"), str(old)) == {}
    assert noted(old, PUSHES) == []


def test_a_new_lake_has_nothing_to_take_over(tmp_path: Path) -> None:
    assert take_over(str(tmp_path / "lake"), str(tmp_path / "checkpoints")) == {}
    assert not (tmp_path / "checkpoints").exists()
