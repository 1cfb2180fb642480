"""The rules of the findings: one YAML file a rule in ``sql/findings/``, checked when they are read.

``_measures.yml`` there defines the columns of view `instance_hours`, from which rules about client instances decide.
`_*.sql` there are what a rule adds to the views (`findings.views`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Set
from importlib.resources import files
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from sqlglot.errors import SqlglotError

from kafka_telemetry_lake.pipelines.findings.model import (
    INSTANCE,
    LIBRARIES,
    PLACE,
    Derived,
    Measures,
    OverriddenRule,
    Overrides,
    Rule,
    Saving,
    columns_of,
)
from kafka_telemetry_lake.pipelines.libraries.views import library_hours
from kafka_telemetry_lake.pipelines.runtime.field_problems import field_problems
from kafka_telemetry_lake.pipelines.sql_text import MARKER
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError
from kafka_telemetry_lake.udfs.yaml_text import from_yaml

_FOLDER = "kafka_telemetry_lake.sql"
_RELEASE = re.compile(r"(?<![0-9.])[0-9]+[.][0-9]+(?:[.][0-9]+)?(?![0-9.]*[0-9%])(?! (?:ms|s|%|MB|kB)\b)")


class RuleError(TelemetryLakeError):
    """A rule is invalid; the message names the file, the field and what is wrong."""


def parse_rule(file: str, text: str, measures: Measures) -> Rule:
    """Read and check a rule. Raises ``RuleError``."""
    rule = _parsed(file, text, Rule)
    for field, problem in _problems(file, rule, measures):
        raise RuleError(f"{file}: {field}: {problem}")
    return rule


def parse_measures(file: str, text: str) -> Measures:
    """Read and check the columns of `instance_hours`. Raises ``RuleError``."""
    return _parsed(file, text, Measures)


@functools.cache
def measures() -> Measures:
    """The columns of `instance_hours`, those of the library included. Raises ``RuleError``, ``VersionsError``."""
    read = parse_measures("_measures.yml", (files(_FOLDER) / "findings" / "_measures.yml").read_text("utf-8"))
    library = {name: Derived(sql=sql, meaning=meaning) for name, (sql, meaning) in library_hours().items()}
    return read.model_copy(update={"derived": read.derived | library})


@functools.cache
def rules() -> dict[str, Rule]:
    """All rules by id. Raises ``RuleError``."""
    found = sorted((files(_FOLDER) / "findings").iterdir(), key=lambda file: file.name)
    texts = {file.name: file.read_text("utf-8") for file in found if not file.name.startswith("_")}
    return {name.removesuffix(".yml"): parse_rule(name, text, measures()) for name, text in texts.items()}


def overridden_rules(overrides: Overrides) -> list[Rule]:
    """All rules, those with overrides as `OverriddenRule`."""
    known: list[Rule] = []
    for rule in rules().values():
        own = tuple(each for each in overrides if each.rule == rule.id)
        known.append(OverriddenRule.model_construct(**dict(rule), overrides=own) if own else rule)
    return known


_ModelT = TypeVar("_ModelT", bound=BaseModel)


def _parsed(file: str, text: str, model: type[_ModelT]) -> _ModelT:
    try:
        return model.model_validate(from_yaml(text))
    except yaml.YAMLError as error:
        raise RuleError(f"{file}: not YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        raise RuleError("\n".join(f"{file}: {problem}" for problem in field_problems(error))) from None


def _problems(file: str, rule: Rule, measures: Measures) -> Iterator[tuple[str, str]]:
    """What no single field shows: a field, and what is wrong with it."""
    if rule.id != file.removesuffix(".yml"):
        yield "id", f"{rule.id!r} isn't the name of the file"
    texts = {"condition": rule.condition, "measure": rule.measure, "evidence": rule.evidence, "advice": rule.advice}
    texts |= {"raised.when": rule.raised.when} if rule.raised else {}
    texts |= {"reads": rule.reads} if rule.reads else {}
    texts |= {"line": rule.line} if rule.line else {}
    named = {field: set(MARKER.findall(_expressions(field, text))) for field, text in texts.items()}
    for field, bounds in named.items():
        if unknown := bounds - rule.bounds.keys():
            yield field, f"no bound is called {min(unknown)}"
    if unused := rule.bounds.keys() - set().union(*named.values()):
        yield f"bounds.{min(unused)}", "the rule doesn't use it"
    yield from _problems_of_bounds(rule)
    yield from _problems_of_claims(rule)
    if (rule.reads is None) != (rule.scope == INSTANCE):
        yield "reads", "needed for every scope but instance, and for no instance"
    try:
        columns = rule.columns()
        line = rule.line_sql()
    except SqlglotError as error:
        yield "condition", f"not SQL: {' '.join(str(error).split())}"
        return
    if (line is None) != (rule.unplotted is not None):
        yield "line", "needed, as the condition doesn't compare the measure itself; or unplotted, without a line"
    if rule.scope != INSTANCE:
        if isinstance(rule.saving, Saving):
            yield "saving", "only a rule about client instances has one; others say why they have none"
        return
    known = measures.given.keys() | measures.measures.keys() | measures.derived.keys()
    if strange := columns - known:
        yield "condition", f"instance_hours has no column {min(strange)}"
    yield from _problems_of_saving(rule, known | measures.used.keys())
    needed = metrics_of(columns, measures)
    for library in LIBRARIES:
        listed = getattr(rule.libraries, library)
        if not isinstance(listed, str) and (strange := set(listed) - needed):
            yield f"libraries.{library}", f"the rule doesn't read {min(strange)}"


def _problems_of_bounds(rule: Rule) -> Iterator[tuple[str, str]]:
    for name, bound in rule.bounds.items():
        if not bound.least <= bound.value <= bound.most:
            yield f"bounds.{name}.value", f"not between {bound.least} and {bound.most}"
        if bound.closes is not None and bound.value in (0, bound.closes):
            yield f"bounds.{name}.closes", "needed: a bound other than 0, and another number"
    if rule.closes and rule.scope not in (INSTANCE, "client_id"):
        yield "bounds", "closes works only for scopes instance and client_id"


def _problems_of_claims(rule: Rule) -> Iterator[tuple[str, str]]:
    said = {release for claim in rule.claims for release in _RELEASE.findall(claim.says)}
    texts = {"title": rule.title, "evidence": rule.evidence, "advice": rule.advice}
    texts |= {f"bounds.{name}.reason": bound.reason for name, bound in rule.bounds.items()}
    texts |= {f"libraries.{key}": text for key, text in rule.libraries if isinstance(text, str)}
    for field, text in texts.items():
        if unsaid := set(_RELEASE.findall(PLACE.sub("", text))) - said:
            yield field, f"no claim says where {min(unsaid)} is from"


def _problems_of_saving(rule: Rule, known: Set[str]) -> Iterator[tuple[str, str]]:
    if not isinstance(rule.saving, Saving):
        return
    if rule.saving.requests is None and rule.saving.bytes_in is None:
        yield "saving", "needed: requests, bytes_in, or both"
    for field in ("requests", "bytes_in"):
        try:
            strange = columns_of(getattr(rule.saving, field) or "NULL") - known
        except SqlglotError as error:
            yield f"saving.{field}", f"not SQL: {' '.join(str(error).split())}"
        else:
            if strange:
                yield f"saving.{field}", f"there is no column {min(strange)}"


def _expressions(field: str, text: str) -> str:
    return " ".join(place[1] for place in PLACE.finditer(text)) if field in ("evidence", "advice") else text


def metrics_of(columns: set[str], measures: Measures) -> set[str]:
    """The metrics behind columns of `instance_hours`, without `PREFIX`."""
    found = {metric for name in columns & measures.measures.keys() for metric in measures.measures[name].metrics}
    for name in columns & measures.derived.keys():
        found |= metrics_of(columns_of(measures.derived[name].sql), measures)
    return found
