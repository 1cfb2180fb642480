"""What the rules put into the views of the findings: the values of the markers in their files.

The views are `_instance_hours.sql`, `_instance_findings.sql`, `_findings.sql`, `_finding_groups.sql` and
`_finding_savings.sql` in `sql/`; `sql/findings/_*.sql` is what each rule adds to them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from types import MappingProxyType

from kafka_telemetry_lake.pipelines.findings.model import INSTANCE, PREFIX, Measure, Overrides, Rule, Saving, columns_of
from kafka_telemetry_lake.pipelines.findings.rules import measures, overridden_rules, rules
from kafka_telemetry_lake.pipelines.sql_text import filled, quoted

NO_METHOD = (
    "the advice is about loss, delay or configuration, and no method estimates bytes or requests that it may save too"
)
_METRIC = re.compile(rf"'({re.escape(PREFIX)}[a-z.]+)'")
# How the points of an hour become a measure, from the columns of `points` in `_instance_hours.sql`.
_AGGREGATES = {
    "increase": "sum(CASE WHEN :fits THEN increase END)",
    "covered": "sum(CASE WHEN :fits THEN covered_s END)",
    "still": "sum(CASE WHEN :fits THEN still_s END)",
    "quarters": "bit_count(bit_or(CASE WHEN :fits THEN quarters END))",
    "mean": "sum(CASE WHEN :fits THEN value_sum END) / nullif(sum(CASE WHEN :fits THEN value_count END), 0)",
    "max": "max(CASE WHEN :fits THEN value_max END)",
    "min": "min(CASE WHEN :fits THEN value_min END)",
    "points": "sum(CASE WHEN :fits THEN value_count END)",
}


def finding_values(overrides: Overrides = (), closing: bool = False) -> dict[str, dict[str, str]]:
    """The values of the markers of each view, by its name.

    Args:
        overrides: other bounds for some client ids.
        closing: judge with the bounds at which findings close, and only by rules that have such bounds.
    """
    known = overridden_rules(overrides)
    if closing:
        known = [rule.closing() for rule in known if rule.closes]
    of_instances = [rule for rule in known if rule.scope == INSTANCE]
    return {
        "instance_hours": _instance_hours(),
        "instance_findings": {"rules": ",\n      ".join(of_rule("_of_instances", rule) for rule in of_instances)},
        "findings": values_of_findings(known),
        "finding_groups": values_of_findings(known),
        "finding_savings": {
            "savings": ",\n      ".join(map(_saving, of_instances)),
            "compresses_below": rules()["uncompressed_records"].bound_sql("ratio"),
        },
    }


def values_of_findings(known: Sequence[Rule]) -> dict[str, str]:
    """The values of the markers of view `findings` by these rules."""
    others = [rule for rule in known if rule.scope != INSTANCE]
    series = {metric for rule in others for metric in _METRIC.findall(rule.reads or "")}
    return {
        "less_is_worse": _listed(rule.id for rule in known if rule.scope == INSTANCE and rule.worse == "less"),
        "series": _listed(series),
        "counters": _listed(metric for metric in series if metric.endswith(".total")),
        "others": "\n".join(of_rule("_of_others", rule) for rule in others),
    }


@functools.cache
def _instance_hours() -> dict[str, str]:
    known = measures()
    columns = [f"{_aggregate(measure)} AS {name}" for name, measure in known.measures.items()]
    return {
        "metrics": _listed(PREFIX + metric for measure in known.measures.values() for metric in measure.metrics),
        "whole": _listed(PREFIX + metric for metric in known.whole),
        "since_1970": _listed(PREFIX + metric for metric in known.since_1970),
        "measures": ",\n    ".join(columns),
        "derived": _derived({name: each.sql for name, each in known.derived.items()}),
    }


def _derived(pending: dict[str, str]) -> str:
    """The SELECT that adds the derived columns, each after those that it reads."""
    select = "SELECT * FROM measured"
    while pending:
        ready = {name: sql for name, sql in pending.items() if not columns_of(sql) & pending.keys()}
        added = "".join(f",\n  {sql} AS {name}" for name, sql in ready.items())
        select = f"SELECT\n  m.*{added}\nFROM (\n{select}\n) AS m"
        pending = {name: sql for name, sql in pending.items() if name not in ready}
    return select


def _aggregate(measure: Measure) -> str:
    return filled(
        _AGGREGATES[measure.how], {"fits": f"metric IN ({_listed(PREFIX + each for each in measure.metrics)})"}
    )


def _listed(names: Iterable[str]) -> str:
    """Literals for IN, sorted; an empty text for none."""
    return ", ".join(f"'{name}'" for name in sorted(set(names))) or "''"


def of_rule(file: str, rule: Rule, more: Mapping[str, str] = MappingProxyType({})) -> str:
    """What a rule makes of a file of `sql/findings/`, such as what it adds to view `instance_findings` or `findings`.

    Args:
        more: values of markers besides those of every rule.
    """
    severity = f"'{rule.severity}'"
    if rule.raised is not None:
        severity = f"CASE WHEN {rule.sql(rule.raised.when)} THEN '{rule.raised.to}' ELSE {severity} END"
    return filled(
        _text(file),
        {
            "id": f"'{rule.id}'",
            "scope": f"'{rule.scope}'",
            "severity": severity,
            "reads": rule.sql(rule.reads or ""),
            "condition": rule.condition_sql(),
            "measure": rule.sql(rule.measure),
            "evidence": rule.evidence_sql(),
            "advice": rule.as_sql(rule.advice),
            **more,
        },
    )


def _saving(rule: Rule) -> str:
    """What a rule adds to view `finding_savings`."""
    saving = rule.saving
    values = {"id": f"'{rule.id}'", "condition": rule.condition_sql(), "requests": "NULL", "bytes_in": "NULL"}
    if isinstance(saving, Saving):
        amounts = {"requests": saving.requests, "bytes_in": saving.bytes_in}
        values |= {name: sql for name, sql in amounts.items() if sql is not None}
        unknown = " OR ".join(f"({sql}) IS NULL" for sql in amounts.values() if sql is not None)
        values["untold"] = f"CASE WHEN {unknown} THEN {quoted(saving.unknown)} END"
        values |= {name: quoted(getattr(saving, name)) for name in ("method", "measured", "assumed")}
    else:
        values["untold"] = quoted(saving or NO_METHOD)
        values |= dict.fromkeys(("method", "measured", "assumed"), "CAST(NULL AS STRING)")
    return filled(_text("_savings"), values)


@functools.cache
def _text(file: str) -> str:
    return (files("kafka_telemetry_lake.sql") / "findings" / f"{file}.sql").read_text("utf-8").rstrip("\n")
