"""What an agent needs to know before it asks: tables and views, their columns, findings' rules, pages of docs."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from kafka_telemetry_lake.pipelines.agents.answers import AnswerLimits, answer
from kafka_telemetry_lake.pipelines.findings.model import LIBRARIES, Overrides, Rule
from kafka_telemetry_lake.pipelines.findings.rules import measures, rules
from kafka_telemetry_lake.pipelines.query.lake_query import relations
from kafka_telemetry_lake.pipelines.query.query_errors import QueryError
from kafka_telemetry_lake.pipelines.query.views import views
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.udfs.nearest import did_you_mean

FINDING_ID = re.compile(r"[0-9a-f]{32}")
MOST_OPEN = 20  # findings of one rule in an explanation


def list_views(lake: str) -> list[dict[str, str]]:
    """Name, kind and meaning of each table and view. Raises ``QueryError``."""
    return [{key: text or "" for key, text in row.items()} for row in relations(lake).to_pylist()]


def describe_view(lake: str, name: str, limits: AnswerLimits, overrides: Overrides = ()) -> dict[str, Any]:
    """A table's or view's meaning and columns, with their types and, where there is one, their meaning.

    Raises:
        QueryError: there is none of this name.
    """
    known = {row["name"]: row for row in list_views(lake)}
    if name not in known:
        raise QueryError(f"no table or view is called {name[:100]}{did_you_mean(name, known)}")
    quoted = name.replace('"', '""')
    sql = f'SELECT column_name, column_type FROM (DESCRIBE "{quoted}")'
    rows = answer(lake, sql, _all_rows(limits), overrides)["rows"]
    meanings = _meanings(name)
    columns = [
        {"name": column, "type": kind} | ({"meaning": meanings[column]} if meanings.get(column) else {})
        for column, kind in rows
    ]
    described = {**known[name], "columns": columns}
    view = views(overrides).get(name)
    return described if view is None else described | {"question": view.question, "reads": sorted(view.reads)}


def explain_finding(lake: str, finding: str, limits: AnswerLimits, overrides: Overrides = ()) -> dict[str, Any]:
    """The rule of a finding, with its bounds and advice, and the findings of this rule that are open in the lake.

    Args:
        finding: the rule's id, as in column `finding`, or the id of one finding, as in column `finding_id`.

    Raises:
        QueryError: there is no such rule or finding.
    """
    one = FINDING_ID.fullmatch(finding)
    if one:
        sql = f"SELECT finding FROM finding_changes WHERE finding_id = '{finding}' LIMIT 1"
        rows = answer(lake, sql, limits, overrides)["rows"]
        if not rows:
            raise QueryError(f"no finding has the id {finding}: view open_findings has those that are open")
        name = str(rows[0][0])
    else:
        name = finding
    rule = rules().get(name)
    if rule is None:
        raise QueryError(f"no rule is called {name[:100]}{did_you_mean(name, rules())}")
    where = f"finding_id = '{finding}'" if one else f"finding = '{rule.id}'"
    opened = answer(
        lake,
        f"SELECT * FROM open_findings WHERE {where} ORDER BY opened_at DESC, finding_id LIMIT {MOST_OPEN}",
        limits,
        overrides,
    )
    names = [column["name"] for column in opened["columns"]]
    return {"rule": _rule(rule), "open": [dict(zip(names, row, strict=True)) for row in opened["rows"]]} | {
        key: opened[key] for key in ("truncated", "note") if opened.get(key)
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "title": rule.title,
        "scope": rule.scope,
        "severities": rule.severities,
        "condition": rule.condition,
        "bounds": {
            name: {"value": bound.value, "unit": bound.unit, "reason": bound.reason, "source": bound.source}
            for name, bound in rule.bounds.items()
        },
        "measure": f"{rule.measure}, {rule.unit}; {rule.worse} is worse",
        "opens_after_hours": rule.hysteresis.open_after,
        "resolved_after_hours": rule.hysteresis.resolve_after,
        "evidence": rule.evidence,
        "advice": rule.advice,
        "claims": [claim.model_dump(mode="json") for claim in rule.claims],
        "config": rule.config,
        "libraries": {name: getattr(rule.libraries, key) for key, name in LIBRARIES.items()},
    }


def _meanings(name: str) -> dict[str, str]:
    """The meaning of each column that has one."""
    if name == "instance_hours":
        own = measures()
        return own.given | {key: each.meaning for key, each in (own.measures | own.derived).items()}
    return {field.name: (field.metadata or {}).get(b"comment", b"").decode() for field in CATALOG.get(name, ())}


def _all_rows(limits: AnswerLimits) -> AnswerLimits:
    """Limits under which the columns of a table aren't cut off."""
    return AnswerLimits(10_000, 10_000_000, limits.seconds, limits.memory, limits.spill)


@dataclass(frozen=True)
class ToolPage:
    """A page: its name without ``.md``, the question that it answers, and its Markdown."""

    name: str
    question: str
    text: str


@functools.cache
def pages() -> dict[str, ToolPage]:
    """All pages by name."""
    markdown = sorted((files("kafka_telemetry_lake") / "docs").iterdir(), key=lambda file: file.name)
    texts = {file.name.removesuffix(".md"): file.read_text("utf-8") for file in markdown if file.name.endswith(".md")}
    return {name: ToolPage(name, text.partition("\n")[0].removeprefix("# "), text) for name, text in texts.items()}
