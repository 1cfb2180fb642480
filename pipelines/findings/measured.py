"""What a rule measures of each subject in each hour, whether it has the finding or not: what a plot of a finding shows.

Measure, bounds and condition are those by which the views judge (`findings.views`): the same SQL of the same rule.
"""

from __future__ import annotations

import functools
from importlib.resources import files

import sqlglot
from sqlglot import exp

from kafka_telemetry_lake.pipelines.findings.model import INSTANCE, Overrides, Rule, columns_of
from kafka_telemetry_lake.pipelines.findings.rules import overridden_rules
from kafka_telemetry_lake.pipelines.findings.views import of_rule, values_of_findings
from kafka_telemetry_lake.pipelines.sql_text import filled
from kafka_telemetry_lake.udfs.errors import CannotRunError


class NotPlottedError(CannotRunError):
    """A rule's measure makes no plot; the message says why."""


@functools.lru_cache(maxsize=64)
def measured_sql(finding: str, overrides: Overrides = (), of_instances: bool = False) -> str:
    """A SELECT in Spark's dialect with a row for each subject and hour; of a rule about instances, for each instance.

    Its columns: cluster_id, subject, client_instance_id, window_start, landed_date, measure; opens and closes, the
    bounds in the measure's unit at which the finding opens and closes (closes is NULL where both are the same); has_it,
    severity; is_known, whether the library pushes anything that the measure is made of.

    Args:
        overrides: other bounds for some client ids.
        of_instances: the subjects of a rule about instances are these, not their client ids.

    Raises:
        NotPlottedError: the rule's measure makes no plot, or there is no such rule.
    """
    rule = {each.id: each for each in overridden_rules(overrides)}.get(finding)
    if rule is None:
        raise NotPlottedError(f"this installation has no rule {finding}")
    opens = rule.line_sql()
    if opens is None:
        raise NotPlottedError(rule.unplotted or "its rule compares no measure with a bound")
    lines = {"opens": opens, "closes": (rule.closes and rule.closing().line_sql()) or "NULL"}
    if rule.scope == INSTANCE:
        pushed = [f"{name} IS NOT NULL" for name in sorted(columns_of(rule.sql(rule.measure)))]
        lines |= {"is_known": f"({' OR '.join(pushed)})", "subject": f"client_{'instance_' * of_instances}id"}
        return of_rule("_measured_of_instances", rule, lines)
    return _with_what_it_reads(rule, of_rule("_measured_of_others", rule, lines))


def _with_what_it_reads(rule: Rule, select: str) -> str:
    """The SELECT, below those relations of view `findings` that the rule reads."""
    text = (files("kafka_telemetry_lake.sql") / "_findings.sql").read_text("utf-8")
    findings = sqlglot.parse_one(filled(text, values_of_findings([rule]) | {"others": ""}), read="spark")
    read = {table.name for table in sqlglot.parse_one(select, read="spark").find_all(exp.Table)}
    known = [each for each in findings.find_all(exp.CTE) if each.alias in read]
    if not known:
        return select
    return f"WITH {', '.join(each.sql('spark', comments=False) for each in known)}\n{select}"
