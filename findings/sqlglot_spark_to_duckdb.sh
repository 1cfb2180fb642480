#!/bin/bash
# sqlglot, Spark to DuckDB: these functions are translated to ones of the same name that answer otherwise, without a warning.
#
# Version: sqlglot 30.30.0, duckdb 2.0.0; Spark's answers are those of pyspark 4.0.5, session zone UTC
# Behaviour: transpile() gives SQL that runs and has another value: an index in a lambda counts from 1, not 0; a cast rounds
#   where Spark cuts off; a difference counts borders crossed, not full units; days of the week begin elsewhere; percentile()
#   doesn't interpolate; moments are those of a sample; a cast of a timestamp to a number is NULL; formats and $1 are taken
#   literally; position 0 isn't 1; of last() the "ignore NULL" is lost. Of exists() the lambda is lost, which can't be parsed.
# Right: the column of Spark.
# Output (2026-11-27):
#   transform(array(7, 8), (x, i) -> i): Spark [0, 1], DuckDB [1, 2]
#   filter(array(7, 8), (x, i) -> i > 0): Spark [8], DuckDB [7, 8]
#   CAST(2.5 AS BIGINT): Spark 2, DuckDB 3
#   CAST(timestamp'1970-01-01 00:00:09' AS BIGINT): Spark 9, DuckDB None
#   timestampdiff(HOUR, timestamp'2026-01-01 00:59:00', timestamp'2026-01-01 01:01:00'): Spark 0, DuckDB 1
#   dayofweek(date'2026-01-04'): Spark 1, DuckDB 0
#   weekday(date'2026-01-04'): Spark 6, DuckDB 0
#   percentile(x, 0.5) FROM VALUES (1), (2) AS t(x): Spark 1.5, DuckDB 1
#   skewness(x) FROM VALUES (1D), (2D), (10D) AS t(x): Spark 0.6746, DuckDB 1.6523
#   format_string('%d ms', 5): Spark '5 ms', DuckDB '%d ms'
#   date_format(timestamp'2026-01-01 00:00:00.123', 'SSS'): Spark '123', DuckDB 'SSS'
#   regexp_replace('ab', '(a)(b)', '$2$1'): Spark 'ba', DuckDB '$2$1'
#   substring('abc', 0, 2): Spark 'ab', DuckDB 'a'
#   last(x, true) FROM VALUES (1), (2), (NULL) AS t(x): Spark 2, DuckDB None
#   array_position(array(7), 8): Spark 0, DuckDB None
#   exists(array(7), x -> x > 1): Spark True, DuckDB ParserException
set -euo pipefail
script=$(realpath "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check sqlglot==30.30.0 duckdb==2.0.0
cat > ask.py <<'E'
import logging

import duckdb
import sqlglot

logging.disable(logging.CRITICAL)
OF_SPARK = {
    "transform(array(7, 8), (x, i) -> i)": [0, 1],
    "filter(array(7, 8), (x, i) -> i > 0)": [8],
    "CAST(2.5 AS BIGINT)": 2,
    "CAST(timestamp'1970-01-01 00:00:09' AS BIGINT)": 9,
    "timestampdiff(HOUR, timestamp'2026-01-01 00:59:00', timestamp'2026-01-01 01:01:00')": 0,
    "dayofweek(date'2026-01-04')": 1,
    "weekday(date'2026-01-04')": 6,
    "percentile(x, 0.5) FROM VALUES (1), (2) AS t(x)": 1.5,
    "skewness(x) FROM VALUES (1D), (2D), (10D) AS t(x)": 0.6746,
    "format_string('%d ms', 5)": "5 ms",
    "date_format(timestamp'2026-01-01 00:00:00.123', 'SSS')": "123",
    "regexp_replace('ab', '(a)(b)', '$2$1')": "ba",
    "substring('abc', 0, 2)": "ab",
    "last(x, true) FROM VALUES (1), (2), (NULL) AS t(x)": 2,
    "array_position(array(7), 8)": 0,
    "exists(array(7), x -> x > 1)": True,
}
connection = duckdb.connect()
connection.execute("SET TimeZone = 'UTC'")
for text, right in OF_SPARK.items():
    [sql] = sqlglot.transpile(f"SELECT {text}", read="spark", write="duckdb")
    try:
        [(found,)] = connection.execute(sql).fetchall()
        found = round(found, 4) if isinstance(found, float) else found
    except duckdb.Error as error:
        print(f"{text}: Spark {right!r}, DuckDB {type(error).__name__}")
    else:
        print(f"{text}: Spark {right!r}, DuckDB {found!r}")
E
venv/bin/python ask.py | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
