"""Files that tasks write: their rows are those given, and their columns are encoded as decided."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_telemetry_lake.pipelines.lake.delta_log import TableFiles
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
        "series_id": {"PLAIN"},
        "count": {"DELTA_BINARY_PACKED"},
        "explicit_bounds": {"PLAIN", "RLE_DICTIONARY"},
        "bucket_counts": {"DELTA_BINARY_PACKED"},
    }
    rows = connect(str(tmp_path)).read_parquet(str(path)).to_arrow_table()  # another reader than Arrow's
    assert rows.drop_columns(["landed_at"]).to_pydict() == {
        name: values for name, values in ROWS.items() if name != "landed_at"
    }
