"""Prometheus' metric families, made of samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import Metric

Samples = Iterable[tuple[Mapping[str, str], float]]


def gauge(name: str, meaning: str, samples: Samples) -> Metric:
    """A gauge with these label sets and values."""
    return _family(name, meaning, "gauge", "", samples)


def counter(name: str, meaning: str, samples: Samples) -> Metric:
    """A counter; `name` is without `_total`."""
    return _family(name, meaning, "counter", "_total", samples)


def _family(name: str, meaning: str, kind: str, suffix: str, samples: Samples) -> Metric:
    family = Metric(name, meaning, kind)
    for labels, value in samples:
        family.add_sample(f"{name}{suffix}", dict(labels), value)
    return family
