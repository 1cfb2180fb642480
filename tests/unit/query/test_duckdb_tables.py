"""DuckDB reads a table's files itself, or through delta-rs: the same columns, types and values either way."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction

from kafka_telemetry_lake.pipelines.query import duckdb_tables
from kafka_telemetry_lake.pipelines.query.duckdb_tables import Times, dataset, native_select, register_table
from kafka_telemetry_lake.pipelines.query.formats import write_jsonl
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.query.query_errors import QueryError
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES

NOON = datetime(2026, 11, 21, 12, 0, 0, 123_457, UTC)


@pytest.fixture
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def alike(duck: duckdb.DuckDBPyConnection, table: DeltaTable) -> str:
    """The SELECT by DuckDB alone, after a look that delta-rs gives the same rows, of the same types."""
    select = native_select(duck, table)
    assert select is not None
    duck.register("of_delta", dataset(table))
    native, other = duck.sql(select), duck.sql("FROM of_delta")
    assert (native.columns, native.types) == (other.columns, other.types)
    # Rows as text: NaN is itself, and the order of a map counts.
    rows = "SELECT count(*), sum(hash(CAST(t AS VARCHAR))) FROM ({}) AS t"
    assert duck.sql(rows.format(select)).fetchall() == duck.sql(rows.format("FROM of_delta")).fetchall()
    return select


def both(duck: duckdb.DuckDBPyConnection, table: DeltaTable) -> list[dict[str, Any]]:
    """The rows, the same either way, in the order of all columns."""
    rows = duck.sql(f"FROM ({alike(duck, table)}) ORDER BY ALL").to_arrow_table()
    return list(rows.to_pylist())


def count(duck: duckdb.DuckDBPyConnection, table: DeltaTable) -> int:
    """Number of rows, the same either way."""
    return len(duck.sql(f"SELECT 1 FROM ({alike(duck, table)})"))


def tables_of(lake: Path) -> list[Path]:
    return sorted(folder.parent for folder in lake.glob("*/_delta_log"))


def add(table: Path, name: str, partition: dict[str, str | None]) -> DeltaTable:
    """The table with one file more, of one row."""
    added = AddAction(name, (table / name).stat().st_size, partition, 0, True, json.dumps({"numRecords": 1}))
    before = DeltaTable(str(table))
    before.create_write_transaction([added], "append", before.schema(), partition_by=list(partition))
    return DeltaTable(str(table))


def test_columns_that_came_later_are_null_before(duck: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"a": [1], "day": [date(2026, 11, 21)]}), partition_by=["day"])
    later = pa.table(
        {"a": [2], "day": [date(2026, 11, 22)], "m": pa.array([[("k", "v")]], pa.map_("string", "string"))}
    )
    write_deltalake(str(tmp_path), later, mode="append", schema_mode="merge")
    first, second = both(duck, DeltaTable(str(tmp_path)))
    assert first == {"a": 1, "day": date(2026, 11, 21), "m": None}
    assert second == {"a": 2, "day": date(2026, 11, 22), "m": [("k", "v")]}


def test_old_versions_of_files_do_not_count_and_vacuum_takes_nothing_away(
    duck: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    for number in range(3):
        write_deltalake(str(tmp_path), pa.table({"a": [number]}), mode="append")
    table = DeltaTable(str(tmp_path))
    table.delete("a = 1")
    table.optimize.compact()
    before = both(duck, table)
    assert [row["a"] for row in before] == [0, 2]
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert len(list(tmp_path.glob("*.parquet"))) == 1
    assert both(duck, DeltaTable(str(tmp_path))) == before


@pytest.mark.parametrize("folder", ["with a space", "it's é", "a*b?", "a#b%c"])
def test_paths_with_characters_of_globs_and_uris(duck: duckdb.DuckDBPyConnection, tmp_path: Path, folder: str) -> None:
    values = ["a b", "c/d%20é:", "x[1]*", None, "plain"]
    place = tmp_path / folder / "t"
    write_deltalake(str(place), pa.table({"p": values, "n": range(5)}), partition_by=["p"])
    namesake = tmp_path / folder.translate({ord("*"): "X", ord("?"): "Y"}) / "t"  # as a glob, the path fits it too
    if namesake != place:
        shutil.copytree(place, namesake)
    rows = both(duck, DeltaTable(str(place)))
    assert {row["n"]: row["p"] for row in rows} == dict(enumerate(values))


def test_a_partition_is_looked_up_without_the_other_files(duck: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    days = [date(2026, 11, day) for day in (20, 21, 22)]
    write_deltalake(str(tmp_path), pa.table({"day": days, "n": [20, 21, 22]}), partition_by=["day"])
    for file in [*tmp_path.glob("day=2026-11-20/*"), *tmp_path.glob("day=2026-11-22/*")]:
        file.write_bytes(b"damaged")
    register_table(duck, "t", DeltaTable(str(tmp_path)))
    assert duck.sql("SELECT n, day FROM t WHERE day = DATE '2026-11-21'").fetchall() == [(21, days[1])]


def test_a_table_without_files_has_its_columns(duck: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    assert both(duck, PUSHES.create(str(tmp_path))) == []


def test_timestamps_of_sparks_old_format(duck: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """INT96, without a time zone in the file."""
    rows = pa.table({"at": pa.array([NOON], pa.timestamp("us", "UTC"))})
    write_deltalake(str(tmp_path), rows.slice(0, 0))
    pq.write_table(rows, tmp_path / "old.parquet", use_deprecated_int96_timestamps=True, store_schema=False)
    assert both(duck, add(tmp_path, "old.parquet", {})) == [{"at": NOON}]


def test_files_elsewhere_than_their_partition_says_are_read_by_delta_rs(
    duck: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """The log says what a partition's value is, not the folder."""
    write_deltalake(str(tmp_path), pa.table({"day": ["monday"], "n": [1]}), partition_by=["day"])
    pq.write_table(pa.table({"n": [2]}), tmp_path / "other.parquet")
    table = add(tmp_path, "other.parquet", {"day": "tuesday"})
    assert native_select(duck, table) is None
    register_table(duck, "t", table)
    assert duck.sql("SELECT day, n FROM t ORDER BY n").fetchall() == [("monday", 1), ("tuesday", 2)]


