"""Every view over what clients can make a lake hold at worst: no value of one client may cost the others a view.

Casts are as strict here as in Spark, whose ANSI mode fails on a number or a text that doesn't fit; read as plain Spark
SQL, DuckDB would be given TRY_CAST.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
import sqlglot

from kafka_telemetry_lake.pipelines.query.duckdb_engine import connect
from kafka_telemetry_lake.pipelines.query.views import views
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG

TIMES = (datetime(2026, 11, 21, 12, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC),
         datetime(2099, 12, 31, 23, 59, 59, 999000, UTC), None)  # fmt: skip
DOUBLES = (1.7e308, -1.7e308, 0.0, None)
TEXTS = ("a", "", "\x00\x1b[2J" + "9" * 400, None)
VERSIONS = ("99999999999999999999.1.1", "1.99999999999999.3", "librdkafka-2.99999999999.3", "-1.x.2")
VALUES = (1.7e308, -1.7e308, float("nan"), float("inf"), 0.0)
ROWS = 4


def value(kind: pa.DataType, n: int) -> Any:  # noqa: PLR0911  # one return for each kind of value
    if pa.types.is_timestamp(kind):
        return TIMES[n]
    if pa.types.is_date(kind):
        return None if (time := TIMES[n]) is None else time.date()
    if pa.types.is_boolean(kind):
        return (True, False, True, None)[n]
    if pa.types.is_integer(kind):
        most = 2 ** (kind.bit_width - 1) - 1
        return (most, -most - 1, 0, None)[n]
    if pa.types.is_floating(kind):
        return DOUBLES[n]
    if pa.types.is_string(kind):
        return TEXTS[n]
    if pa.types.is_map(kind):
        return None if n == ROWS - 1 else [(value(kind.key_type, n), value(kind.item_type, n))]
    if pa.types.is_list(kind):
        return None if n == ROWS - 1 else [value(kind.value_type, n)] * 2
    if pa.types.is_struct(kind):
        return {field.name: value(field.type, n) for field in kind}
    return (b"", b"\xff", b"a", None)[n]


def metrics() -> list[str]:
    """All metrics that a view names, whole or in part."""
    text = " ".join(view.select for view in views().values())
    named = {name.removeprefix("org.apache.kafka.") for name in re.findall(r"'%?\.?([a-z]+(?:\.[a-z]+)+)'", text)}
    return [prefix + name for name in sorted(named) for prefix in ("org.apache.kafka.", "org.apache.kafka.producer.")]


def rows(schema: pa.Schema) -> list[dict[str, Any]]:
    extreme = [{field.name: value(field.type, n) for field in schema} for n in range(ROWS)]
    if "client_software_version" in schema.names:
        extreme += [
            row | {"client_software_version": version, "client_software_name": name}
            for row in extreme[:ROWS]
            for version in VERSIONS
            for name in ("librdkafka", "apache-kafka-java")
        ]
    if "metric" in schema.names:
        doubles = [field.name for field in schema if field.type == pa.float64()]
        usual = {"value_count": 1, "points": 1, "attribute_keys": "", "attributes": [], "delta_status": "value"}
        usual = {name: each for name, each in usual.items() if name in schema.names}
        extreme += [
            extreme[0]
            | usual
            | {"metric": metric}
            | ({"kind": kind} if "kind" in schema.names else {})
            | dict.fromkeys(doubles, number)
            for metric in metrics()
            for number in VALUES
            for kind in ("sum", "gauge")
        ]
    return extreme


@pytest.mark.slow
def test_no_value_of_a_client_breaks_a_view() -> None:
    with connect() as connection:
        for name, schema in CATALOG.items():
            connection.register(name, pa.Table.from_pylist(rows(schema), schema))
        answered = 0
        for view in views().values():
            (strict,) = sqlglot.transpile(
                view.select.replace("explode_outer(", "explode("), read="databricks", write="duckdb", identify=True
            )
            connection.execute(f'CREATE TEMP VIEW "{view.name}" AS {strict}')
            answered += connection.sql(f'SELECT * FROM "{view.name}"').to_arrow_table().num_rows
        assert answered > 1000
        found = connection.sql("SELECT DISTINCT finding FROM findings WHERE evidence LIKE '%unknown%'").fetchall()
        assert ("failed_records",) in found
        assert (
            connection.sql("SELECT * FROM findings WHERE evidence IS NULL AND window_start IS NOT NULL").fetchall()
            == []
        )
