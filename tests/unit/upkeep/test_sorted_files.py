"""A day's files become one sorted file with the same rows and few bytes, in the memory that the sort is given."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.ingest.row_order import with_one_dictionary
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog, files_of
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.table_files import TableFiles
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS
from kafka_telemetry_lake.pipelines.upkeep import merging
from kafka_telemetry_lake.pipelines.upkeep.merging import (
    BY_PUSH,
    CLUSTERED_BY,
    merged,
    sorted_file,
)
from tests.support.lake_tables import table
from tests.support.ledger import Fleet
from tests.support.ledger_check import check
from tests.support.local_stream import LocalStream

pytestmark = pytest.mark.lake

BY = CLUSTERED_BY["metric_points"]
AS_WRITTEN = pa.schema([merging._as_written(field) for field in METRIC_POINTS.schema])


def rows(lake: Path) -> list[str]:
    return sorted(repr(row) for row in table(lake, "metric_points").to_pylist())


def test_the_rows_are_sorted_and_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "BATCH_ROWS", 100)
    monkeypatch.setattr(merging, "ROWS_PER_GROUP", 100)
    stream, fleet = LocalStream(tmp_path), Fleet()
    for _ in range(4):
        stream.batch(fleet.round(pushes=5))
    odd = table(stream.lake, "metric_points").select(METRIC_POINTS.schema.names).slice(0, 3).cast(METRIC_POINTS.schema)
    values = pa.array([math.nan, -0.0, 1e-310], odd["value"].type)
    odd = odd.set_column(odd.column_names.index("value"), odd.schema.field("value"), values)
    written = TableFiles(METRIC_POINTS, str(stream.lake))
    written.write(odd)
    log = TableLog(METRIC_POINTS, str(stream.lake))
    log.commit(written.close(), "test", 0)
    before, live = rows(stream.lake), files_of(DeltaTable(str(stream.lake / "metric_points")))
    file = sorted_file(METRIC_POINTS, Lake(str(stream.lake)), live, BY)
    log.rearrange(live, [file])
    assert rows(stream.lake) == before
    assert check(stream.lake, fleet.ledger).lost == 0
    parquet = pq.ParquetFile(stream.lake / "metric_points" / file.path)
    assert "bucket_counts" not in parquet.schema_arrow.names  # no file had one
    order = [*BY, *BY_PUSH]
    found = [tuple(row.values()) for row in parquet.read(order).select(order).to_pylist()]
    places = [parquet.schema_arrow.names.index(name) for name in BY]
    groups = [parquet.metadata.row_group(number) for number in range(parquet.num_row_groups)]
    assert len(groups) > 2
    assert all(group.column(place).is_stats_set for group in groups for place in places)
    assert found == sorted(found)
    assert len(found) == len(before)


CLIENTS, SERIES, BATCHES, APPLICATIONS = 250, 50, 6, 10  # clients of a batch; each pushes once
FIRST = datetime(2026, 11, 20, 12, tzinfo=UTC)


@cache
def batch_of_points(number: int) -> pa.Table:
    """A batch as a task writes it: those of each kind of client in turn, series by series."""
    chosen = Random(number)
    clients = [(f"{chosen.getrandbits(128):032x}"[:22], client % APPLICATIONS) for client in range(CLIENTS)]
    rows = []
    for kind in range(2):
        own = [each for each in enumerate(clients) if each[1][1] % 2 == kind]
        for series in range(SERIES):
            for place, (instance, application) in own:
                landed = FIRST + timedelta(seconds=10 * number, milliseconds=40 * place)
                rows.append({
                    "source": "kafka", "topic": "telemetry", "partition": 0, "offset": number * CLIENTS + place,
                    "landed_at": landed, "time": landed - timedelta(milliseconds=300),
                    "client_instance_id": instance, "client_id": f"app-{application}",
                    "series_id": Random(kind * SERIES + series).getrandbits(62), "kind": "gauge",
                    "metric": f"metric.{kind}.{series}", "attributes": {"topic": f"t-{series % 9}"},
                    "value": series / 7,
                })  # fmt: skip
    return pa.Table.from_pylist(rows, METRIC_POINTS.schema)


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A lake with the batches, and its live files."""
    lake = tmp_path_factory.mktemp("batches")
    METRIC_POINTS.create(str(lake))
    log = TableLog(METRIC_POINTS, str(lake))
    for number in range(BATCHES):
        files = TableFiles(METRIC_POINTS, str(lake))
        files.write(with_one_dictionary(batch_of_points(number).cast(AS_WRITTEN)))
        log.commit(files.close(), "test", number)
    return lake, sorted(files_of(DeltaTable(str(lake / "metric_points"))), key=lambda file: file["min"]["landed_at"])


