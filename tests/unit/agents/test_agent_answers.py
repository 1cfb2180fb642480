"""What agents get: bounded answers that say so, and nothing but tables and views."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from kafka_telemetry_lake.pipelines.agents.answers import LONGEST_VALUE, AnswerLimits, answer
from kafka_telemetry_lake.pipelines.agents.descriptions import describe_view, explain_finding, list_views, pages
from kafka_telemetry_lake.pipelines.findings.rules import rules
from kafka_telemetry_lake.pipelines.query.query_errors import QueryError
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, PUSHES
from tests.support.captured_lake import captured_lake
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.lake

LIMITS = AnswerLimits(rows=5, characters=5_000, seconds=PATIENCE_S)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(captured_lake(tmp_path_factory.mktemp("agents") / "lake"))


def test_rows_and_what_was_left_out(lake: str) -> None:
    whole = answer(lake, "SELECT count(*) AS n, sum(octet_length(payload)) AS bytes FROM pushes", LIMITS)
    assert whole["columns"] == [{"name": "n", "type": "int64"}, {"name": "bytes", "type": "decimal128(38, 0)"}]
    assert (len(whole["rows"]), whole["rows"][0][0], whole["truncated"]) == (1, 1415, None)
    exact = answer(lake, "SELECT range FROM range(5)", LIMITS)
    assert (exact["rows"], exact["truncated"]) == ([[0], [1], [2], [3], [4]], None)
    more = answer(lake, "SELECT range FROM range(6)", LIMITS)
    assert more["rows"] == exact["rows"]
    assert more["truncated"] == "only the first 5 rows: aggregate, filter or LIMIT the query"


def test_long_values_and_long_rows_are_cut_and_say_so(lake: str) -> None:
    (value,) = answer(lake, "SELECT repeat('é', 3000)", LIMITS)["rows"][0]
    assert value == "é" * LONGEST_VALUE + "… (3,000 characters)"
    (many,) = answer(lake, "SELECT list(range) FROM range(9999)", LIMITS)["rows"][0]
    assert many.startswith("[0, 1, 2")
    assert many.endswith("characters)")
    assert len(many) < LONGEST_VALUE + 30
    wide = answer(lake, "SELECT repeat('a', 1000) AS text, repeat('b', 1000) FROM range(5)", LIMITS)
    assert len(wide["rows"]) == 2
    assert wide["truncated"] == "only the first 2 rows: more than 5,000 characters: select fewer columns"
    none = answer(lake, "SELECT repeat('a', 2000), repeat('b', 2000), repeat('c', 2000)", LIMITS)
    assert (none["rows"], none["truncated"][:6]) == ([], "no row")


def test_an_empty_answer_and_a_wrong_sum_have_a_note(lake: str) -> None:
    assert "`telemetry-lake sync` has recorded none" in answer(lake, "FROM quotas", LIMITS)["note"]
    assert "note" not in answer(lake, "SELECT 1 FROM pushes LIMIT 1", LIMITS)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sum(a.range * b.range) FROM range(1000000000) a, range(1000) b",  # one step that never ends
        "SELECT range FROM range(1000000000) ORDER BY hash(range) DESC",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t",
    ],
)
def test_a_query_that_takes_too_long_is_stopped(lake: str, sql: str) -> None:
    begun = time.process_time()
    with pytest.raises(QueryError, match=r"^stopped after 0\.2 s: read fewer days or rows$"):
        answer(lake, sql, AnswerLimits(seconds=0.2))
    assert time.process_time() - begun < 10
    assert answer(lake, "SELECT 1", AnswerLimits(seconds=PATIENCE_S))["rows"] == [[1]]


WRITES = [
    "COPY pushes TO '{out}'",
    "COPY (SELECT 1) TO '{lake}/pushes/new.parquet'",
    "ATTACH '{out}'",
    "PRAGMA database_list",
    "SET memory_limit = '1TB'",
    "CALL pragma_version()",
    "CREATE TABLE t AS FROM pushes",
    "INSERT INTO pushes SELECT * FROM pushes",
    "EXPLAIN ANALYZE COPY pushes TO '{out}'",
    "SELECT 1; COPY pushes TO '{out}'",
    "-- SELECT\nCOPY pushes TO '{out}'",
    "",
    "--",
    "PIVOT pushes ON client_id",
    "SELECT (",
]
READS_FILES = [
    "FROM '{secret}'",
    "FROM read_csv('{secret}')",
    "FROM READ_CSV('{secret}')",
    "FROM glob('{folder}/*')",
    "WITH a AS (SELECT * FROM read_text('{secret}')) FROM a",
    "SELECT * FROM pushes JOIN read_text('{secret}') ON true",
    "WITH a AS MATERIALIZED (WITH b AS (FROM '{secret}') FROM b) FROM a",
    "FROM query('FROM read_text(''{secret}'')')",
    "FROM query_table('{secret}')",
    "FROM json_execute_serialized_sql(json_serialize_sql('FROM ''{secret}'''))",
    "DESCRIBE '{secret}'",
    "SUMMARIZE '{secret}'",
    "SELECT * FROM (VALUES ('{secret}')) t(f), LATERAL read_text(t.f)",
    "FROM '{lake}/pushes/_delta_log/00000000000000000000.json'",
    "FROM 'https://host/a.parquet'",
    "FROM enable_logging(storage = 'file', storage_path = '{out}')",
    "FROM 'secret*'",
    "FROM system.main.read_text('{secret}')",
]


@pytest.mark.parametrize("sql", WRITES + READS_FILES)
def test_nothing_is_written_and_no_file_is_read(
    lake: str, sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\ntop-secret\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    before = {file: file.stat().st_mtime_ns for file in Path(lake).rglob("*")}
    with pytest.raises(QueryError) as refused:
        answer(lake, sql.format(out=tmp_path / "out", secret=secret, folder=tmp_path, lake=lake), LIMITS)
    assert "top-secret" not in str(refused.value)
    assert "--allow-files" not in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["secret.csv"]
    assert {file: file.stat().st_mtime_ns for file in Path(lake).rglob("*")} == before


@pytest.mark.parametrize(
    ("sql", "first"),
    [
        ("FROM (SELECT count(*) FROM pushes)", 1415),
        ("WITH a AS (SELECT 1 AS n) SELECT n FROM a", 1),
        ("SELECT at IS NOT NULL FROM client_events LIMIT 1", True),  # `at` is a reserved word
        ("SELECT unnest([7, 8])", 7),
        ("SELECT value FROM json_each('[7]')", "7"),
        ("VALUES (7)", 7),
        ("DESCRIBE pushes", "source"),
        ("SHOW TABLES", "client_events"),
        ("SELECT 'FROM read_csv(''x'')'", "FROM read_csv('x')"),
        ('SELECT "a.b" FROM (SELECT 3 AS "a.b")', 3),
    ],
)
def test_whatever_reads_tables_and_views_is_answered(lake: str, sql: str, first: object) -> None:
    assert answer(lake, sql, LIMITS)["rows"][0][0] == first


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT " + "(" * 40_000, "the query has more than 100 nested parentheses"),
        ("SELECT " + ")" * 40_000 + "(" * 101, "syntax error"),
        ("SELECT 1" + " + 1" * 990, "the query is nested too deeply"),
        ("SELECT " + "- " * 20_000 + "1", "Max expression depth limit"),
        ("SELECT " + "[" * 40_000, "syntax error"),
        ("SELECT * FROM " + "(FROM " * 100 + "pushes" + ")" * 100 + " LIMIT 1, 2, 3", "syntax error"),
        ("SELECT \0 1", "syntax error"),
        ("SELECT '\ud800'", "the query is not text in Unicode"),
        (" " * 50_001, "the query has 50,001 characters; allowed: 50,000"),
    ],
    ids=range(9),
)
def test_hostile_texts_are_one_error_and_soon(lake: str, sql: str, said: str) -> None:
    begun = time.process_time()
    with pytest.raises(QueryError, match=re.escape(said)):
        answer(lake, sql, LIMITS)
    assert time.process_time() - begun < 5


def test_tables_and_views_are_listed_and_described(lake: str) -> None:
    kinds = {row["name"]: row["kind"] for row in list_views(lake)}
    assert (kinds["pushes"], kinds["clients"], kinds["quotas"]) == ("table", "view", "table, empty")
    table = describe_view(lake, "metric_points", LIMITS)
    assert [column["name"] for column in table["columns"]] == METRIC_POINTS.stored.names
    meaning = (METRIC_POINTS.stored.field("delta").metadata or {})[b"comment"].decode()
    assert {"name": "delta", "type": "DOUBLE", "meaning": meaning} in table["columns"]
    view = describe_view(lake, "client_liveness", LIMITS)
    assert "client_changes" in view["reads"] or "clients" in view["reads"]
    assert view["question"].startswith(view["meaning"])
    hours = {column["name"]: column for column in describe_view(lake, "instance_hours", LIMITS)["columns"]}
    assert hours["pushes"]["meaning"] == "pushes that landed"
    with pytest.raises(QueryError, match="no table or view is called pushs; did you mean pushes"):
        describe_view(lake, "pushs", LIMITS)
    with pytest.raises(QueryError, match="no table or view is called"):
        describe_view(lake, 'pushes" UNION FROM read_text(1) --', LIMITS)
    assert PUSHES.name in kinds


def test_a_finding_is_explained_by_its_rule_and_by_its_id(lake: str) -> None:
    rule = rules()["tiny_batches"]
    told = explain_finding(lake, "tiny_batches", LIMITS)
    assert told["rule"]["advice"] == rule.advice
    assert told["rule"]["bounds"]["bytes"] == {
        "value": 4096, "unit": "bytes", "reason": rule.bounds["bytes"].reason, "source": rule.bounds["bytes"].source,
    }  # fmt: skip
    assert told["open"] == []
    assert "findings were never evaluated" in told["note"]
    with pytest.raises(QueryError, match="no rule is called tiny_batch; did you mean tiny_batches"):
        explain_finding(lake, "tiny_batch", LIMITS)
    with pytest.raises(QueryError, match=r"no finding has the id 0{32}: view open_findings"):
        explain_finding(lake, "0" * 32, LIMITS)


def test_the_docs_are_installed_with_their_questions() -> None:
    assert pages()["findings"].question.endswith("?")
    assert all(page.text.startswith(f"# {page.question}\n") for page in pages().values())
    assert {"agents", "sql", "schema", "semantics"} <= pages().keys()
