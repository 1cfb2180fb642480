"""What a rule of the findings is: the fields of its YAML file, and the SQL that they become.

SQL in a rule has its bounds as markers (`:name`). Texts for people have places (`{expression}`), see ``Rule.as_sql``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import date
from typing import Annotated, Literal, get_args

import sqlglot
from pydantic import BaseModel, ConfigDict, Field
from sqlglot import exp

from kafka_telemetry_lake.pipelines.findings.lines import compared_with
from kafka_telemetry_lake.pipelines.sql_text import filled, quoted
from kafka_telemetry_lake.udfs.findings.states import DEFAULT, Hysteresis

Severity = Literal["error", "warning", "info"]
Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
LIBRARIES = {"java": "Java", "librdkafka": "librdkafka", "franz_go": "franz-go"}
"""The name of each library in a rule's file, and in texts."""
PREFIX = "org.apache.kafka."
INSTANCE = "instance"
EVERY = "*"  # pattern of all client ids
_ESCAPE = "!"
PLACE = re.compile(r"\{([^{}]+?)(?::(1|%|text))?\}")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Bound(_Model):
    """A number that a condition compares with, why it is this number, and who says so."""

    value: float | int
    unit: Text
    reason: Text
    source: Text
    least: float | int = 0
    """the range of values that `pipelines.findings.overrides` may give it: below `least` it makes no sense"""
    most: float | int = 10**15
    closes: float | int | None = None
    """easier than `value`: an open finding stays open while its client is between the two"""

    def closing(self, value: float) -> float:
        """Where a finding closes that opens at `value`: in the same ratio."""
        return value if self.closes is None else value * self.closes / self.value


class Raised(_Model):
    """A worse severity, and the condition for it."""

    to: Severity
    when: Text


class Waits(_Model):
    """How many hours a finding opens and is resolved after, other than those of most rules, and why."""

    open_after: Annotated[int, Field(ge=1, le=24)] = DEFAULT.open_after
    resolve_after: Annotated[int, Field(ge=1, le=168)] = DEFAULT.resolve_after
    reason: Text


class Libraries(_Model):
    """For each library the metrics that the rule needs, or why it can't be judged. An empty list: no metric."""

    java: list[Text] | Text
    librdkafka: list[Text] | Text
    franz_go: list[Text] | Text


class Saving(_Model):
    """What a client instance that has the finding saves in the hour if it follows the advice.

    The expressions may read columns of `instance_hours` and those of `used`. NULL: a metric that they need isn't there.
    """

    requests: Text | None = None
    bytes_in: Text | None = None
    method: Text
    """the formula in words, in a sentence"""
    measured: Text
    assumed: Text
    unknown: Text
    """why the saving is NULL, where it is"""


class Claim(_Model):
    """What the rule says about versions of clients or brokers, who says so, and when that was read."""

    says: Text
    source: Text
    read_on: date


class Test(_Model):
    """The behaviour that shows the finding, and where it is tested."""

    behaviour: Text
    by: Literal["broker", "synthetic rows"]


