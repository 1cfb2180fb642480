"""The kernels by name, from SQL."""

from __future__ import annotations

import gzip
from pathlib import Path

from pyspark.sql import SparkSession

from kafka_telemetry_lake.pipelines.query.sql_functions import register
from tests.support.landing_records import captured, captured_index


def test_decompress_and_decode_from_sql(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    index = captured_index()[:300]
    good = [
        (number, bytes(value), truth["compression_type"])
        for number, (value, truth) in enumerate(zip(captured()["value"].to_pylist(), index, strict=False))
    ]
    rows: list[tuple[int, bytes | None, str | None]] = list(good)
    rows += [(1000, b"nonsense", "gzip"), (1001, gzip.compress(b"\xff\xff"), "gzip"), (1002, None, None)]
    spark.createDataFrame(rows, "n int, payload binary, codec string").createOrReplaceTempView("landed")
    found = {
        row["n"]: row
        for row in spark.sql("""
            SELECT n, raw IS NULL AS broken, length(raw) AS bytes, size(points) AS points,
                   filter(points, p -> p.kind = 'gauge' AND p.value IS NULL) AS nans,
                   sort_array(array_distinct(transform(points, p -> concat_ws('_', p.kind, p.temporality)))) AS kinds
            FROM (SELECT n, raw, telemetry_decode(raw) AS points
                  FROM (SELECT n, telemetry_decompress(payload, codec) AS raw FROM landed))""").collect()
    }
    for number, truth in enumerate(index):
        row = found[number]
        assert row["bytes"] == truth["decompressed_bytes"]
        assert row["points"] == truth["points"]
        assert row["kinds"] == sorted(truth["kinds"])
        assert len(row["nans"]) == truth["nan_points"]
    assert found[1000]["broken"]
    assert (found[1001]["broken"], found[1001]["points"]) == (False, None)
    assert found[1002]["points"] in (None, 0)


def test_a_point_from_sql_has_its_values(spark: SparkSession) -> None:
    register(spark)
    payload = bytes(captured()["value"][0].as_py())
    spark.createDataFrame([(payload,)], "payload binary").createOrReplaceTempView("one")
    row = spark.sql("SELECT inline(telemetry_decode(payload)) FROM one").collect()[1]
    assert row["metric"] == "org.apache.kafka.consumer.connection.creation.total"
    assert (row["kind"], row["temporality"], row["is_monotonic"]) == ("sum", "delta", True)
    assert (row["value"], row["value_int"]) == (0.0, 0)
    assert int(row["time_unix_nano"]) == 1795262781005777000
    assert int(row["start_time_unix_nano"]) == 1795262780115009000
    assert row["attributes"] == {}
