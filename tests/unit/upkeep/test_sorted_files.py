"""A day's files become sorted ones with the same rows, in the memory that the sort is given."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog, files_of
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.table_files import TableFiles
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS
from kafka_telemetry_lake.pipelines.upkeep import merging
from kafka_telemetry_lake.pipelines.upkeep.merging import sorted_files
from tests.support.lake_tables import table
from tests.support.ledger import Fleet
from tests.support.ledger_check import check
from tests.support.local_stream import LocalStream

pytestmark = pytest.mark.lake

BY = ("metric", "client_instance_id")


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
    made = sorted_files(METRIC_POINTS, Lake(str(stream.lake)), live, BY, target_bytes=8_000)
    log.rearrange(live, made)
    assert rows(stream.lake) == before
    assert check(stream.lake, fleet.ledger).lost == 0
    assert len(made) > 2
    found: list[tuple[Any, ...]] = []
    for file in made:
        assert 8_000 <= file.size < 32_000 or file is made[-1]
        parquet = pq.ParquetFile(stream.lake / "metric_points" / file.path)
        assert "buckets" not in parquet.schema_arrow.names  # no file had one
        order = [*BY, "landed_at", "partition", "offset"]
        found += [tuple(row.values()) for row in parquet.read(order).select(order).to_pylist()]
        metric = parquet.schema_arrow.names.index("metric")
        groups = [parquet.metadata.row_group(number).column(metric) for number in range(parquet.num_row_groups)]
        assert all(group.is_stats_set for group in groups), "readers leave out row groups of other metrics"
    assert found == sorted(found)
    assert len(found) == len(before)


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
    (made,) = sorted_files(METRIC_POINTS, Lake(str(stream.lake)), live, BY, 1 << 30, memory="160MB")
    assert made.rows == 2 * many.num_rows + own.num_rows
    monkeypatch.setattr(merging, "SORT_DISK", "0MB")
    with pytest.raises(duckdb.OutOfMemoryException):
        sorted_files(METRIC_POINTS, Lake(str(stream.lake)), live, BY, 1 << 30, memory="160MB")
