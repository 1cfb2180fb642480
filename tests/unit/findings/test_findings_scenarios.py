"""Scenarios of real clients: how rules are scored by them, and that the page has the scores of the stored run."""

from __future__ import annotations

import pyarrow as pa
import pytest

from benchmarks.finding_faults import faults
from benchmarks.finding_hour import hour
from benchmarks.finding_kinds import kinds
from benchmarks.finding_scenarios import RAW, Found, Run, Scenario, short
from benchmarks.finding_windows import Windows, windows
from benchmarks.findings import PAGE, Score, figures, page, scores, stored
from kafka_telemetry_lake.pipelines.findings.rules import rules
from tests.support.captured_lake import push_row
from tests.support.landing_records import SCHEMA, captured

ALL = [*short(), *hour(), *faults(), *kinds()]


def test_a_rule_is_scored_by_what_is_true_of_a_scenario() -> None:
    throttled, waits = frozenset({"throttled"}), frozenset({"stuck_in_queue"})
    found, missed, healthy = (
        Scenario("java", "found", expect=throttled, also=waits),
        Scenario("java", "missed", expect=throttled),
        Scenario("java", "healthy"),
    )
    there = {
        found: {"throttled": Found(20, "e"), "stuck_in_queue": Found(30, "e")},
        healthy: {"throttled": Found(10, "e"), "unstable_group": Found(10, "e")},
    }
    scored = scores([found, missed, healthy], there)
    assert scored == {
        "throttled": Score(["java found"], ["java missed"], ["java healthy"], [20]),
        "unstable_group": Score(wrong=["java healthy"]),
    }
    assert (scored["throttled"].precision, scored["throttled"].recall) == (0.5, 0.5)
    assert figures(scored, ["java found", "java missed", "java healthy"]) == {
        "finding_scenarios": 3,
        "finding_rules_with_scenarios": 1,
        "finding_precision": pytest.approx(1 / 3),
        "finding_recall": 0.5,
        "finding_precision_worst_rule": 0.0,
    }


@pytest.mark.slow
def test_windows_are_judged_as_if_each_were_an_hour() -> None:
    """A captured consumer commits after each poll for seconds; findings that are not true of it do not count."""
    name = "java-consumer_gzip-delta"
    records = [each for each in captured().to_pylist() if push_row(each)["client_id"] == name]
    one = Scenario("java", name, expect=frozenset({"frequent_commits"}))
    run = Run([one], landed=pa.Table.from_pylist(records, SCHEMA))
    measured = windows([run], 3)
    assert measured == {"frequent_commits": Windows(2, 2, 2, 0.0)}
    assert Windows(4, 3, 4, 0.2) + Windows(1, 1, 1, 0.5) == Windows(5, 4, 5, 0.5)


def test_scenarios_are_of_known_rules_that_can_judge_their_library() -> None:
    known = rules()
    assert len({(one.library, one.name) for one in ALL}) == len(ALL)
    for one in ALL:
        for rule in one.expect | one.also if one.library != RAW else ():
            assert not isinstance(getattr(known[rule].libraries, one.library), str), (one, rule)


def test_rules_that_have_scenarios_say_so() -> None:
    assert {rule.id for rule in rules().values() if rule.test.by == "broker"} == {
        name for one in ALL for name in one.expect
    }


def test_the_page_is_that_of_the_stored_run() -> None:
    assert PAGE.read_text("utf-8") == page(), "run python -m benchmarks.findings"
    assert sorted(stored()["scenarios"]) == sorted(map(str, ALL)), "scenarios were changed: run it again"


def test_findings_of_real_clients_are_true() -> None:
    run = stored()
    result = figures(run["rules"], run["scenarios"])
    assert result["finding_scenarios"] >= 30
    assert result["finding_precision"] >= 0.95
    assert result["finding_precision_worst_rule"] >= 0.9
