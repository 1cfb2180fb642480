"""View `known_metrics`: what `sql/metrics/known.yml` says about the metrics that clients push."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from kafka_telemetry_lake.pipelines.findings.model import LIBRARIES, PREFIX
from kafka_telemetry_lake.pipelines.sql_text import quoted, sql_yaml

_CLIENT = "{client}"
_SEPARATOR = "|"  # no text has it; sql/_known_metrics.sql splits by it
# Ending of a name: how points become one number, how the meaning begins, and what follows the unit.
ENDINGS = {
    "total": ("sum", "Increase of the ", ""),
    "rate": ("rate", "Per second over the client's own window: ", "/s"),
    "rate.per.hour": ("rate", "Per hour over the client's own window: ", "/hour"),
    "avg": ("mean", "Mean: ", ""),
    "max": ("max", "Greatest: ", ""),
    "min": ("min", "Least: ", ""),
    "": ("last", "", ""),
}
ADVICE = {
    "sum": "Sum delta over time and clients, at one level. Never sum value.",
    "rate": "Never sum or average it over time: divide the increase of the counter by the time that it covers.",
    "mean": "Never sum it. A mean of means ignores how often each client measured.",
    "max": "Take the greatest. Never sum or average it.",
    "min": "Take the least. Never sum or average it.",
    "last": "A state: take the latest of each series. Never sum it over time.",
}


class _Family(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    names: list[str]
    endings: list[Literal["total", "rate", "rate.per.hour", "avg", "max", "min", ""]]
    of: str
    unit: str
    level: str = "client"
    measure: str | None = None
    sum: bool = False
    libraries: list[str] = ["java"]
    source: str = "java"


@dataclass(frozen=True)
class KnownMetric:
    """What is known about a metric. `metric` is the whole name, `libraries` are keys of ``model.LIBRARIES``."""

    metric: str
    unit: str
    meaning: str
    aggregate: str
    level: str
    measure: str | None
    libraries: tuple[str, ...]
    source: str


@functools.cache
def known_metrics() -> dict[str, KnownMetric]:
    """All known metrics by whole name.

    Raises:
        ValueError: the file isn't valid, or describes a metric twice.
    """
    content = _content()
    found: dict[str, KnownMetric] = {}
    for given in content["families"]:
        family = _Family.model_validate({"endings" if key == "as" else key: value for key, value in given.items()})
        for metric in _metrics(family, content["clients"], content["sources"]):
            if metric.metric in found:
                raise ValueError(f"known.yml: {metric.metric} is described twice")
            found[metric.metric] = metric
    return found


def read_on() -> date:
    """When the sources were last read."""
    day: date = _content()["read_on"]
    return day


def known_metrics_values() -> dict[str, dict[str, str]]:
    """The values of the markers of view `known_metrics`.

    Each metric is one literal: with a literal for each column, every query would spend 0.2 s on parsing them.
    """
    rows = ",\n".join(f"({quoted(_line(metric))})" for metric in known_metrics().values())
    advice = " ".join(f"WHEN {quoted(name)} THEN {quoted(text)}" for name, text in ADVICE.items())
    return {"known_metrics": {"rows": rows, "advice": advice}}


@functools.cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = sql_yaml("metrics", "known.yml")
    return content


def _metrics(family: _Family, clients: list[str], sources: dict[str, str]) -> Iterator[KnownMetric]:
    names = [
        name.replace(_CLIENT, client) for name in family.names for client in (clients if _CLIENT in name else [""])
    ]
    for name in names:
        for ending in family.endings:
            aggregate, begin, per = ENDINGS[ending]
            if family.sum:
                aggregate = "sum"
            meaning = f"{begin}{family.of}"
            yield KnownMetric(
                PREFIX + (f"{name}.{ending}" if ending else name),
                family.unit + per,
                f"{meaning[0].upper()}{meaning[1:]}.",
                aggregate,
                family.level,
                # A rate, mean or state is never summed, so it can't count anything twice.
                family.measure if aggregate == "sum" else None,
                tuple(family.libraries),
                sources[family.source],
            )


def _line(known: KnownMetric) -> str:
    libraries = ",".join(LIBRARIES[name].lower() for name in known.libraries)
    texts = (known.metric, known.unit, known.meaning, known.aggregate, known.level, known.measure or "", libraries)
    return _SEPARATOR.join((*texts, known.source))
