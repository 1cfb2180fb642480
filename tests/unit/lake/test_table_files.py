"""Files that tasks write: their rows are those given, and their columns are encoded as decided."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_telemetry_lake.pipelines.lake.table_files import GATHERED_BYTES, GatheredTableFiles, TableFiles
from kafka_telemetry_lake.pipelines.query.duckdb_engine import connect
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS

LANDED = datetime(2026, 11, 23, 12, tzinfo=UTC)
LARGEST, LEAST = (1 << 63) - 1, -(1 << 63)
ROWS = {
    "landed_at": [LANDED] * 4,
    "offset": [LARGEST, LEAST, 0, 1],
    "series_id": [LEAST, LARGEST, 7, -7],
    "count": [None, LARGEST, LEAST, None],
    "explicit_bounds": [[0.5, float("inf")], None, [], [0.5, 1.0]],
    "bucket_counts": [[LARGEST, LEAST, 0], None, [], [1, 2, 3]],
}


def test_numbers_near_each_other_are_stored_as_differences(tmp_path: Path) -> None:
    files = TableFiles(METRIC_POINTS, str(tmp_path))
    files.write(pa.table([ROWS.get(name, [None] * 4) for name in METRIC_POINTS.schema.names], METRIC_POINTS.schema))
    [file] = files.close()
    path = Path(METRIC_POINTS.uri(str(tmp_path))) / file.path
    written = pq.ParquetFile(path)
    assert written.read().to_pydict() == ROWS
    columns = (written.metadata.row_group(0).column(number) for number in range(len(ROWS)))
    encodings = {column.path_in_schema.partition(".")[0]: set(column.encodings) - {"RLE"} for column in columns}
    assert encodings == {
        "landed_at": {"PLAIN"},
        "offset": {"DELTA_BINARY_PACKED"},
        "series_id": {"PLAIN", "RLE_DICTIONARY"},
        "count": {"DELTA_BINARY_PACKED"},
        "explicit_bounds": {"PLAIN", "RLE_DICTIONARY"},
        "bucket_counts": {"DELTA_BINARY_PACKED"},
    }
    rows = connect(str(tmp_path)).read_parquet(str(path)).to_arrow_table()  # another reader than Arrow's
    assert rows.drop_columns(["landed_at"]).to_pydict() == {
        name: values for name, values in ROWS.items() if name != "landed_at"
    }


def some_points(first: int, rows: int, metric: str, **columns: list[object]) -> pa.Table:
    """Rows of points, whose text is dictionary-encoded as the operator has it."""
    schema = pa.schema(
        [field.with_type(pa.dictionary(pa.int32(), pa.string())) if field.name == "metric" else field
         for field in METRIC_POINTS.schema]
    )  # fmt: skip
    named = {"landed_at": [LANDED] * rows, "offset": list(range(first, first + rows)), "metric": [metric] * rows}
    values = [(named | columns).get(name, [None] * rows) for name in schema.names]
    return pa.table(values, METRIC_POINTS.schema).cast(schema)


def test_few_rows_are_written_together(tmp_path: Path) -> None:
    """As by a task of many shards: one row group, each text with one dictionary, whatever columns each of them has."""
    files = GatheredTableFiles(METRIC_POINTS, str(tmp_path))
    parts = [some_points(10 * shard, 10, f"metric.{shard % 3}") for shard in range(8)]
    parts[5] = some_points(50, 10, "metric.2", count=[7] * 10)
    for part in [*parts, parts[0].slice(0, 0)]:
        files.write(part)
    [file] = files.close()
    written = pq.ParquetFile(Path(METRIC_POINTS.uri(str(tmp_path))) / file.path)
    assert (written.metadata.num_row_groups, file.rows) == (1, 80)
    rows = written.read().to_pydict()
    assert rows["offset"] == list(range(80))
    assert rows["metric"] == [f"metric.{shard % 3}" for shard in range(8) for _ in range(10)]
    assert rows["count"] == [None] * 50 + [7] * 10 + [None] * 20
    text = written.metadata.row_group(0).column(written.schema_arrow.names.index("metric"))
    assert text.path_in_schema == "metric"
    assert text.has_dictionary_page
    assert set(text.encodings) == {"PLAIN", "RLE", "RLE_DICTIONARY"}
    assert text.total_uncompressed_size < 300  # with several dictionaries most rows would have their text: 922


def test_many_rows_do_not_wait(tmp_path: Path) -> None:
    files = GatheredTableFiles(METRIC_POINTS, str(tmp_path))
    many = some_points(0, 100_000, "metric")
    assert many.nbytes > GATHERED_BYTES
    for first in (0, 1):
        files.write(some_points(first, 1, "metric"))
    files.write(many)
    files.write(many)
    [file] = files.close()
    written = pq.ParquetFile(Path(METRIC_POINTS.uri(str(tmp_path))) / file.path)
    sizes = [written.metadata.row_group(number).num_rows for number in range(written.metadata.num_row_groups)]
    assert sizes == [100_002, 100_000]


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    files = GatheredTableFiles(METRIC_POINTS, str(tmp_path))
    files.write(some_points(0, 0, "metric"))
    assert files.close() == []
