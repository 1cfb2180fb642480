"""The kernels as SQL functions for queries and notebooks: ``telemetry_decompress`` and ``telemetry_decode``.

The job doesn't use them: its operator works on Arrow columns, whereas these functions return one nested value per push.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import pandas_udf

from kafka_telemetry_lake.udfs.conversion.compression import decompress
from kafka_telemetry_lake.udfs.otlp.decode import decode
from kafka_telemetry_lake.udfs.otlp.decoded import Decoded, Kind, Temporality

POINT = (
    "struct<metric: string, attributes: map<string, string>, scope: string, kind: string, temporality: string, "
    "is_monotonic: boolean, start_time_unix_nano: decimal(20, 0), time_unix_nano: decimal(20, 0), flags: bigint, "
    "value: double, value_int: bigint>"
)


def register(spark: SparkSession) -> None:
    """Register the functions with a session.

    - ``telemetry_decompress(payload binary, compression_type string) -> binary``: NULL if it can't be decompressed.
    - ``telemetry_decode(payload binary) -> array<struct>``: the data points of an uncompressed MetricsData message
      (`POINT`); NULL if it isn't one. `value` is NULL for NaN, as in table `metric_points`, and for distributions
      (histograms, summaries), which are complete only in that table.
    """
    spark.udf.register("telemetry_decompress", pandas_udf(telemetry_decompress, "binary"))  # type: ignore[call-overload]  # the stubs know no iterators of tuples
    spark.udf.register("telemetry_decode", pandas_udf(telemetry_decode, f"array<{POINT}>"))  # type: ignore[call-overload]  # as above


def telemetry_decompress(batches: Iterator[tuple[pd.Series, pd.Series]]) -> Iterator[pd.Series]:
    """Vectorized ``udfs.conversion.compression.decompress``."""
    for payloads, compression_types in batches:
        result = decompress(pa.array(payloads, pa.binary()), pa.array(compression_types, pa.string()))
        yield pd.Series(result.data.to_pylist(), dtype=object)


def telemetry_decode(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    """Vectorized ``udfs.otlp.decode.decode``."""
    for payloads in batches:
        yield pd.Series(_points_by_payload(decode(pa.array(payloads, pa.binary()))), dtype=object)


def _points_by_payload(decoded: Decoded) -> list[list[dict[str, Any]] | None]:
    sets = [dict(pairs) for pairs in decoded.attribute_sets.to_pylist()]
    points = [
        {
            "metric": row["metric"],
            "attributes": sets[row["attributes"]],
            "scope": row["scope"],
            "kind": Kind(row["kind"]).name.lower(),
            "temporality": Temporality(row["temporality"]).name.lower() if row["temporality"] else None,
            "is_monotonic": row["is_monotonic"],
            "start_time_unix_nano": row["start_ns"],
            "time_unix_nano": row["time_ns"],
            "flags": row["flags"],
            "value": row["value"],
            "value_int": row["value_int"],
        }
        for row in decoded.points.to_pylist()
    ]
    result: list[list[dict[str, Any]] | None] = []
    first = 0
    for error, number in zip(*(decoded.payloads[name].to_pylist() for name in ("error", "points")), strict=True):
        result.append(points[first : first + number] if error is None else None)
        first += number
    return result
