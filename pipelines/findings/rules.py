"""The rules of the findings: one YAML file a rule in ``sql/findings/``, checked when they are read.

``_measures.yml`` there defines the columns of view `instance_hours`, from which rules about client instances decide.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Set
from datetime import date
from importlib.resources import files
from typing import Annotated, Literal, TypeVar, get_args

import sqlglot
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlglot import exp
from sqlglot.errors import SqlglotError

from kafka_telemetry_lake.pipelines.libraries.views import library_hours
from kafka_telemetry_lake.pipelines.runtime.field_problems import field_problems
from kafka_telemetry_lake.pipelines.sql_text import quoted
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError
from kafka_telemetry_lake.udfs.findings.states import DEFAULT, Hysteresis

Severity = Literal["error", "warning", "info"]
Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
LIBRARIES = {"java": "Java", "librdkafka": "librdkafka", "franz_go": "franz-go"}
"""The name of each library in a rule's file, and in texts."""
PREFIX = "org.apache.kafka."
INSTANCE = "instance"
# What each client instance and hour has besides the measures: the columns that a rule may read.
GIVEN = {
    "client_id": "client.id of its requests",
    "client_instance_id": "KIP-714 client instance id; NULL: its pushes name none",
    "pushes": "pushes that landed",
    "push_interval_s": "push interval of its subscription, s",
    "quarantined": "pushes that could not be read",
    "set_aside": "pushes that made their processing fail",
    "lost_intervals": "intervals that it collected, but whose push never landed",
    "dropped": "pushes of which the receiver landed the headers only",
    "rejected_points": "points that were not converted",
    "push_bytes_max": "the largest push, bytes, decompressed",
    "push_bytes_last": "its last push, bytes, decompressed; 0: unknown",
    "last_push_at": "when its last push landed",
    "is_member": "1: it has a member id of its group; NULL: none is known, as of partitions assigned by hand",
    "reads_batches": "1: it pushes only while there is something to read (Spark, restore consumers)",
    "clock_ahead_s": "most that a push's points were ahead of its landing, s",
    "clock_behind_s": "least that a push's points were behind its landing, s",
    "software_name": "ClientSoftwareName of its last push that names one",
    "software_version": "ClientSoftwareVersion of that push",
    "duplicates": "events that another process pushed under its instance id",
    "dead_paths": "events that it reached no broker any more",
    "silent_after": "when the push landed after which it fell silent; NULL: it did not, or not yet",
}
# What the SELECT of a rule that isn't about client instances has in any case.
SUBJECT = ("cluster_id", "client_id", "landed_date", "window_start", "subject", "instances", "instances_affected",
           "worst_instance")  # fmt: skip
# What a saving may read besides the columns of `instance_hours`: see view finding_savings.
USED = {
    "used_requests": "requests of the client that the price list counts",
    "compressible_bytes": "bytes that its uncompressed records lose at the ratio of those who compress for the topic",
}
_FOLDER = "kafka_telemetry_lake.sql"
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is ten times as fast
_BOUND = re.compile(r"(?<!:):([a-z][a-z0-9_]*)")
_RELEASE = re.compile(r"(?<![0-9.])[0-9]+[.][0-9]+(?:[.][0-9]+)?(?![0-9.]*[0-9%])(?! (?:ms|s|%|MB|kB)\b)")
_PLACE = re.compile(r"\{([^{}]+?)(?::(1|%|text))?\}")


