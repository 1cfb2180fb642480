"""The file of stored pushes that tasks look into: identities, each once, whatever becomes of the table's log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from kafka_telemetry_lake.pipelines.lake.errors import StateMissingError
from kafka_telemetry_lake.pipelines.lake.offset_guard import OffsetGuard, OffsetRange
from kafka_telemetry_lake.pipelines.lake.stored_pushes import KEYS, StoredOffsets
from tests.support.expired_logs import expire_logs
from tests.support.ledger import Fleet
from tests.support.local_stream import LocalStream

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def pushes(*places: tuple[int, int], day: int = 0) -> pa.Table:
    """Identities of pushes, by partition and offset."""
    rows = [
        {"source": "s", "cluster_id": None, "topic": "t", "partition": partition, "offset": offset,
         "landed_at": NOON + timedelta(days=day, seconds=offset)}
        for partition, offset in places
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, KEYS)


def test_it_has_each_push_once_by_partition_and_offset(tmp_path: Path) -> None:
    rows = pa.concat_tables([pushes((1, 5), (0, 7), (0, 3)), pushes((0, 3)), pushes((0, 3), day=1)])
    stored = StoredOffsets(f"{tmp_path}/points/stored.parquet").write(pads.dataset(rows))
    places = [
        (row["partition"], row["offset"]) for row in pq.read_table(tmp_path / "points/stored.parquet").to_pylist()
    ]
    assert places == [(0, 3), (0, 3), (0, 7), (1, 5)]
    found = stored.within(pushes((0, 1), (0, 3)))
    assert sorted(found.to_pylist(), key=str) == sorted(
        pushes((0, 3)).to_pylist() + pushes((0, 3), day=1).to_pylist(), key=str
    )
    assert stored.within(pushes((1, 6))).num_rows == 0
    stored.delete()
    stored.delete()
    assert not stored.exists()


def test_a_guard_writes_it_once_and_then_needs_no_version(tmp_path: Path) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet(clients=3)
    stream.batch(fleet.round())
    ranges = (OffsetRange("test", "client-telemetry", 0, 0, 1 << 40),)
    guard = OffsetGuard(str(stream.lake / "push_outcomes"), ranges, 1)
    checkpoint = str(tmp_path / "points")
    before = guard.stored_before(checkpoint)
    assert before is not None
    assert pq.read_metadata(tmp_path / "points" / StoredOffsets.NAME).num_rows == len(fleet.ledger.landed)
    stream.batch(fleet.round())
    expire_logs(stream.lake)
    assert guard.stored_before(checkpoint) == before
    assert pq.read_metadata(tmp_path / "points" / StoredOffsets.NAME).num_rows < len(fleet.ledger.landed)
    before.delete()
    with pytest.raises(StateMissingError, match=r"no longer has version 1, .* name a new folder with --checkpoints"):
        guard.stored_before(checkpoint)
    assert OffsetGuard(guard.table_uri, (), 1).stored_before(checkpoint) is None
