"""``telemetry-lake query``: exact values in three formats, only results on stdout, errors in one line."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.jobs.settings.base import UsageError, parse
from kafka_telemetry_lake.jobs.settings.query import QuerySettings
from kafka_telemetry_lake.pipelines.query.lake_query import run_query, with_subscriptions
from kafka_telemetry_lake.pipelines.query.views import needed, parse_view, view_names, views
from kafka_telemetry_lake.pipelines.subscriptions.configured import ConfiguredSubscriptions
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS, METRIC_POINTS, PUSHES, TABLES
from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS
from kafka_telemetry_lake.udfs.subscriptions.matching import Subscription
from tests.support.config_polls import record_subscriptions

pytestmark = pytest.mark.lake

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
    code = run_command("query", ["--lake", str(lake), "--format", form, sql])
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


def test_table_is_for_people(capsys: pytest.CaptureFixture[str], lake: Path) -> None:
    _, out, _ = ask(capsys, lake, "SELECT client_id, octet_length(payload) AS bytes FROM pushes", "table")
    assert out.splitlines() == ["client_id  bytes", "---------  -----", "héllo          2"]


def test_a_newer_lake_says_what_to_update(capsys: pytest.CaptureFixture[str], lake: Path, tmp_path: Path) -> None:
    shutil.copytree(lake / PUSHES.name, tmp_path / PUSHES.name)
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["later"], "writerFeatures": ["later"]}
    log = tmp_path / PUSHES.name / "_delta_log" / f"{2:020}.json"
    log.write_text(json.dumps({"protocol": features}) + "\n", encoding="utf-8")
    code, out, err = ask(capsys, tmp_path, "SELECT * FROM pushes")
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert "the lake was written by a newer version: update kafka-telemetry-lake" in err


def test_whatever_table_a_lake_holds_can_be_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Not only those of ingest: `sync` keeps some of its own, and people too."""
    SUBSCRIPTIONS.create(str(tmp_path))
    write_deltalake(str(tmp_path / "notes"), pa.table({"name": ["everything"]}))
    assert ask(capsys, tmp_path, "SELECT name FROM subscriptions UNION SELECT name FROM notes", "csv") == (
        0,
        "name\neverything\n",
        "",
    )


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
    record_subscriptions(str(lake), datetime(2026, 11, 21, tzinfo=UTC), configured)
    try:
        assert ask(capsys, lake, sql) == (0, '{"subscriptions":[]}\n', "")
    finally:
        shutil.rmtree(lake / "subscriptions")


def test_starts_without_spark(lake: Path) -> None:
    """DuckDB and delta-rs only, without pandas, which Arrow would import. In a few seconds of CPU."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    sql = "SELECT count(*) AS n, max(attributes) AS a FROM metric_points"
    command = ["-X", "importtime", "-m", "kafka_telemetry_lake", "query", "--lake", str(lake), "--format", "csv", sql]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "n,a"
    assert done.stdout.splitlines()[1].startswith("3,")
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert {"duckdb", "pyarrow.dataset"} <= imported
    assert not {name for name in imported if name.startswith(("pyspark", "numba", "pandas."))}  # pandas: looked for
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 10


def test_a_query_parses_the_views_that_it_names_alone(lake: Path) -> None:
    parse_view.cache_clear()
    run_query(str(lake), "SELECT metric FROM metric_points")
    assert parse_view.cache_info().misses == 0
    run_query(str(lake), "SELECT * FROM client_liveness")
    assert parse_view.cache_info().misses == len(needed(["client_liveness"])[0]) < 5
    assert views().keys() == view_names()


@pytest.mark.parametrize(
    "sql",
    [
        "COPY pushes TO '{0}'",
        "COPY (SELECT 1) TO '{2}/pushes/new.parquet'",
        "COPY (SELECT 1) TO '{2}/pushes/_delta_log/00000000000000000009.json'",
        "COPY (FROM pushes) TO '{0}' (FORMAT parquet)",
        "EXPLAIN ANALYZE COPY pushes TO '{0}'",
        "/* SELECT */ COPY (PIVOT pushes ON client_id) TO '{0}'",
        "SELECT 1; COPY pushes TO '{0}'",
        "CREATE TABLE t AS PIVOT pushes ON client_id",
        "ATTACH '{0}'",
        "PRAGMA version",
        "SELECT * FROM read_text('{1}')",
        "SELECT * FROM '{1}'",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM read_text('{2}/pushes/../../secret.csv')",
        "SELECT * FROM sql",
        "",
    ],
)
def test_only_queries_are_answered_and_only_from_the_lake(
    capsys: pytest.CaptureFixture[str], lake: Path, tmp_path: Path, sql: str
) -> None:
    secret = lake.parent / "secret.csv"
    secret.write_text("a\nsecret\n", encoding="utf-8")
    before = {file: file.stat().st_mtime_ns for file in lake.rglob("*")}
    code, out, err = ask(capsys, lake, sql.format(tmp_path / "out", secret, lake))
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert list(tmp_path.iterdir()) == []
    assert {file: file.stat().st_mtime_ns for file in lake.rglob("*")} == before
    assert not sql.startswith("COPY") or ("COPY is not a query" in err and "--allow-files" in err)


@pytest.mark.parametrize(
    "sql",
    ["FROM pushes", "/* why */ SELECT 1", "WITH a AS (SELECT 1) FROM a", "VALUES (1)", "EXPLAIN SELECT 1",
     "EXPLAIN ANALYZE SELECT count(*) FROM pushes", "DESCRIBE pushes", "SUMMARIZE pushes", "SELECT 1;",
     "PIVOT (SELECT client_id FROM pushes) ON client_id USING count(*)", "(SELECT 1)"],
)  # fmt: skip
def test_whatever_only_reads_is_answered(capsys: pytest.CaptureFixture[str], lake: Path, sql: str) -> None:
    code, out, err = ask(capsys, lake, sql)
    assert (code, err) == (0, "")
    assert out


def test_files_are_open_on_request(capsys: pytest.CaptureFixture[str], lake: Path, tmp_path: Path) -> None:
    asked = ["--lake", str(lake), "--allow-files"]
    assert run_command("query", [*asked, f"COPY (SELECT 7 AS n) TO '{tmp_path / 'out.csv'}'"]) == 0
    assert (tmp_path / "out.csv").read_text(encoding="utf-8").split() == ["n", "7"]
    assert run_command("query", [*asked, f"SELECT * FROM '{tmp_path / 'out.csv'}'"]) == 0
    assert "7" in capsys.readouterr().out


@pytest.mark.slow
def test_memory_and_temporary_files_are_bounded(
    capsys: pytest.CaptureFixture[str], lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sql = (
        "SELECT max(t), max(n) FROM (SELECT md5(range::text) AS t, row_number() OVER (ORDER BY t) AS n FROM range({}))"
    )
    limits = ["--lake", str(lake), "--memory", "64MB", "--spill"]
    assert run_command("query", [*limits, "500MB", sql.format(1_500_000)]) == 0
    assert capsys.readouterr().err == "1 row\n"
    code = run_command("query", [*limits, "1MB", sql.format(1_500_000)])
    assert code == 1
    err = capsys.readouterr().err
    assert "the query needs more than --memory and --spill allow" in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="memory"):
        parse(QuerySettings, ["--lake", "x", "--memory", "lots", "SELECT 1"], "test")
