"""The files of the rules: a wrong one is refused with its file and field, and docs/findings.md is made of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import pytest

from kafka_telemetry_lake.jobs.findings import run_job
from kafka_telemetry_lake.jobs.settings.base import parse
from kafka_telemetry_lake.jobs.settings.findings import FindingsSettings
from kafka_telemetry_lake.pipelines.findings.model import INSTANCE, OverriddenRule, Override
from kafka_telemetry_lake.pipelines.findings.rules import RuleError, measures, parse_rule, rules
from kafka_telemetry_lake.udfs.findings.states import DEFAULT, Hysteresis
from tools import findings_docs

FOLDER = Path(__file__).parents[3] / "sql" / "findings"
TESTS = sorted((Path(__file__).parents[1] / "sql").glob("test_findings*.py"))
SAID = "method: m, measured: m, assumed: a, unknown: u"  # the texts of a saving
TEXT = (FOLDER / "silent_retries.yml").read_text("utf-8")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "severity: info",
            "severity: fatal",
            "severity: Input should be 'error', 'warning' or",
        ),
        ("title:", "titel:", "title: needed"),
        ("value: 0,", "value: none,", "bounds.retries.value.float: Input should be a valid number"),
        (":retries AND", ":retry AND", "condition: no bound is called retry"),
        (
            "records_retried > :retries",
            "records_retried > 0",
            "bounds.retries: the rule doesn't use it",
        ),
        ("{records_sent} records", "{records_snet} records", "instance_hours has no column records_snet"),
        ("condition: ", "condition: ((", "condition: not SQL"),
        ("id: silent_retries", "id: retries", "id: 'retries' isn't the name of the file"),
        ("record.retry.total,", "record.send.rate,", "libraries.java: the rule doesn't read producer.record.send.rate"),
        ("title: ", "scope: group\ntitle: ", "reads: needed for every scope but instance"),
        ("title: ", "title: [", "not YAML"),
        ("value: 0.01,", "value: 2,", "bounds.share.value: not between 0 and 1"),
        (
            "value: 0,",
            "value: 0, closes: 1,",
            "bounds.retries.closes: needed: a bound other than 0, and another number",
        ),
        (
            "value: 0.01,",
            "value: 0.01, closes: 0.01,",
            "bounds.share.closes: needed: a bound other than 0, and another",
        ),
        ("title: ", "waits: {resolve_after: 0, reason: x}\ntitle: ", "waits.resolve_after: Input should be greater"),
        ("title: ", "waits: {open_after: 2}\ntitle: ", "waits.reason: needed"),
        ("saving: ", f"saving: {{requests: x + 1, {SAID}}} # ", "saving.requests: there is no column x"),
        ("saving: ", f"saving: {{bytes_in: used_requests + (, {SAID}}} # ", "saving.bytes_in: not SQL"),
        ("saving: ", f"saving: {{{SAID}}} # ", "saving: needed: requests, bytes_in, or both"),
        ("saving: ", "saving: {requests: commits} # ", "saving.Saving.method: needed"),
        ("advice: >-", "advice: >-\n  Since 4.3.1 it is better.", "advice: no claim says where 4.3.1 is from"),
        ("advice: >-", "advice: >-\n  Before 4.2 it was worse.", "advice: no claim says where 4.2 is from"),
        (
            "records_retried > :retries",
            "1 * records_retried > :retries",
            "line: needed, as the condition does",
        ),
        ("unit: records\n", "unit: records\nunplotted: it says nothing\n", "or unplotted, without a line"),
        ("unit: records\n", "unit: records\nline: ':retry'\n", "line: no bound is called retry"),
        ("unit: records\n", "unit: records\nline: records_snet\n", "instance_hours has no column records_snet"),
        ("title: ", "claims: [{says: 4.3.1 is better, source: s}]\ntitle: ", "claims.0.read_on: needed"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_file_and_field(old: str, new: str, said: str) -> None:
    assert old in TEXT
    with pytest.raises(RuleError, match=f"^silent_retries[.]yml: .*{re.escape(said)}"):
        parse_rule("silent_retries.yml", TEXT.replace(old, new, 1), measures())


def test_only_a_rule_about_client_instances_estimates_a_saving() -> None:
    text = (FOLDER / "short_lived_clients.yml").read_text("utf-8")
    wrong = text.replace("saving: ", f"saving: {{requests: pushes, {SAID}}} # ", 1)
    with pytest.raises(RuleError, match="saving: only a rule about client instances has one"):
        parse_rule("short_lived_clients.yml", wrong, measures())


def test_how_long_a_rule_waits() -> None:
    assert rules()["silent_retries"].hysteresis == DEFAULT
    assert rules()["unstable_group"].hysteresis == Hysteresis(open_after=1, resolve_after=6, gone_after=24)
    assert rules()["mixed_versions"].hysteresis == Hysteresis(open_after=2, resolve_after=2, gone_after=24)


def test_where_a_rule_closes() -> None:
    """In the same ratio, if a file gives the bound another value."""
    rule = rules()["costly_commits"]
    assert (rule.closes, rules()["failed_records"].closes) == (True, False)
    assert rule.closing().condition_sql() == "commit_ms >= 800.0"
    other = OverriddenRule.model_construct(
        **dict(rule), overrides=(Override("a", rule.id, (("latency", 5000),)), Override("b", rule.id, off=True))
    )
    assert other.closing().condition_sql() == (
        "(commit_ms >= (CASE WHEN client_id = 'a' THEN 4000.0 ELSE 800.0 END)) "
        "AND (CASE WHEN client_id = 'a' THEN TRUE WHEN client_id = 'b' THEN FALSE ELSE TRUE END)"
    )


def test_places_of_a_text_become_sql() -> None:
    rule = parse_rule("silent_retries.yml", TEXT, measures())
    number = "coalesce(CAST(TRY_CAST(round(records_sent) AS BIGINT) AS STRING), 'unknown')"
    assert rule.as_sql("it's {records_sent}") == rf"concat('it\'s ', {number})"
    share = "coalesce(CAST(TRY_CAST(round(100 * 0.01, 1) AS DECIMAL(38, 1)) AS STRING), 'unknown')"
    assert rule.as_sql("{:share:%}{library:text}") == f"concat({share}, coalesce(library, 'unknown'))"
    assert rule.sql("a >= :share AND CAST(b AS INT) > :retries") == "a >= 0.01 AND CAST(b AS INT) > 0"


@pytest.mark.parametrize(
    ("number", "whole", "tenths", "percent"),
    [
        ("840.6", "841", "840.6", "84060.0"),
        ("2.5", "3", "2.5", "250.0"),
        ("-0.05", "0", "-0.1", "-5.0"),
        ("CAST('12345678.94' AS DOUBLE)", "12345679", "12345678.9", "1234567894.0"),
        ("CAST('inf' AS DOUBLE)", "unknown", "unknown", "unknown"),
        ("CAST(NULL AS DOUBLE)", "unknown", "unknown", "unknown"),
    ],
)
def test_numbers_of_a_text(number: str, whole: str, tenths: str, percent: str) -> None:
    """As Spark writes them (`tests/spark/test_sql_dashboard.py`)."""
    rule = parse_rule("silent_retries.yml", TEXT, measures())
    sql = rule.as_sql("{x} {x:1} {x:%}").replace("STRING", "VARCHAR")
    answer = duckdb.execute(f"SELECT {sql} FROM (SELECT {number} AS x)").fetchone()
    assert answer == (f"{whole} {tenths} {percent}",)


def test_the_page_is_that_of_the_rules() -> None:
    assert findings_docs.PAGE.read_text("utf-8") == findings_docs.page(), "run python -m tools.findings_docs"


def test_every_claim_about_a_release_has_a_dated_source() -> None:
    claims = [claim for rule in rules().values() for claim in rule.claims]
    assert {name for name, rule in rules().items() if rule.claims} == {
        "dead_data_path", "large_telemetry", "stale_metadata", "telemetry_cut_off",
    }  # fmt: skip
    assert all(claim.read_on.year >= 2026 for claim in claims)


def test_every_rule_is_tested_by_its_name() -> None:
    text = "".join(path.read_text("utf-8") for path in TESTS)
    assert [name for name in rules() if f'"{name}"' not in text] == []


def test_a_rule_says_of_each_library_what_it_reads_or_why_not() -> None:
    for rule in rules().values():
        assert rule.judged, rule.id
        assert rule.scope != INSTANCE or rule.columns(), rule.id


def test_the_list_for_people_and_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_job(parse(FindingsSettings, ["--list"], "findings")) == 0
    _, _, *lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(rules())
    (line,) = [line for line in lines if line.startswith("silent_retries ")]
    assert (
        re.sub(" +", " ", line) == "silent_retries warning/info Java instance Retries that the application doesn't see"
    )
    assert run_job(parse(FindingsSettings, ["--list", "--format", "jsonl"], "findings")) == 0
    listed = {row["id"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert listed["throttled"] == {
        "id": "throttled", "severity": "warning", "title": "A quota holds the client back", "scope": "instance",
        "libraries": "Java, librdkafka, franz-go",
    }  # fmt: skip
