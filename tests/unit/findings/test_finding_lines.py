"""The line of a finding's plot: the bound that the condition of its rule compares the measure with, in its unit."""

from __future__ import annotations

import pytest

from kafka_telemetry_lake.pipelines.findings.lines import compared_with
from kafka_telemetry_lake.pipelines.findings.measured import NotPlottedError, measured_sql
from kafka_telemetry_lake.pipelines.findings.model import INSTANCE
from kafka_telemetry_lake.pipelines.findings.rules import rules
from kafka_telemetry_lake.pipelines.query.views import parse_view
from tests.dashboard.planted_faults import FAULTS
from tests.support.made_clients import QUIET, Client, tables_of
from tests.support.sql_views import answer, views_judged_by

UNPLOTTED = {"buggy_client_version"}
# Rules that hold by another part of their condition too, whatever their measure is.
OTHER_PARTS = {"buffer_full", "heartbeat_at_risk", "stuck_in_queue"}


@pytest.mark.parametrize(
    ("condition", "measure", "worse", "line"),
    [
        ("a >= :x", "a", "more", ":x"),
        ("a > :x AND b < :y", "a", "more", ":x"),
        ("a > :x AND b < :y", "b", "less", ":y"),
        ("a >= :x AND a >= :y * c", "a", "more", "greatest(:x, :y * c)"),
        ("a < :x AND a < c", "a", "less", "least(:x, c)"),
        ("a / b > :x", "a / b", "more", ":x"),
        ("a < :x AND a > :y", "a", "more", ":y"),  # from one to another bound: what is worse counts
        ("a > :x OR b > :y", "a", "more", None),
        ("2 * a > :x", "a", "more", None),
        ("b > 0", "a", "more", None),
    ],
)
def test_findings_measure_is_compared_with_a_bound(condition: str, measure: str, worse: str, line: str | None) -> None:
    assert compared_with(condition, measure, worse) == line


def test_findings_line_is_in_the_unit_of_the_measure() -> None:
    """Seconds, of a condition that compares nanoseconds; where the finding closes, the same of its bounds."""
    rule = rules()["metadata_waits"]
    assert rule.line_sql() == "greatest(10000000000 / 1000000000, 0.01 * sending_s)"
    assert rule.closing().line_sql() == "greatest(8000000000.0 / 1000000000, 0.008 * sending_s)"
    assert (rules()["tiny_batches"].line_sql(), rules()["tiny_batches"].closing().line_sql()) == ("4096", "5120.0")
    assert {name for name, rule in rules().items() if rule.line_sql() is None} == UNPLOTTED


@pytest.mark.parametrize("finding", sorted(rules()))
def test_findings_measured_rows_have_a_measure_and_two_bounds(finding: str) -> None:
    if finding in UNPLOTTED:
        with pytest.raises(NotPlottedError, match="a version is no amount"):
            measured_sql(finding)
        return
    view, views = parse_view("measures", measured_sql(finding)), views_judged_by((), False)
    for name in view.reads:
        views.tables_below(name)
    rows = views.connection.sql(view.duckdb)
    assert rows.columns == [
        "cluster_id", "subject", "client_instance_id", "window_start", "landed_date", "measure", "opens", "closes",
        "has_it", "severity", "is_known",
    ]  # fmt: skip
    assert {rows.types[rows.columns.index(name)] for name in ("measure", "opens")} == {"DOUBLE"}
    assert ('CAST(NULL AS DOUBLE) AS "closes"' in view.duckdb) is not rules()[finding].closes


@pytest.mark.lake
def test_findings_measured_rows_are_those_of_the_view_and_beyond_their_line() -> None:
    """Of clients with a fault each: the same measure, severity and instances; the healthy one has a measure too."""
    clients = {f"with {finding}": Client({**QUIET, **fault.metrics}) for finding, fault in FAULTS.items()}
    tables = tables_of(clients | {"with ": Client(QUIET)})
    said = answer("instance_findings", tables)
    assert {row["finding"] for row in said} >= FAULTS.keys()
    for finding in sorted({row["finding"] for row in said}):
        rule = rules()[finding]
        assert rule.scope == INSTANCE
        measured = answer("instance_hours", tables, parse_view("measures", measured_sql(finding)).duckdb)
        having = {row["subject"]: (row["measure"], row["severity"]) for row in measured if row["has_it"]}
        assert having == {
            row["client_id"]: (row["measure"], row["severity"]) for row in said if row["finding"] == finding
        }
        for row in measured:
            if row["has_it"] and finding not in OTHER_PARTS:
                assert row["measure"] >= row["opens"] if rule.worse == "more" else row["measure"] <= row["opens"]
            if row["closes"] is not None and not row["has_it"]:
                assert row["closes"] <= row["opens"] if rule.worse == "more" else row["closes"] >= row["opens"]
        assert {row["subject"] for row in measured} == {f"with {name}" for name in ("", *FAULTS)}
