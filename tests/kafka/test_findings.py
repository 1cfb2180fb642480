"""Findings of what real clients do wrong on real brokers, and none of those that do nothing wrong."""

from __future__ import annotations

import re

import pytest

from benchmarks.finding_scenarios import run_all
from benchmarks.findings import figures, first_findings, scores

EVIDENCE = {
    ("java slow_processing", "slow_processing"): r"1[5-9]\d s between two polls",
    ("java buggy_client_version", "buggy_client_version"): "Java client 3.8.1",
    ("java silent_retries", "silent_retries"): r"\d+ sends were retried for \d+ records; none failed.*",
    ("java buffer_full", "buffer_full"): r"send\(\) waited for .*; [1-9]\d* records were given up",
}


@pytest.mark.slow
def test_behaviours_of_real_clients_are_found_and_nothing_else() -> None:
    runs = run_all()
    scenarios = [one for run in runs for one in run.scenarios]
    found = first_findings(runs, every_s=None)
    scored = scores(scenarios, found)
    wrong = {rule: score.wrong for rule, score in scored.items() if score.wrong}
    missed = {rule: score.missed for rule, score in scored.items() if score.missed}
    result = figures(scored, scenarios)
    assert result["finding_precision"] >= 0.95, (wrong, missed)
    assert result["finding_recall"] >= 0.95, (wrong, missed)
    evidence = {(str(one), rule): each.evidence for one, rules in found.items() for rule, each in rules.items()}
    for key, pattern in EVIDENCE.items():
        said = evidence[key].partition(", at worst ")[2].partition(": ")[2] or evidence[key]
        assert re.fullmatch(rf"{pattern}, in the hour from \d{{4}}-\d\d-\d\d \d\d:00 UTC", said), key
