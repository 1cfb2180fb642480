"""What is exported of a fleet, by `sql/metrics/exported.yml`: measures under Prometheus' names, and their labels.

Names follow https://prometheus.io/docs/practices/naming/: base units (seconds, bytes, ratios), `_total` of counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kafka_telemetry_lake.pipelines.sql_text import sql_yaml

PREFIX = "telemetry_lake"
KAFKA = "org.apache.kafka."
OTHER, REST = "other", "rest"  # the value of labels of all series beyond the first N, and the label that only they have
LONGEST_LABEL = 256  # characters
UNCOUNTED = ("duplicate", "conflict", "too_late")  # statuses of points that view counted_points leaves out


@dataclass(frozen=True)
class Dimension:
    """What tells series apart, besides the cluster.

    Attributes:
        columns: column of the counted rows to its label.
    """

    name: str
    columns: dict[str, str]
    whose: str

    @property
    def labels(self) -> tuple[str, ...]:
        return ("cluster_id", *self.columns.values())


DIMENSIONS = {
    each.name: each
    for each in (
        Dimension("client", {"client_id": "client_id"}, "of clients with this client id"),
        Dimension("application", {"application": "application"}, "of an application's clients"),
        Dimension("topic", {"topic": "topic"}, "of a topic"),
        Dimension(
            "software",
            {"client_software_name": "software_name", "client_software_version": "software_version"},
            "of clients of this library and version",
        ),
        Dimension(
            "instance", {"client_instance_id": "client_instance_id", "client_id": "client_id"}, "of a client instance"
        ),
    )
}
DEFAULT_DIMENSIONS = ("client", "application", "topic", "software")


@dataclass(frozen=True)
class Counted:
    """A counter: the sum of the deltas of some metrics."""

    measure: str
    name: str
    meaning: str
    metrics: tuple[str, ...]
    topic_metrics: tuple[str, ...] = ()
    divisor: int = 1


@dataclass(frozen=True)
class Level:
    """A gauge: the mean or the greatest of the values that were pushed within the window."""

    measure: str
    name: str
    meaning: str
    metrics: tuple[str, ...]
    is_mean: bool
    divisor: int = 1
    above_zero: bool = False


@dataclass(frozen=True)
class State:
    """A gauge over a view: labels and, last, the value."""

    name: str
    meaning: str
    sql: str
    kept: Sequence[str] = ()
    rest: str = "sum"
    first: str = "greatest"


_CONTENT = sql_yaml("metrics", "exported.yml")


def _named(given: dict[str, Any]) -> dict[str, Any]:
    """A counter or gauge with all names of its metrics."""
    return given | {key: tuple(_every(given[key])) for key in ("metrics", "topic_metrics") if key in given}


def _every(metrics: Sequence[str]) -> list[str]:
    for kind in ("client", "fetch"):
        metrics = [
            metric.replace(f"{{{kind}}}", each)
            for metric in metrics
            for each in (_CONTENT[kind] if f"{{{kind}}}" in metric else [""])
        ]
    return list(metrics)


COUNTERS = tuple(Counted(**_named(given)) for given in _CONTENT["counters"])
LEVELS = tuple(Level(**_named(given)) for given in _CONTENT["levels"])
STATES = tuple(State(**given) for given in _CONTENT["states"])


def counted_rows() -> list[dict[str, str | bool | None]]:
    """Which points count in which counter: metric, measure, level (client or topic), with_topic (None: either)."""
    rows: list[dict[str, str | bool | None]] = []
    for each in COUNTERS:
        both = set(each.metrics) & set(each.topic_metrics)
        for metric in each.metrics:
            # A consumer pushes the same metric for itself and for each topic, a producer its bytes per topic only.
            with_topic = False if metric in both and metric.startswith("consumer.") else None
            rows.append(
                {"metric": KAFKA + metric, "measure": each.measure, "level": "client", "with_topic": with_topic}
            )
        rows += [
            {"metric": KAFKA + metric, "measure": each.measure, "level": "topic", "with_topic": True}
            for metric in each.topic_metrics
        ]
    return rows


def level_rows() -> list[dict[str, str | bool]]:
    """Which points are values of which gauge: metric, measure, above_zero."""
    return [
        {"metric": KAFKA + metric, "measure": each.measure, "above_zero": each.above_zero}
        for each in LEVELS
        for metric in each.metrics
    ]


def read_metrics() -> list[str]:
    """The metrics of both."""
    return sorted({*(str(row["metric"]) for row in counted_rows()), *(str(row["metric"]) for row in level_rows())})
