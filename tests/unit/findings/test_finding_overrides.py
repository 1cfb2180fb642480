"""Other bounds of the findings' rules for some client ids: what a file may say, and what the views then judge."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path

import duckdb
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.pipelines.findings.model import Override, _fits
from kafka_telemetry_lake.pipelines.findings.overrides import (
    ABOUT_CLIENT_IDS,
    FindingsFileError,
    _covers,
    read_overrides,
)
from kafka_telemetry_lake.pipelines.findings.rules import rules
from kafka_telemetry_lake.pipelines.query.views import needed, views
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from tests.support.made_clients import CONSUMER, Client, gauge, tables_of, without_hour
from tests.support.sql_views import answer
from tests.unit.findings.test_findings_states_lake import SmallLake

ROOT = Path(__file__).parents[3]
TEXT = """
overrides:
  - client_id: batch-*
    rules:
      costly_commits: {latency: 5000}
      failed_rebalances: off
  - client_id: "*"
    rules:
      costly_commits: {latency: 2000.5}
"""


def read(tmp_path: Path, text: str) -> tuple[Override, ...]:
    file = tmp_path / "findings.yml"
    file.write_text(text, "utf-8")
    return read_overrides(file)


def test_a_file(tmp_path: Path) -> None:
    assert read(tmp_path, TEXT) == (
        Override("batch-*", "costly_commits", (("latency", 5000),)),
        Override("batch-*", "failed_rebalances", off=True),
        Override("*", "costly_commits", (("latency", 2000.5),)),
    )
    assert read_overrides(None) == ()


def test_the_example_overrides_nothing_and_its_comments_are_valid(tmp_path: Path) -> None:
    example = ROOT / "conf" / "findings.yml"
    assert read_overrides(example) == ()
    _, _, comments = example.read_text("utf-8").partition("overrides: []\n")
    shown = [line.removeprefix("# ") for line in comments.splitlines()[1:]]
    said = read(tmp_path, "\n".join(["overrides:", *shown]))
    assert [(each.client_id, each.rule, each.off) for each in said] == [
        ("batch-*", "costly_commits", False), ("batch-*", "one_record_per_request", True),
        ("*", "greedy_principal", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "costly_commits: {latency: 5",
            "costly_comits: {latency: 5",
            "no rule is called that; did you mean costly_com",
        ),
        ("latency: 5000", "lateness: 5000", "costly_commits': no bound is called 'lateness': it has latency"),
        ("latency: 5000", "latency: fast", "costly_commits'.latency: needed: a number of ms, got 'fast'"),
        ("latency: 5000", "latency: true", "needed: a number of ms, got True"),
        ("latency: 5000", "latency: .nan", "needed: a number of ms, got nan"),
        ("latency: 5000", "latency: .inf", "needed: a number of ms, got inf"),
        ("latency: 5000", f"latency: {10**400}", "0 isn't between 0 and 1000000000000000: ms"),
        ("latency: 5000", "latency: -1", "costly_commits'.latency: -1 isn't between 0 and 1000000000000000: ms"),
        ("costly_commits: {latency: 5000}", "mixed_versions: {versions: 1}", "1 isn't between 2 and 1000000000000000"),
        ("costly_commits: {latency: 5000}", "fetch_bound: {idle: 90}", "90 isn't between 0 and 1: of the time"),
        ("costly_commits: {latency: 5000}", "greedy_principal: off", "it is about a principal, not a client id: only"),
        ("{latency: 5000}", "on", "needed: bounds with their values, or off; got True"),
        ("{latency: 5000}", "{}", "needed: bounds with their values, or off; got {}"),
        ("client_id: batch-*", "client_id: 7", "overrides.0.client_id: needed: a pattern as text, got 7"),
        ("client_id: batch-*", 'client_id: ""', "overrides.0.client_id: needed: a pattern as text, got ''"),
        ("client_id: batch-*", "client: batch-*", "overrides.0: needed: the fields client_id and rules"),
        ("client_id: batch-*", 'client_id: "*"', "client_id '*' is never used for costly_commits: '*' before it fits"),
        ("overrides:", "override:", "needed: the field overrides, a list, and no other field"),
        ("overrides:", "overrides: [", "not YAML: "),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in TEXT
    with pytest.raises(FindingsFileError, match=re.escape(said)) as error:
        read(tmp_path, TEXT.replace(old, new, 1))
    assert str(error.value).startswith(f"{tmp_path / 'findings.yml'}: ")
    assert "\n" not in str(error.value)


def test_commands_refuse_a_wrong_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = SmallLake(tmp_path / "lake").land(0, ["orders"])
    missing = str(tmp_path / "none.yml")
    for command in (["query", "SELECT 1"], ["findings"], ["dashboard"], ["views"]):
        assert cli.main([*command, "--lake", lake.name, "--rules", missing]) == 2, command
        assert f"{missing}: No such file or directory" in capsys.readouterr().err, command


CLIENTS = {
    name: Client({f"{CONSUMER}coordinator.commit.latency.avg": gauge(latency)}, instances=instances)
    for name, latency, instances in (
        ("orders", 1000, 1), ("orders-a", 1999, 1), ("batch-1", 4999, 1), ("batch-2", 5000, 1), ("batch_3", 2000, 2)
    )
}  # fmt: skip


def found(*overrides: Override) -> dict[str, str]:
    """Evidence of costly_commits by client id."""
    rows = answer("findings", tables_of(CLIENTS), overrides=overrides)
    assert {row["finding"] for row in rows} <= {"costly_commits"}
    return {row["client_id"]: without_hour(row["evidence"]) for row in rows}


@pytest.mark.slow
def test_bounds_of_a_pattern_and_the_evidence_that_names_them() -> None:
    plain = {
        "orders": "commits take 1000 ms on average", "orders-a": "commits take 1999 ms on average",
        "batch-1": "commits take 4999 ms on average", "batch-2": "commits take 5000 ms on average",
        "batch_3": "2 of 2 client instances (100.0 %), at worst i0: commits take 2000 ms on average",
    }  # fmt: skip
    assert found() == plain
    judged = " (bounds of batch-*: latency = 5000 ms instead of 1000)"
    lower = Override("batch-*", "costly_commits", (("latency", 5000),))
    assert found(lower) == {
        name: evidence + judged * (name == "batch-2") for name, evidence in plain.items() if name != "batch-1"
    }
    every = Override("*", "costly_commits", (("latency", 2000),))
    assert found(lower, every) == {
        "batch-2": plain["batch-2"] + judged,
        "batch_3": plain["batch_3"] + " (bounds of *: latency = 2000 ms instead of 1000)",
    }


@pytest.mark.slow
def test_off_for_a_pattern_and_for_all() -> None:
    off = Override("batch?*", "costly_commits", off=True)
    assert set(found(off)) == {"orders", "orders-a"}
    exception = Override("batch-2", "costly_commits", (("latency", 1000),))
    assert set(found(exception, Override("*", "costly_commits", off=True))) == {"batch-2"}
    assert found(Override("*", "costly_commits", off=True)) == {}


def test_without_overrides_the_sql_is_the_same() -> None:
    plain = views()
    assert all(view is plain[name] for name, view in views(()).items())  # parsed once
    assert needed(["findings"])[0][-1] is plain["findings"]
    assert all(" ESCAPE " not in view.select and "instead of" not in view.select for view in plain.values())
    other = views((Override("*", "costly_commits", (("latency", 5000),)),))
    assert {name for name, view in plain.items() if other[name].select != view.select} == {
        "finding_savings",
        "instance_findings",
    }


@pytest.mark.slow
def test_every_bound_of_every_rule_can_be_overridden() -> None:
    """DuckDB plans the views, whatever columns the rules' SELECTs have."""
    overrides = [
        Override(pattern, rule.id, tuple((name, bound.most) for name, bound in rule.bounds.items()), not rule.bounds)
        for rule in rules().values()
        for pattern in (["a'\\%_!?*", "x"] if rule.scope in ABOUT_CLIENT_IDS else []) + ["*"]
    ]
    wanted, below = needed(["findings"], tuple(overrides))
    with duckdb.connect() as connection:
        for name in below:
            connection.register(name, CATALOG[name].empty_table())
        for view in wanted:
            connection.execute(f'CREATE TEMP VIEW "{view.name}" AS {view.duckdb}')
        assert connection.sql("SELECT count(*) FROM findings").fetchall() == [(0,)]