def test_a_past_day_takes_few_bytes(
    batches: tuple[Path, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a push has is in one row group: an id of 16 bytes, and 12 of times and an offset, 0.6 bytes for each point.

    Sorted by metric, each row group has those of all pushes: 2.0 bytes. A series is a run, which readers skip.
    """
    monkeypatch.setattr(merging, "BATCH_ROWS", 15_000)
    monkeypatch.setattr(merging, "ROWS_PER_GROUP", 15_000)
    points = BATCHES * CLIENTS * SERIES
    (folder, live), lake = batches, Lake(str(batches[0]))
    landed = sum(file["size_bytes"] for file in live) / points
    together, past = merged(METRIC_POINTS, lake, live), sorted_file(METRIC_POINTS, lake, live, BY)
    assert past.rows == together.rows == points
    assert landed < 1
    assert together.size / points < 1.2 * landed
    assert past.size / points < 1.2
    metrics = pq.ParquetFile(folder / "metric_points" / past.path).read(["metric"])["metric"].to_pylist()
    assert sum(a != b for a, b in itertools.pairwise(metrics)) < points / 20


def test_a_row_group_names_its_clients(
    batches: tuple[Path, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query for one client leaves out row groups by their filters of ids, without the name of its application."""
    monkeypatch.setattr(merging, "BATCH_ROWS", 5_000)
    monkeypatch.setattr(merging, "ROWS_PER_GROUP", 5_000)
    lake, live = batches
    path = lake / "metric_points" / sorted_file(METRIC_POINTS, Lake(str(lake)), live, BY).path
    instance = batch_of_points(3)["client_instance_id"][77].as_py()
    (found,) = (
        duckdb.connect()
        .execute(
            f"SELECT count(*), sum(CASE WHEN bloom_filter_excludes THEN 0 ELSE 1 END) "
            f"FROM parquet_bloom_probe('{path}', 'client_instance_id', '{instance}')"
        )
        .fetchall()
    )
    assert found[0] == 15
    assert found[1] <= 3  # a client's points are in one or two; one filter in a hundred errs
    assert duckdb.connect().execute(
        f"SELECT count(*) FROM '{path}' WHERE client_instance_id = '{instance}'"
    ).fetchall() == [(SERIES,)]


def test_points_without_a_client_id_are_sorted_by_client(tmp_path: Path) -> None:
    """A column that is NULL in all rows is in no file."""
    METRIC_POINTS.create(str(tmp_path))
    rows = batch_of_points(0).slice(0, 40)
    for name in ("client_id", "attributes"):
        rows = rows.set_column(rows.column_names.index(name), name, pa.nulls(40, rows.schema.field(name).type))
    files = TableFiles(METRIC_POINTS, str(tmp_path))
    files.write(rows)
    TableLog(METRIC_POINTS, str(tmp_path)).commit(files.close(), "test", 0)
    live = files_of(DeltaTable(str(tmp_path / "metric_points")))
    file = sorted_file(METRIC_POINTS, Lake(str(tmp_path)), live, BY)
    read = pq.ParquetFile(tmp_path / "metric_points" / file.path).read()
    assert set(rows.column_names).difference(read.column_names) >= {"client_id", "attributes"}
    assert read["client_instance_id"].to_pylist() == sorted(rows["client_instance_id"].to_pylist())


@pytest.mark.slow
def test_more_rows_than_fit_are_sorted_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = LocalStream(tmp_path)
    stream.batch(Fleet().round(pushes=5))
    own = table(stream.lake, "metric_points").select(METRIC_POINTS.schema.names).cast(METRIC_POINTS.schema)
    many = pa.concat_tables([own] * (150_000 // own.num_rows)).combine_chunks()
    for number in range(2):
        files = TableFiles(METRIC_POINTS, str(stream.lake))
        files.write(many)
        TableLog(METRIC_POINTS, str(stream.lake)).commit(files.close(), "test", number)
    live = files_of(DeltaTable(str(stream.lake / "metric_points")))
    made = sorted_file(METRIC_POINTS, Lake(str(stream.lake)), live, BY, memory="100MB")
    assert made.rows == 2 * many.num_rows + own.num_rows
    monkeypatch.setattr(merging, "SORT_DISK", "0MB")
    with pytest.raises(duckdb.OutOfMemoryException):
        sorted_file(METRIC_POINTS, Lake(str(stream.lake)), live, BY, memory="100MB")
