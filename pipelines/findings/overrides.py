"""Other bounds of the findings' rules for some client ids, from a YAML file such as ``conf/findings.yml``.

They become conditions in the SQL of the views, so that whatever runs a view (DuckDB, Spark, Databricks) judges alike. A
rule that nobody overrides costs nothing more.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kafka_telemetry_lake.pipelines.findings.model import EVERY, INSTANCE, Override, Overrides, Rule
from kafka_telemetry_lake.pipelines.findings.rules import rules
from kafka_telemetry_lake.pipelines.runtime.field_problems import read_yaml
from kafka_telemetry_lake.udfs.errors import CannotRunError
from kafka_telemetry_lake.udfs.nearest import did_you_mean

ENTRY = ("client_id", "rules")
# Scopes of which each row is about a client id. Rows of the others have none, so only the pattern for all fits them.
ABOUT_CLIENT_IDS = (INSTANCE, "client_id", "topic", "quota")


class FindingsFileError(CannotRunError):
    """The file is invalid; the message is one line with the file, the entry and what is wrong."""


def read_overrides(path: Path | None) -> Overrides:
    """Read and check the file. Without one nothing is overridden. Raises ``FindingsFileError``."""
    if path is None:
        return ()
    content = read_yaml(path, FindingsFileError)
    try:
        overrides = tuple(_overrides(content))
        _check_use(overrides)
    except FindingsFileError as error:
        raise FindingsFileError(f"{path}: {error}") from None
    return overrides


def _overrides(content: Any) -> Iterator[Override]:
    if not isinstance(content, Mapping) or content.keys() != {"overrides"}:
        raise FindingsFileError("needed: the field overrides, a list, and no other field")
    entries = content["overrides"] or []
    if not isinstance(entries, list):
        raise FindingsFileError(f"overrides: needed: a list, got {_text(entries)}")
    for number, entry in enumerate(entries):
        where = f"overrides.{number}"
        if not isinstance(entry, Mapping) or entry.keys() != set(ENTRY):
            raise FindingsFileError(f"{where}: needed: the fields client_id and rules, and no others")
        pattern, named = entry["client_id"], entry["rules"]
        if not isinstance(pattern, str) or not pattern:
            raise FindingsFileError(f"{where}.client_id: needed: a pattern as text, got {_text(pattern)}")
        if not isinstance(named, Mapping) or not named:
            raise FindingsFileError(f"{where}.rules: needed: rules with their bounds, got {_text(named)}")
        for name, said in named.items():
            yield _override(f"{where}.rules.{_text(name)}", pattern, name, said)


def _override(where: str, pattern: str, name: Any, said: Any) -> Override:
    rule = rules().get(name) if isinstance(name, str) else None
    if rule is None:
        raise FindingsFileError(f"{where}: no rule is called that{did_you_mean(str(name), rules())}")
    if pattern != EVERY and rule.scope not in ABOUT_CLIENT_IDS:
        raise FindingsFileError(f"{where}: it is about a {rule.scope}, not a client id: only client_id '*' fits it")
    if said is False or said == "off":  # YAML reads a plain off as false
        return Override(pattern, rule.id, off=True)
    if not isinstance(said, Mapping) or not said:
        raise FindingsFileError(f"{where}: needed: bounds with their values, or off; got {_text(said)}")
    return Override(
        pattern, rule.id, tuple((bound, _value(where, rule, bound, value)) for bound, value in said.items())
    )


def _value(where: str, rule: Rule, name: Any, value: Any) -> float:
    bound = rule.bounds.get(name) if isinstance(name, str) else None
    if bound is None:
        has = f"it has {', '.join(rule.bounds)}" if rule.bounds else "it has none"
        raise FindingsFileError(f"{where}: no bound is called {_text(name)}: {has}")
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or (isinstance(value, float) and not math.isfinite(value))
    ):
        raise FindingsFileError(f"{where}.{name}: needed: a number of {bound.unit}, got {_text(value)}")
    if not bound.least <= value <= bound.most:
        raise FindingsFileError(f"{where}.{name}: {value} isn't between {bound.least} and {bound.most}: {bound.unit}")
    return value


def _check_use(overrides: Overrides) -> None:
    """Raise ``FindingsFileError`` for a pattern that nothing reaches, as an earlier one fits all its client ids."""
    for number, later in enumerate(overrides):
        for earlier in overrides[:number]:
            if earlier.rule == later.rule and _covers(earlier.client_id, later.client_id):
                raise FindingsFileError(
                    f"client_id {later.client_id!r} is never used for {later.rule}: {earlier.client_id!r} before it "
                    "fits all its client ids; put it first"
                )


def _covers(pattern: str, other: str) -> bool:
    """Whether a pattern certainly fits every client id that another one fits."""
    parts = {"*": ".*", "?": "[^*]"}
    return re.fullmatch("".join(parts.get(one, re.escape(one)) for one in pattern), other, re.DOTALL) is not None


def _text(value: Any) -> str:
    return repr(value)[:80]
