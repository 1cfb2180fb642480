"""Rows for the landing records that were gone before a batch could read them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kafka_telemetry_lake.pipelines.ingest.lost_records import LostRecords
from kafka_telemetry_lake.pipelines.ingest.offset_log import OffsetLog
from kafka_telemetry_lake.pipelines.ingest.sources import Offsets
from kafka_telemetry_lake.pipelines.lake.offset_guard import OffsetRange
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from tests.support.lake_tables import table

from .test_store_task import AT, JAVA, other, push, stored


class Cluster:
    def __init__(self, **earliest: dict[int, int]) -> None:
        self.offsets, self.asked = earliest, 0

    def earliest(self, topics: Iterable[str]) -> Offsets:
        self.asked += 1
        return {topic: self.offsets[topic] for topic in topics if topic in self.offsets}

    def cluster_id(self) -> str:
        return "cluster"


def checkpoint(folder: Path, start: dict[str, Any], *batches: dict[str, Any]) -> str:
    """As Spark leaves that of a query with a source for each topic."""
    (folder / "offsets").mkdir(parents=True)
    for number, (topic, own) in enumerate(start.items()):
        (folder / "sources" / str(number)).mkdir(parents=True)
        (folder / "sources" / str(number) / "0").write_bytes(b"\0v1\n" + json.dumps({topic: own}).encode())
    for number, offsets in enumerate(batches):
        lines = [json.dumps({topic: own}) if own else "-" for topic, own in offsets.items()]
        (folder / "offsets" / str(number)).write_text("\n".join(["v1", '{"conf":{"a":"1"}}', *lines]))
    return str(folder)


def files(lake: Path, *offsets: tuple[int, int]) -> list[DataFile]:
    return stored(lake, [push(*each) | {"topic": "t"} for each in offsets]) if offsets else []


def lost(lake: Path) -> list[tuple[Any, ...]]:
    names = ("cluster_id", "source", "topic", "partition", "first_offset", "last_offset", "records", "reason")
    rows = table(lake, "lost_records").to_pylist() if (lake / "lost_records").exists() else []
    return sorted(tuple(row[name] for name in names) for row in rows)


def records(tmp_path: Path, folder: str, cluster: Cluster, *before: OffsetRange) -> LostRecords:
    return LostRecords(str(tmp_path / "lake"), OffsetLog(folder), "kafka", cluster, before)


def test_a_batch_that_read_all_that_was_planned_asks_nobody(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "c", {"t": {"0": 0}, "s": {}}, {"t": {"0": 2}, "s": None}, {"t": {"0": 2, "1": 1}})
    cluster = Cluster(t={0: 9, 1: 9})
    run = records(tmp_path, folder, cluster)
    run.note("app", 0, files(tmp_path / "lake", (0, 0), (0, 1)))
    run.note("app", 1, files(tmp_path / "lake", (1, 0)))
    assert (cluster.asked, lost(tmp_path / "lake")) == (0, [])


def test_offsets_that_expired_before_they_were_read_are_rows_once(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "c", {"t": {"0": 0, "1": 0}}, {"t": {"0": 2, "1": 3}}, {"t": {"0": 9, "1": 5}})
    lake = tmp_path / "lake"
    # Partition 0 has lost 2 to 5. All of partition 1 expired, its first offset is beyond what was planned.
    for _ in range(2):  # the batch runs again after a crash
        records(tmp_path, folder, Cluster(t={0: 6, 1: 40})).note("app", 1, files(lake, (0, 6), (0, 7), (0, 8)))
    assert lost(lake) == [
        ("cluster", "kafka", "t", 0, 2, 5, 4, "expired"),
        ("cluster", "kafka", "t", 1, 3, 4, 2, "expired"),
    ]


@pytest.mark.parametrize(
    ("start", "batches", "earliest", "before", "read", "rows"),
    [
        (0, [{"0": 2}, {"0": 9}], {0: 8}, (), [(0, n) for n in range(5, 9)], [("t", 0, 2, 4, 3)]),
        (0, [{"0": 4}], {0: 0}, (), [(0, 0), (0, 3)], []),
        (0, [{"0": 1}, {"0": 1, "1": 4}], {0: 0, 1: 3}, (), [(1, 3)], [("t", 1, 0, 2, 3)]),
        (3, [{"0": 12}], {0: 5}, (OffsetRange("kafka", "t", 0, 0, 9),), [(0, 10), (0, 11)], []),
    ],
    ids=["read before it expired", "compacted, or markers of transactions", "a new partition", "stored before"],
)
def test_what_the_last_batch_has_lost(
    tmp_path: Path, start: int, batches: list[Any], earliest: dict[int, int], before: Any, read: Any, rows: list[Any]
) -> None:
    folder = checkpoint(tmp_path / "c", {"t": {"0": start}}, *({"t": each} for each in batches))
    job = records(tmp_path, folder, Cluster(t=earliest), *before)
    job.note("app", len(batches) - 1, files(tmp_path / "lake", *read))
    assert lost(tmp_path / "lake") == [("cluster", "kafka", *row, "expired") for row in rows]


def test_a_status_with_many_connections_is_one_record_that_was_read(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "c", {"t": {"0": 0}, "s": {}}, {"t": {"0": 5}}, {"t": {"0": 9}, "s": {"0": 1}})
    status = other("receiver_health", 0, broker_id=1, reported_at=AT, connections=[JAVA, JAVA])
    read = stored(tmp_path / "lake", [push(0, 7) | {"topic": "t"}, push(0, 8) | {"topic": "t"}, status])
    assert sum(file.rows for file in read) == 5  # as many as the batch planned
    records(tmp_path, folder, Cluster(t={0: 7}, s={0: 0})).note("app", 1, read)
    assert lost(tmp_path / "lake") == [("cluster", "kafka", "t", 0, 5, 6, 2, "expired")]


def test_a_new_checkpoint_that_begins_after_the_last_stored_push_has_skipped_the_rest(tmp_path: Path) -> None:
    before = (
        OffsetRange("kafka", "t", 0, 0, 9),
        OffsetRange("kafka", "t", 1, 0, 9),
        OffsetRange("files", "t", 2, 0, 9),
    )
    start = {"t": {"0": 40, "1": 15, "2": 30}}  # with latest
    folder = checkpoint(tmp_path / "c", start, start)
    records(tmp_path, folder, Cluster(t={0: 25, 1: 15, 2: 0}), *before).note("app", 0, [])
    assert lost(tmp_path / "lake") == [
        ("cluster", "kafka", "t", 0, 10, 24, 15, "expired"),
        ("cluster", "kafka", "t", 0, 25, 39, 15, "skipped"),
        ("cluster", "kafka", "t", 1, 10, 14, 5, "expired"),
    ]