@pytest.mark.slow
def test_states_and_queries_are_judged_by_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = SmallLake(tmp_path / "lake").land(0, ["bills"], ["orders", "batch-1"])
    file = tmp_path / "findings.yml"
    file.write_text("overrides: [{client_id: batch-*, rules: {unreadable_telemetry: off}}]", "utf-8")
    asked = ["--lake", lake.name, "--rules", str(file), "--format", "jsonl"]
    assert cli.main(["query", "SELECT subject FROM findings", *asked]) == 0
    assert cli.main(["findings", *asked]) == 0
    assert [json.loads(line)["subject"] for line in capsys.readouterr().out.splitlines()] == ["orders"] * 2
    assert lake.open() == {"orders": "open"}


@pytest.mark.parametrize(
    ("pattern", "other", "covers"),
    [
        ("*", "batch-?*", True), ("batch-*", "batch-1", True), ("b*-?", "batch-1", True), ("a?", "a?", True),
        ("?", "*", False), ("a?", "a*", False), ("batch-*", "batch*", False), ("a.c", "abc", False),
    ],
)  # fmt: skip
def test_a_pattern_covers_another(pattern: str, other: str, covers: bool) -> None:
    assert _covers(pattern, other) == covers


LETTERS = "a%_!\\'\n"


@settings(max_examples=400)
@given(
    data=st.data(), pattern=st.text(LETTERS + "*?", min_size=1, max_size=4), other=st.text(LETTERS + "*?", max_size=4)
)
def test_a_pattern_fits_what_it_fits_in_file_names(data: st.DataObject, pattern: str, other: str) -> None:
    made, changed = data.draw(st.tuples(st.sampled_from([pattern, other]), st.booleans()))
    letters = [*made]
    if letters and changed:
        letters[data.draw(st.integers(0, len(letters) - 1))] = data.draw(st.sampled_from(LETTERS))
    client_id = "".join("aa" if letter == "*" else "%" if letter == "?" else letter for letter in letters)
    fits = fnmatchcase(client_id, pattern)
    (condition,) = sqlglot.transpile(_fits(pattern), read="spark", write="duckdb")
    condition = condition.replace("client_id", "$client_id", 1)
    assert duckdb.execute(f"SELECT {condition}", {"client_id": client_id}).fetchall() == [(fits,)]
    if _covers(pattern, other) and fnmatchcase(client_id, other):
        assert fits
