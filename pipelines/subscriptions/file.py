"""Reads subscriptions from a YAML file, for users without access to the cluster's configuration."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from kafka_telemetry_lake.pipelines.runtime.field_problems import field_problems, read_yaml
from kafka_telemetry_lake.pipelines.subscriptions.configured import ConfiguredSubscriptions
from kafka_telemetry_lake.udfs.subscriptions.matching import (
    DEFAULT_INTERVAL_MS,
    HIGHEST_INTERVAL_MS,
    JAVA_SPACE,
    LOWEST_INTERVAL_MS,
    MATCH_KEYS,
    Subscription,
    SubscriptionError,
)


class _SubscriptionEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(min_length=1)]
    metrics: list[str]
    interval_ms: Annotated[int, Field(ge=LOWEST_INTERVAL_MS, le=HIGHEST_INTERVAL_MS)] = DEFAULT_INTERVAL_MS
    match: dict[str, str] = Field(default_factory=dict)

    @field_validator("metrics")
    @classmethod
    def _prefixes(cls, metrics: list[str]) -> list[str]:
        for prefix in metrics:
            if "," in prefix or prefix != prefix.strip(JAVA_SPACE):
                raise ValueError(f"got {prefix!r}, allowed: prefixes without commas and outer spaces")
        return metrics

    @field_validator("match")
    @classmethod
    def _entries(cls, match: dict[str, str]) -> dict[str, str]:
        for key, pattern in match.items():
            if key not in MATCH_KEYS:
                raise ValueError(f"got key {key!r}, allowed: {', '.join(MATCH_KEYS)}")
            if not pattern or set(",=") & set(pattern) or pattern != pattern.strip(JAVA_SPACE):
                raise ValueError(f"{key}: got {pattern!r}, allowed: a Java regular expression without ',' and '='")
        return match


class _SubscriptionsFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    cluster_id: str | None = None
    subscriptions: list[_SubscriptionEntry]


def read_subscriptions_file(path: Path, cluster_id: str | None) -> ConfiguredSubscriptions:
    """Read the subscriptions of one cluster from a YAML file.

    The file has a list `subscriptions` of name, metrics, interval_ms and match (attribute: Java regular expression),
    and may have a `cluster_id`, which `cluster_id` overrides.

    Raises:
        SubscriptionError: the file is invalid; the message names the key, the value and what is allowed.
    """
    read = read_yaml(path, SubscriptionError)
    try:
        content = _SubscriptionsFile.model_validate(read)
    except ValidationError as error:
        raise SubscriptionError(
            "\n".join(f"{path}: {problem}" for problem in field_problems(error, allowed=_fields))
        ) from None
    cluster = cluster_id or content.cluster_id
    if not cluster:
        raise SubscriptionError(f"{path}: cluster_id: needed, here or by --cluster-id")
    subscriptions: dict[str, Subscription] = {}
    for entry in content.subscriptions:
        if entry.name in subscriptions:
            raise SubscriptionError(f"{path}: subscription {entry.name!r}: given twice, allowed: each name once")
        match = tuple(sorted(entry.match.items()))
        try:
            subscription = Subscription(entry.name, tuple(entry.metrics), entry.interval_ms, match)
            subscriptions[entry.name] = subscription.check()
        except SubscriptionError as error:
            raise SubscriptionError(f"{path}: {error}") from None
    return ConfiguredSubscriptions(cluster, tuple(subscriptions.values()))


def _fields(path: tuple[int | str, ...]) -> Iterable[str]:
    return (_SubscriptionEntry if len(path) > 1 else _SubscriptionsFile).model_fields
