"""What each format of ``telemetry-lake query`` prints: all columns under distinct names, rounded only for people."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.pipelines.query.formats import BINARY_FORMATS, TEXT_FORMATS, distinct, rounded
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.query.query_errors import QueryError

TWICE = "SELECT 1 AS a, 'x' AS b, 2 AS a, 3 AS A, 4 AS a_1 FROM range(2)"
NAMES = ["a", "b", "a_2", "A_3", "a_1"]
VALUES = [1, "x", 2, 3, 4]


def text(sql: str, form: str, lake: Path) -> str:
    out = io.StringIO()
    TEXT_FORMATS[form](run_query(str(lake), sql), out)
    return out.getvalue()


def arrow(sql: str, form: str, lake: Path) -> pa.Table:
    out = io.BytesIO()
    BINARY_FORMATS[form](run_query(str(lake), sql), out)
    content = pa.py_buffer(out.getvalue())
    return pq.read_table(content) if form == "parquet" else pa.ipc.open_stream(content).read_all()


def test_columns_of_one_name_are_all_there_in_every_format(tmp_path: Path) -> None:
    table, _, *rows = text(TWICE, "table", tmp_path).splitlines()
    assert (table.split(), [row.split() for row in rows]) == (NAMES, [list(map(str, VALUES))] * 2)
    lines = list(csv.reader(io.StringIO(text(TWICE, "csv", tmp_path))))
    assert lines == [NAMES, *[list(map(str, VALUES))] * 2]
    assert [json.loads(line) for line in text(TWICE, "jsonl", tmp_path).splitlines()] == [
        dict(zip(NAMES, VALUES, strict=True))
    ] * 2
    vertical = text(TWICE, "vertical", tmp_path).splitlines()
    assert [line.split() for line in vertical[1:6]] == [[n, str(v)] for n, v in zip(NAMES, VALUES, strict=True)]
    for form in BINARY_FORMATS:
        assert arrow(TWICE, form, tmp_path).to_pylist() == [dict(zip(NAMES, VALUES, strict=True))] * 2


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a", "a"], ["a", "a_1", "a_2"]),
        (["a", "a", "a_1", "a_1"], ["a", "a_2", "a_1", "a_1_1"]),
        (["A", "a"], ["A", "a_1"]),
        ([], []),
    ],
)
def test_names_that_are_distinct_stay(given: list[str], named: list[str]) -> None:
    assert distinct(given) == named


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.1 + 0.2, 0.3),
        (1234567.891, 1234568),
        (123456.789, 123457),
        (1234.56789, 1234.57),
        (0.000123456789, 0.000123457),
        (-2.0, -2),
        (0.0, 0),
        (1.5e300, 1.5e300),
        (2**62 + 1, 2**62 + 1),
        (True, True),
        (None, None),
        ({"p": 0.30000000000000004, "of": [1 / 3, "1.23456789"]}, {"p": 0.3, "of": [0.333333, "1.23456789"]}),
    ],
)
def test_floats_are_rounded_for_people_and_nothing_else(value: Any, shown: Any) -> None:
    assert rounded(value) == shown
    assert type(rounded(value)) is type(shown)


def test_only_people_get_rounded_values(tmp_path: Path) -> None:
    third = "SELECT 1/3 AS third, 4611686018427387905 AS big"
    assert text(third, "table", tmp_path).splitlines()[2].split() == ["0.333333", "4611686018427387905"]
    assert text(third, "vertical", tmp_path).splitlines() == [
        "--- row 1 ---", "third  0.333333", "big    4611686018427387905",
    ]  # fmt: skip
    assert text(third, "csv", tmp_path) == "third,big\n0.3333333333333333,4611686018427387905\n"
    assert json.loads(text(third, "jsonl", tmp_path)) == {"third": 1 / 3, "big": 2**62 + 1}
    assert arrow(third, "parquet", tmp_path).to_pylist() == [{"third": 1 / 3, "big": 2**62 + 1}]


def test_vertical_keeps_long_values_and_one_line_each(tmp_path: Path) -> None:
    out = text("SELECT repeat('x', 200) || chr(10) || chr(27) AS name, NULL AS nothing", "vertical", tmp_path)
    assert out == f"--- row 1 ---\nname     {'x' * 200} \\x1b\nnothing\n"


def test_values_that_cannot_be_converted_are_not_called_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match=r"^Could not convert string 'x17' to INT32"):
        text("SELECT CAST('x' || range AS INT) FROM range(17, 20)", "csv", tmp_path)


@pytest.mark.parametrize(
    ("form", "sql", "said"),
    [
        ("table", "SELECT 1 AS n", "1 row\n"),
        ("vertical", "FROM range(1234)", "1,234 rows\n"),
        ("table", "FROM range(0)", "0 rows\n"),
        ("csv", "FROM range(3)", ""),
        ("jsonl", "FROM range(3)", ""),
    ],
)
def test_rows_are_counted_for_people_beside_the_results(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str, sql: str, said: str
) -> None:
    assert run_command("query", ["--lake", str(tmp_path), "--format", form, sql]) == 0
    assert capsys.readouterr().err == said


# Each type of DuckDB that a query can result in, as JSON and people have it.
SHOWN: dict[str, Any] = {
    "INTERVAL '2 minutes 14.486 seconds'": "0:02:14.486",
    "INTERVAL '1 year 2 months 3 days 04:05:06.7'": "1 year 2 months 3 days 4:05:06.7",
    "INTERVAL '-14 months'": "-1 year -2 months",
    "-INTERVAL '90 minutes'": "-1:30:00",
    "INTERVAL '1 day' - INTERVAL '1 second'": "1 day -0:00:01",
    "TIMESTAMP '2026-01-02' - TIMESTAMP '2026-01-02'": "0:00:00",
    "TIME '12:34:56.789'": "12:34:56.789000",
    "TIME '12:34:56'": "12:34:56",
    "TIMETZ '12:34:56.789+02:30'": "12:34:56.789+02:30",
    "TIME_NS '12:34:56.789123456'": "12:34:56.789123456",
    "DATE '2026-01-01'": "2026-01-01",
    "DATE 'infinity'": "infinity",
    "DATE '-infinity'": "-infinity",
    "DATE '0044-03-15 (BC)'": "-0043-03-15",
    "DATE '0001-12-31 (BC)'": "0000-12-31",
    "DATE '12000-02-29'": "+12000-02-29",
    "TIMESTAMP '2026-01-01 00:00:00.5'": "2026-01-01T00:00:00.500000Z",
    "TIMESTAMPTZ '2026-01-01 00:00:00+02'": "2025-12-31T22:00:00Z",
    "TIMESTAMPTZ 'infinity'": "infinity",
    "TIMESTAMP '-infinity'": "-infinity",
    "TIMESTAMP_S 'infinity'": "infinity",
    "TIMESTAMP_MS '-infinity'": "-infinity",
    "TIMESTAMP_NS 'infinity'": "infinity",
    "TIMESTAMPTZ '12000-01-01 00:00:00.25+00'": "+12000-01-01T00:00:00.250000Z",
    "TIMESTAMP_NS '2026-01-01 00:00:00.123456789'": "2026-01-01T00:00:00.123456789Z",
    "TIMESTAMP_MS '1960-01-01 00:00:00.123'": "1960-01-01T00:00:00.123000Z",
    "170141183460469231731687303715884105727::HUGEINT": 2**127 - 1,
    "340282366920938463463374607431768211455::UHUGEINT": str(2**128 - 1),
    "123456789012345678901234567890123456789012345::BIGNUM": "123456789012345678901234567890123456789012345",
    "1.25::DECIMAL(10, 4)": 1.25,
    "3::DECIMAL(10, 0)": 3,
    "12345678901234567890.1234::DECIMAL(38, 4)": "12345678901234567890.1234",
    "UUID '47183823-2574-4bfd-b411-99ed177d3e43'": "47183823-2574-4bfd-b411-99ed177d3e43",
    "'\\xAA\\x0B'::BLOB": "aa0b",
    "'10101'::BIT": "10101",
    "'a'::ENUM('a', 'b')": "a",
    "42::VARIANT": "42",
    "'POINT(1 2)'::GEOMETRY": "POINT (1 2)",
    """'{"a": [1.5, null]}'::JSON""": '{"a": [1.5, null]}',
    "'NaN'::DOUBLE": None,
    "'-inf'::FLOAT": None,
    "NULL": None,
    "true": True,
    "union_value(t := INTERVAL '1 day')": "1 day",
    "union_value(b := '1'::BIT)": "1",
    "{'i': INTERVAL '1 day', 'size': ['101'::BIT], 'n': 'NaN'::DOUBLE}": {"i": "1 day", "size": ["101"], "n": None},
    "{'of': {'a \"b': 1::UHUGEINT}}": {"of": {'a "b': "1"}},
    "row(1, INTERVAL '1 day')": {"element1": 1, "element2": "1 day"},
    "[TIMESTAMP 'infinity', NULL]": ["infinity", None],
    "[[TIMETZ '12:00:00+01']]": [["12:00:00+01"]],
    "[1, NULL, 3]::INT[3]": [1, None, 3],
    "['1'::BIT, '0']::BIT[2]": ["1", "0"],
    "[]": [],
    "MAP {}": {},
    "MAP {TIMESTAMP '2026-01-01': INTERVAL '1 second'}": {"2026-01-01T00:00:00Z": "0:00:01"},
    "MAP {'\\xAA'::BLOB: 12::BIGNUM}": {"aa": "12"},
    "MAP {[1, 2]: true}": {"[1, 2]": True},
    "MAP {true: 'NaN'::DOUBLE}": {"true": None},
    "MAP {'NaN'::DOUBLE: 1, 0.5::DOUBLE: 2}": {"nan": 1, "0.5": 2},
    "MAP {DATE 'infinity': [{'d': DATE '-infinity'}]}": {"infinity": [{"d": "-infinity"}]},
}


def test_every_type_has_a_presentation(tmp_path: Path) -> None:
    columns = ", ".join(f"{expression} AS c{number}" for number, expression in enumerate(SHOWN))
    # The second row is one of a slice, the third NULL: offsets and NULLs of nested columns count.
    nulls = ", ".join(f"CASE WHEN range < 2 THEN c{number} END AS c{number}" for number in range(len(SHOWN)))
    sql = f"SELECT {nulls} FROM (SELECT {columns}), range(3) ORDER BY range"
    lines = [json.loads(line) for line in text(sql, "jsonl", tmp_path).splitlines()]
    assert [dict(zip(SHOWN, line.values(), strict=True)) for line in lines] == [SHOWN, SHOWN, dict.fromkeys(SHOWN)]

    cells = list(csv.reader(io.StringIO(text(sql, "csv", tmp_path))))[1]
    for (expression, value), cell in zip(SHOWN.items(), cells, strict=True):
        as_text = value if isinstance(value, str) else "" if value is None else json.dumps(value)
        assert cell == as_text, expression
    vertical = text(sql, "vertical", tmp_path).splitlines()
    assert vertical[1].split(maxsplit=1) == ["c0", "0:02:14.486"]


def test_intervals_and_infinite_times_are_read_back(tmp_path: Path) -> None:
    for expression in ("INTERVAL '-14 months 3 days -00:00:01.25'", "TIMESTAMP '-infinity'", "DATE 'infinity'"):
        (line,) = text(f"SELECT {expression} AS v", "jsonl", tmp_path).splitlines()
        again = f"SELECT {expression.split(' ')[0]} '{json.loads(line)['v']}' = {expression} AS same"
        assert text(again, "csv", tmp_path) == "same\ntrue\n"


def test_columns_of_one_name_keep_theirs_where_types_become_text(tmp_path: Path) -> None:
    assert text("SELECT '1'::BIT AS a, range AS a FROM range(3) ORDER BY range DESC", "csv", tmp_path) == (
        "a,a_1\n1,2\n1,1\n1,0\n"
    )


def test_what_parquet_cannot_hold_is_one_line(tmp_path: Path) -> None:
    for sql, of in (("INTERVAL 1 DAY", ".*interval"), ("TIMESTAMP_S 'infinity'", ""), ("MAP {}", "")):
        with pytest.raises(QueryError, match=rf"^Parquet can't hold this result: {of}.*; cast the column$"):
            arrow(f"SELECT {sql} AS v", "parquet", tmp_path)
