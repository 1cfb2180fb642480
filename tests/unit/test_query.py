"""``telemetry-lake query``: exact values in three formats, only results on stdout, errors in one line."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs import query
from pipelines.lake_query import with_subscriptions
from pipelines.subscriptions import ConfiguredSubscriptions, sync_subscriptions
from pipelines.tables import CLIENT_EVENTS, METRIC_POINTS, PUSHES, TABLES
from udfs.subscriptions import Subscription

TIME = datetime(2026, 11, 21, 12, 0, 0, 123456, UTC)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("query") / "lake"
    for table in TABLES:
        table.create(str(folder))

    def put(table: Any, *rows: dict[str, Any]) -> None:
        full = [{"landed_at": TIME, "landed_date": TIME.date(), "offset": n} | row for n, row in enumerate(rows)]
        write_deltalake(str(folder / table.name), pa.Table.from_pylist(full, schema=table.stored), mode="append")

    put(
        METRIC_POINTS,
        {"metric": "big", "value": float(2**62), "value_int": 2**62 + 1, "delta_int": -(2**63), "time": TIME},
        {"metric": 'text\nlines, "quotes"', "value": float("nan"), "attributes": [("node_id", "1"), ("topic", "a,b")]},
        {"metric": "lists", "value": 0.1, "bucket_counts": [1, 2**60], "quantiles": [(0.5, 1.5), (0.99, float("inf"))],
         "flags": ["start_moved"], "is_monotonic": True},
    )  # fmt: skip
    put(PUSHES, {"client_id": "héllo", "payload": b"\x00\xff"})
    put(CLIENT_EVENTS, {"at": TIME, "event": "temporality_flip", "detail": [("to", "delta")]})
    return folder


def ask(capsys: pytest.CaptureFixture[str], lake: Path, sql: str, form: str = "jsonl") -> tuple[int, str, str]:
    code = query.main(["--lake", str(lake), "--format", form, sql])
    out, err = capsys.readouterr()
    return code, out, err


def test_jsonl_keeps_every_value_exact(capsys: pytest.CaptureFixture[str], lake: Path) -> None:
    code, out, err = ask(capsys, lake, 'SELECT * FROM metric_points ORDER BY "offset"')
    assert (code, err) == (0, "")
    big, text, lists = [json.loads(line) for line in out.splitlines()]
    assert (big["value_int"], big["delta_int"]) == (4611686018427387905, -9223372036854775808)
    assert big["time"] == "2026-11-21T12:00:00.123456Z"
    assert big["landed_date"] == "2026-11-21"
    assert text["value"] is None
    assert text["metric"] == 'text\nlines, "quotes"'
    assert text["attributes"] == {"node_id": "1", "topic": "a,b"}
    assert lists["bucket_counts"] == [1, 1152921504606846976]
    assert lists["quantiles"] == {"0.5": 1.5, "0.99": None}
    assert lists["flags"] == ["start_moved"]
    assert lists["is_monotonic"] is True
    assert list(big) == METRIC_POINTS.stored.names


def test_csv_reads_back(capsys: pytest.CaptureFixture[str], lake: Path) -> None:
    _, out, _ = ask(
        capsys, lake, 'SELECT metric, value_int, attributes, time FROM metric_points ORDER BY "offset"', "csv"
    )
    rows = list(csv.reader(io.StringIO(out)))
    assert rows[0] == ["metric", "value_int", "attributes", "time"]
    assert rows[1] == ["big", "4611686018427387905", "", "2026-11-21T12:00:00.123456Z"]
    assert rows[2] == ['text\nlines, "quotes"', "", '{"node_id": "1", "topic": "a,b"}', ""]


def test_table_is_for_people(capsys: pytest.CaptureFixture[str], lake: Path) -> None:
    _, out, _ = ask(capsys, lake, "SELECT client_id, octet_length(payload) AS bytes FROM pushes", "table")
    assert out.splitlines() == ["client_id  bytes", "---------  -----", "héllo          2"]


def test_sums_of_bigints_are_numbers_and_exact(capsys: pytest.CaptureFixture[str], lake: Path) -> None:
    sql = "SELECT sum(value_int) * 4 AS n, 0.5 AS half FROM metric_points"
    assert ask(capsys, lake, sql)[1] == '{"n":18446744073709551620,"half":0.5}\n'
    assert ask(capsys, lake, sql, "csv")[1] == "n,half\n18446744073709551620,0.5\n"


def test_names_that_terminals_would_obey_are_spelled_out(capsys: pytest.CaptureFixture[str], lake: Path) -> None:
    _, out, _ = ask(capsys, lake, "SELECT chr(27) || '[2J' || chr(8238) || 'é' || chr(10) || 'b' AS name", "table")
    assert out.splitlines()[2] == "\\x1b[2J\\u202eé b"


def test_a_newer_lake_says_what_to_update(capsys: pytest.CaptureFixture[str], lake: Path, tmp_path: Path) -> None:
    shutil.copytree(lake / PUSHES.name, tmp_path / PUSHES.name)
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["later"], "writerFeatures": ["later"]}
    log = tmp_path / PUSHES.name / "_delta_log" / f"{2:020}.json"
    log.write_text(json.dumps({"protocol": features}) + "\n", encoding="utf-8")
    code, out, err = ask(capsys, tmp_path, "SELECT * FROM pushes")
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert "the lake was written by a newer version: update kafka-telemetry-lake" in err


def test_whatever_table_a_lake_holds_can_be_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Not only those of ingest: `sync` keeps some of its own."""
    write_deltalake(str(tmp_path / "subscriptions"), pa.table({"name": ["everything"]}))
    assert ask(capsys, tmp_path, "SELECT name FROM subscriptions", "csv") == (0, "name\neverything\n", "")


