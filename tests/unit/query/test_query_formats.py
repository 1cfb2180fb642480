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

from kafka_telemetry_lake.jobs.entry import run_command
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


def test_types_that_parquet_lacks_are_named(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match=r"Parquet can't hold this result: .*interval.*; cast the column"):
        arrow("SELECT INTERVAL 1 DAY AS i", "parquet", tmp_path)


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
