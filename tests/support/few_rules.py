"""A lake judged by some of the rules: the plan of all of them takes a second, also for an hour without a push."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from kafka_telemetry_lake.pipelines.findings.model import Overrides, Rule
from kafka_telemetry_lake.pipelines.findings.rules import overridden_rules, rules
from kafka_telemetry_lake.pipelines.query import views


@contextmanager
def judged_by(*ids: str) -> Iterator[None]:
    """Views of findings have these rules alone. One of them must be about client instances."""
    assert set(ids) <= rules().keys()

    def some(overrides: Overrides) -> list[Rule]:
        return [rule for rule in overridden_rules(overrides) if rule.id in ids]

    views._texts.cache_clear()
    try:
        with patch("kafka_telemetry_lake.pipelines.findings.views.overridden_rules", some):
            yield
    finally:
        views._texts.cache_clear()