class Rule(_Model):
    """One rule. Texts of evidence and advice have places such as ``{records_sent}``: see `as_sql`."""

    id: Name
    title: Text
    scope: Literal["instance", "client_id", "principal", "group", "topic", "broker", "quota", "software"] = "instance"
    reads: Text | None = None
    """what a rule of another scope than instances decides from: a SELECT that has at least cluster_id, client_id,
    landed_date, window_start, subject, instances, instances_affected and worst_instance"""
    severity: Severity
    raised: Raised | None = None
    condition: Text
    bounds: dict[Name, Bound] = {}
    waits: Waits | None = None
    measure: Text
    unit: Text
    worse: Literal["more", "less"] = "more"
    line: Text | None = None
    """the bound that the measure is compared with, in its unit; None: the condition compares the measure itself"""
    unplotted: Text | None = None
    """why a plot of the measure would say nothing"""
    evidence: Text
    advice: Text
    claims: list[Claim] = []
    config: Text | None = None
    saving: Saving | Text | None = None
    """what the advice saves, or why that can't be told; None: no method estimates it"""
    libraries: Libraries
    test: Test

    def bound_sql(self, name: str) -> str:
        """A bound as an expression."""
        return str(self.bounds[name].value)

    def condition_sql(self) -> str:
        """When a subject has the finding."""
        return self.sql(self.condition)

    def evidence_sql(self) -> str:
        """The text of the evidence."""
        return self.as_sql(self.evidence)

    def sql(self, text: str) -> str:
        """An expression of the rule, with the bounds' values."""
        return filled(text, {name: self.bound_sql(name) for name in self.bounds})

    def as_sql(self, text: str) -> str:
        """A text with places as an expression: ``{x}`` is x as a whole number, ``{x:1}`` with one digit more,
        ``{x:%}`` a share in percent, and ``{x:text}`` a text. NULL is ``unknown``: nobody asked for the metric, say."""
        parts = []
        last = 0
        for place in PLACE.finditer(text):
            parts += [
                quoted(text[last : place.start()]),
                filled(_FORMATS[place[2] or ""], {"value": self.sql(place[1])}),
            ]
            last = place.end()
        parts = [part for part in [*parts, quoted(text[last:])] if part != "''"]
        return parts[0] if len(parts) == 1 else f"concat({', '.join(parts)})"

    def line_sql(self) -> str | None:
        """Where the finding opens, in the unit of the measure; None: the measure isn't compared with a bound."""
        line = self.line or compared_with(self.condition, self.measure, self.worse)
        return None if line is None else self.sql(line)

    @property
    def closes(self) -> bool:
        """Whether a finding closes elsewhere than it opens."""
        return any(bound.closes is not None for bound in self.bounds.values())

    @property
    def hysteresis(self) -> Hysteresis:
        """How many hours its changes wait for."""
        return DEFAULT if self.waits is None else Hysteresis(self.waits.open_after, self.waits.resolve_after)

    def closing(self) -> Rule:
        """The rule with the bounds at which findings close."""
        bounds = {
            name: bound.model_copy(update={"value": bound.closing(bound.value)}) for name, bound in self.bounds.items()
        }
        return self.model_copy(update={"bounds": bounds})

    @property
    def severities(self) -> list[Severity]:
        """The worst first."""
        both = {self.severity} | ({self.raised.to} if self.raised else set())
        return [each for each in get_args(Severity) if each in both]

    @property
    def judged(self) -> list[str]:
        """The names of the libraries that the rule can judge."""
        return [name for key, name in LIBRARIES.items() if not isinstance(getattr(self.libraries, key), str)]

    def columns(self) -> set[str]:
        """The columns that the rule's expressions name."""
        texts = [self.condition, self.measure, *(place[1] for place in PLACE.finditer(self.evidence + self.advice))]
        texts += [self.raised.when] if self.raised else []
        texts += [self.line] if self.line else []
        return {name for text in texts for name in columns_of(self.sql(text))}


@dataclass(frozen=True)
class Override:
    """What an entry of the file says about one rule.

    Attributes:
        client_id: pattern of client ids: `*` and `?` as in file names.
        bounds: names and values; those of the rule for the others.
        off: the rule gives no finding.
    """

    client_id: str
    rule: str
    bounds: tuple[tuple[str, float], ...] = ()
    off: bool = False


Overrides = tuple[Override, ...]
"""In the order of the file: of those about a rule, the first one that fits a client id is used."""