def test_a_lake_by_its_uri(tmp_path: Path) -> None:
    PUSHES.create(str(tmp_path))
    row = {"client_id": "orders", "landed_at": NOON, "landed_date": NOON.date()}
    write_deltalake(PUSHES.uri(str(tmp_path)), pa.Table.from_pylist([row], PUSHES.stored), mode="append")
    answer = run_query(tmp_path.as_uri(), "SELECT client_id, landed_at, landed_date FROM pushes")
    assert answer.read_all().to_pylist() == [row]
    with pytest.raises(QueryError, match=r"no lake at file:///no/such: create one with `telemetry-lake ingest"):
        run_query("file:///no/such", "SELECT * FROM pushes")


def test_files_that_went_away_or_are_damaged_are_reported(tmp_path: Path) -> None:
    PUSHES.create(str(tmp_path))
    rows = [{"client_id": f"c{number}", "landed_at": NOON, "landed_date": NOON.date()} for number in range(9)]
    write_deltalake(PUSHES.uri(str(tmp_path)), pa.Table.from_pylist(rows, PUSHES.stored), mode="append")
    (file,) = (tmp_path / "pushes").rglob("*.parquet")
    content = file.read_bytes()
    file.write_bytes(b"PAR1" + b"\xff" * 400 + content[404:])
    with pytest.raises(QueryError):
        write_jsonl(run_query(str(tmp_path), "SELECT * FROM pushes"), io.StringIO())
    file.unlink()
    with pytest.raises(QueryError, match=r"No files found .*maintenance has just deleted it \(repeat the query\)"):
        run_query(str(tmp_path), "SELECT * FROM pushes")


@pytest.mark.parametrize("by_duckdb", [True, False])
@pytest.mark.parametrize("statistics", [True, False])
def test_rows_of_some_times(
    duck: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_duckdb: bool, statistics: bool
) -> None:
    """Statistics of Delta end at milliseconds: the greatest time of the first file is said to be 12:00:00.123."""
    path, hour = tmp_path / "t", timedelta(hours=1)
    settings = {} if statistics else {"delta.dataSkippingNumIndexedCols": "0"}
    for file in ([NOON - hour, NOON], [NOON + 2 * hour], [None, NOON + 3 * hour], [NOON + 9 * hour]):
        rows = pa.table({"at": pa.array(file, pa.timestamp("us", "UTC"))})
        write_deltalake(path, rows, mode="append", configuration=settings)
    spans = ((NOON, NOON + hour), (NOON + 3 * hour, NOON + 4 * hour))
    table = DeltaTable(path)
    if statistics:
        native = native_select(duck, table, Times("at", spans))
        assert native is not None
        assert native.count(".parquet") == 2
    if not by_duckdb:
        monkeypatch.setattr(duckdb_tables, "native_select", lambda *_: None)
    register_table(duck, "t", table, Times("at", spans))
    duck.execute("SET TimeZone = 'UTC'")
    assert [row[0].astimezone(UTC) for row in duck.sql("FROM t ORDER BY ALL").fetchall()] == [NOON, NOON + 3 * hour]