def test_tables_without_rows_and_without_answers(capsys: pytest.CaptureFixture[str], lake: Path) -> None:
    assert ask(capsys, lake, "SELECT count(*) AS n FROM quarantine") == (0, '{"n":0}\n', "")
    assert ask(capsys, lake, "SELECT reason FROM quarantine", "csv") == (0, "reason\n", "")


def test_the_contract_column_at_needs_no_quotes(capsys: pytest.CaptureFixture[str], lake: Path) -> None:
    code, out, _ = ask(
        capsys, lake, "SELECT at, event, 'at' AS word FROM client_events e WHERE e.at IS NOT NULL ORDER BY at"
    )
    assert code == 0
    assert json.loads(out) == {"at": "2026-11-21T12:00:00.123456Z", "event": "temporality_flip", "word": "at"}


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("SELECT subscriptions FROM metric_points", "SELECT subscriptions FROM point_subscriptions AS metric_points"),
        (
            "SELECT p.subscriptions FROM metric_points AS p, pushes WHERE p.metric = 'metric_points'",
            "SELECT p.subscriptions FROM point_subscriptions AS p, pushes WHERE p.metric = 'metric_points'",
        ),
        ("SELECT metric FROM metric_points", "SELECT metric FROM metric_points"),
        ("SELECT p.metric FROM metric_points p, subscriptions", "SELECT p.metric FROM metric_points p, subscriptions"),
        ("SELECT subscriptions FROM metric_points WHERE (", "SELECT subscriptions FROM metric_points WHERE ("),
    ],
)
def test_who_asked_for_a_point_is_found_out_when_it_is_asked(asked: str, answered: str) -> None:
    assert with_subscriptions(asked) == answered


def test_points_name_the_subscriptions_that_asked_for_them(capsys: pytest.CaptureFixture[str], lake: Path) -> None:
    """Nobody did here; without any subscriptions known, that is NULL."""
    sql = "SELECT DISTINCT subscriptions FROM metric_points"
    assert ask(capsys, lake, sql) == (0, '{"subscriptions":null}\n', "")
    configured = ConfiguredSubscriptions("c", (Subscription("none", (), 1000),))
    sync_subscriptions(str(lake), datetime(2026, 11, 21, tzinfo=UTC), configured)
    try:
        assert ask(capsys, lake, sql) == (0, '{"subscriptions":[]}\n', "")
    finally:
        shutil.rmtree(lake / "subscriptions")


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT nothing FROM pushes", "nothing"),
        ("SELECT * FROM no_table", "this lake's tables: client_events, metric_points"),
        ("SELEC 1", "syntax error"),
    ],
)
def test_errors_are_one_line(capsys: pytest.CaptureFixture[str], lake: Path, sql: str, said: str) -> None:
    code, out, err = ask(capsys, lake, sql)
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert said in err


def test_a_missing_lake_says_how_to_make_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = ask(capsys, tmp_path / "none", "SELECT * FROM pushes")
    assert (code, out) == (1, "")
    assert "no lake at" in err
    assert "telemetry-lake ingest" in err


def test_starts_without_spark(lake: Path) -> None:
    """DuckDB and delta-rs only. The bound is loose for a loaded machine; alone it takes under a second."""
    began = time.monotonic()
    code = (
        "import sys; from jobs import cli; "
        f"assert cli.main(['query', '--lake', {str(lake)!r}, 'SELECT count(*) AS n FROM metric_points']) == 0; "
        "assert not {'pyspark', 'numba', 'pandas'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["n", "-", "3"], done.stderr
    assert time.monotonic() - began < 20
