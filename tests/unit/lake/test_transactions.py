"""What an application has committed to a table is not committed again."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from kafka_telemetry_lake.pipelines.lake.transactions import append_once, has_committed, transaction
from kafka_telemetry_lake.pipelines.tables.table import Table
from kafka_telemetry_lake.udfs.rows import TIMESTAMP

EVENTS = Table("events", "For this test.", pa.schema([("seen_at", TIMESTAMP), ("n", pa.int64())]), dated_by="seen_at")
LATE = datetime(2026, 11, 21, 23, 59, 59, 999_999, UTC)


def rows(*numbers: int) -> pa.Table:
    return pa.table({"seen_at": [LATE] * len(numbers), "n": numbers}, EVENTS.schema)


def numbers(lake: str) -> list[int]:
    return sorted(DeltaTable(EVENTS.uri(lake)).to_pyarrow_table()["n"].to_pylist())


def test_a_version_is_appended_once_by_each_application(tmp_path: Path) -> None:
    lake = str(tmp_path)
    delta = EVENTS.create(lake)
    assert append_once(EVENTS, delta, rows(1), "a", 5)
    assert not append_once(EVENTS, delta, rows(2), "a", 5)
    assert not append_once(EVENTS, EVENTS.create(lake), rows(3), "a", 4)
    assert append_once(EVENTS, delta, rows(4), "b", 4)
    assert append_once(EVENTS, delta, rows(5), "a", 6)
    assert numbers(lake) == [1, 4, 5]


def test_no_rows_say_that_a_version_is_done(tmp_path: Path) -> None:
    delta = EVENTS.create(str(tmp_path))
    assert not has_committed(delta, "a", 1)
    assert append_once(EVENTS, delta, EVENTS.schema.empty_table(), "a", 1)
    assert has_committed(EVENTS.create(str(tmp_path)), "a", 1)
    assert not has_committed(EVENTS.create(str(tmp_path)), "a", 2)


def test_the_partition_is_the_utc_date_of_the_column_that_the_table_names(tmp_path: Path) -> None:
    assert EVENTS.with_partition(rows(1))["landed_date"].to_pylist() == [date(2026, 11, 21)]
    plain = Table("plain", "For this test.", EVENTS.schema, by_day=False)
    assert plain.with_partition(rows(1)).column_names == ["seen_at", "n"]


def test_a_commit_of_any_kind_carries_the_transaction(tmp_path: Path) -> None:
    delta = EVENTS.create(str(tmp_path))
    write_deltalake(delta, EVENTS.with_partition(rows(1)), mode="overwrite", commit_properties=transaction({"a": 7}))
    assert not append_once(EVENTS, delta, rows(2), "a", 7)
    assert numbers(str(tmp_path)) == [1]
