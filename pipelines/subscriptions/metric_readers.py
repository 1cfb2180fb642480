"""Which metrics each finding and each view reads, by library: from the rules' files and the views' texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from kafka_telemetry_lake.pipelines.findings.model import LIBRARIES, PREFIX
from kafka_telemetry_lake.pipelines.findings.rules import rules
from kafka_telemetry_lake.pipelines.findings.views import finding_values
from kafka_telemetry_lake.pipelines.query.known_metrics import known_metrics, known_metrics_values
from kafka_telemetry_lake.pipelines.query.views import views
from kafka_telemetry_lake.udfs.subscriptions.needs import MetricReader

_NAMED = re.compile(rf"'({re.escape(PREFIX)}[a-z0-9_.%]+)'")
_ALL = f"{PREFIX}%"


def metric_readers(recorded: Iterable[str]) -> Iterator[MetricReader]:
    """The findings, then the views but for those that are made of findings.

    Args:
        recorded: metrics by their whole names. Where a view reads all that begin with a text, these and the known ones.
    """
    libraries = {key: key.replace("_", "-") for key in LIBRARIES}
    for rule in rules().values():
        needed = {name: getattr(rule.libraries, key) for key, name in libraries.items()}
        listed = {
            name: frozenset(PREFIX + each for each in own) for name, own in needed.items() if isinstance(own, list)
        }
        yield MetricReader("finding", rule.id, {name: own for name, own in listed.items() if own})
    of_library = {
        name: {metric for metric, known in known_metrics().items() if key in known.libraries}
        for key, name in libraries.items()
    }
    pushed = set(recorded)
    made_of_rules = finding_values().keys() | known_metrics_values().keys()
    for name, view in sorted(views().items()):
        if name in made_of_rules:
            continue
        patterns = [_pattern(text) for text in set(_NAMED.findall(view.select)) - {_ALL}]
        if not patterns:
            continue
        read = {
            library: frozenset(metric for metric in known | pushed if any(each.fullmatch(metric) for each in patterns))
            for library, known in of_library.items()
        }
        yield MetricReader("view", name, read)


def _pattern(like: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, like.split("%"))))