class RuleError(TelemetryLakeError):
    """A rule is invalid; the message names the file, the field and what is wrong."""


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

    The expressions may read the columns of `instance_hours` and `USED`. NULL: a metric that they need isn't there.
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
    scope: Literal["instance", "client_id", "principal", "group", "topic", "broker", "quota"] = "instance"
    reads: Text | None = None
    """the SELECT with the columns of `SUBJECT` that a rule of another scope than instances decides from"""
    severity: Severity
    raised: Raised | None = None
    condition: Text
    bounds: dict[Name, Bound] = {}
    waits: Waits | None = None
    measure: Text
    unit: Text
    worse: Literal["more", "less"] = "more"
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
        return _BOUND.sub(lambda match: self.bound_sql(match[1]), text)

    def as_sql(self, text: str) -> str:
        """A text with places as an expression: ``{x}`` is x as a whole number, ``{x:1}`` with one digit more,
        ``{x:%}`` a share in percent, and ``{x:text}`` a text. NULL is ``unknown``: nobody asked for the metric, say."""
        parts = []
        last = 0
        for place in _PLACE.finditer(text):
            parts += [quoted(text[last : place.start()]), _FORMATS[place[2] or ""].format(self.sql(place[1]))]
            last = place.end()
        parts = [part for part in [*parts, quoted(text[last:])] if part != "''"]
        return parts[0] if len(parts) == 1 else f"concat({', '.join(parts)})"

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
        texts = [self.condition, self.measure, *(place[1] for place in _PLACE.finditer(self.evidence + self.advice))]
        texts += [self.raised.when] if self.raised else []
        return {name for text in texts for name in columns_of(self.sql(text))}


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
    """The columns of `instance_hours` besides `GIVEN`."""

    whole: list[Text]
    """metrics that clients push for themselves and per topic or partition, of which only the former count"""
    since_1970: list[Text]
    """metrics whose value is the time since 1970 while what they are about hasn't happened yet"""
    measures: dict[Name, Measure]
    derived: dict[Name, Derived]


_FORMATS = {
    # A cast alone rounds in DuckDB, to the even number at a half, and cuts off in Spark.
    "": "coalesce(CAST(TRY_CAST(round({}) AS BIGINT) AS STRING), 'unknown')",
    # A double alone is 1.0E7 in Spark and 10000000.0 in DuckDB.
    "1": "coalesce(CAST(TRY_CAST(round({}, 1) AS DECIMAL(38, 1)) AS STRING), 'unknown')",
    "%": "coalesce(CAST(TRY_CAST(round(100 * {}, 1) AS DECIMAL(38, 1)) AS STRING), 'unknown')",
    "text": "coalesce({}, 'unknown')",
}


def columns_of(sql: str) -> set[str]:
    """The columns that an expression of Spark's dialect names.

    Raises:
        sqlglot.errors.SqlglotError: it isn't one.
    """
    return {column.name for column in sqlglot.parse_one(sql, read="spark").find_all(exp.Column)}


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


_ModelT = TypeVar("_ModelT", bound=BaseModel)


def _parsed(file: str, text: str, model: type[_ModelT]) -> _ModelT:
    try:
        return model.model_validate(yaml.load(text, _Loader))  # a safe loader
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
    named = {field: set(_BOUND.findall(_expressions(field, text))) for field, text in texts.items()}
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
    except SqlglotError as error:
        yield "condition", f"not SQL: {' '.join(str(error).split())}"
        return
    if rule.scope != INSTANCE:
        if isinstance(rule.saving, Saving):
            yield "saving", "only a rule about client instances has one; others say why they have none"
        return
    known = GIVEN.keys() | measures.measures.keys() | measures.derived.keys()
    if strange := columns - known:
        yield "condition", f"instance_hours has no column {min(strange)}"
    yield from _problems_of_saving(rule, known | USED.keys())
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
        if unsaid := set(_RELEASE.findall(_PLACE.sub("", text))) - said:
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
    return " ".join(place[1] for place in _PLACE.finditer(text)) if field in ("evidence", "advice") else text


def metrics_of(columns: set[str], measures: Measures) -> set[str]:
    """The metrics behind columns of `instance_hours`, without `PREFIX`."""
    found = {metric for name in columns & measures.measures.keys() for metric in measures.measures[name].metrics}
    for name in columns & measures.derived.keys():
        found |= metrics_of(columns_of(measures.derived[name].sql), measures)
    return found