class OverriddenRule(Rule):
    """A rule with other bounds for some client ids."""

    overrides: Overrides

    def bound_sql(self, name: str) -> str:
        default = super().bound_sql(name)
        return self._choice([str(dict(each.bounds).get(name, default)) for each in self.overrides], default)

    def condition_sql(self) -> str:
        condition = super().condition_sql()
        if not any(each.off for each in self.overrides):
            return condition
        return f"({condition}) AND {self._choice(['FALSE' if each.off else 'TRUE' for each in self.overrides], 'TRUE')}"

    def evidence_sql(self) -> str:
        added = self._choice([quoted(self._shown(each)) for each in self.overrides], "''")
        return f"concat({super().evidence_sql()}, {added})"

    def closing(self) -> Rule:
        overrides = tuple(
            replace(each, bounds=tuple((name, self.bounds[name].closing(value)) for name, value in each.bounds))
            for each in self.overrides
        )
        return super().closing().model_copy(update={"overrides": overrides})

    def _shown(self, override: Override) -> str:
        """The bounds that a client was judged by, and those of the rule."""
        judged = [
            f"{name} = {value} {self.bounds[name].unit} instead of {self.bounds[name].value}"
            for name, value in override.bounds
        ]
        return f" (bounds of {override.client_id}: {', '.join(judged)})" if judged else ""

    def _choice(self, values: list[str], default: str) -> str:
        """The value of the first override that fits the client id."""
        cases = []
        for override, value in zip(self.overrides, values, strict=True):
            if override.client_id == EVERY:
                default = value
                break
            cases.append((override.client_id, value))
        while cases and cases[-1][1] == default:
            cases.pop()
        if not cases:
            return default
        return (
            f"(CASE {' '.join(f'WHEN {_fits(pattern)} THEN {value}' for pattern, value in cases)} ELSE {default} END)"
        )


def _fits(pattern: str) -> str:
    """The condition that a pattern fits column client_id."""
    if not re.search("[*?]", pattern):
        return f"client_id = {quoted(pattern)}"
    escaped = re.sub(f"[{_ESCAPE}%_]", lambda found: _ESCAPE + found[0], pattern)
    like = quoted(escaped.replace("*", "%").replace("?", "_"))
    if escaped == pattern and "\\" not in pattern:
        return f"client_id LIKE {like}"  # DuckDB is quicker without an escape character
    return f"client_id LIKE {like} ESCAPE '{_ESCAPE}'"


class Measure(_Model):
    """A column of `instance_hours`: metrics, and how the hour's points become one number."""

    how: Literal["increase", "covered", "still", "quarters", "mean", "max", "min", "points"]
    metrics: list[Text]
    meaning: Text


class Derived(_Model):
    """A column of `instance_hours` that is computed from others."""

    sql: Text
    meaning: Text


class Measures(_Model):
    """The columns of `instance_hours`."""

    given: dict[Name, Text] = {}
    """those that no metric is needed for, with their meaning"""
    used: dict[Name, Text] = {}
    """what a saving may read besides, with its meaning"""
    whole: list[Text]
    """metrics that clients push for themselves and per topic or partition, of which only the former count"""
    since_1970: list[Text]
    """metrics whose value is the time since 1970 while what they are about hasn't happened yet"""
    measures: dict[Name, Measure]
    derived: dict[Name, Derived]


_FORMATS = {
    # A cast alone rounds in DuckDB, to the even number at a half, and cuts off in Spark.
    "": "coalesce(CAST(TRY_CAST(round(:value) AS BIGINT) AS STRING), 'unknown')",
    # A double alone is 1.0E7 in Spark and 10000000.0 in DuckDB.
    "1": "coalesce(CAST(TRY_CAST(round(:value, 1) AS DECIMAL(38, 1)) AS STRING), 'unknown')",
    "%": "coalesce(CAST(TRY_CAST(round(100 * :value, 1) AS DECIMAL(38, 1)) AS STRING), 'unknown')",
    "text": "coalesce(:value, 'unknown')",
}


def columns_of(sql: str) -> set[str]:
    """The columns that an expression of Spark's dialect names.

    Raises:
        sqlglot.errors.SqlglotError: it isn't one.
    """
    return {column.name for column in sqlglot.parse_one(sql, read="spark").find_all(exp.Column)}
