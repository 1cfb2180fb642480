"""Settings of ``telemetry-lake what-if``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import CliPositionalArg

from kafka_telemetry_lake.jobs.settings.base import JobSettings, UsageError
from kafka_telemetry_lake.jobs.settings.shared import Time

SMALLEST = "smallest"
QUOTA_TYPES = ("produce", "fetch", "request")
QUOTA = ("user", "user_defaults", "client_id", "client_defaults", *QUOTA_TYPES, "throttled_percent")
CHANGES = ("metrics", "interval_ms", "match")
SUBSCRIPTION = ("name", *CHANGES, "subscriptions_file", "cluster_id", "show")


def _limit(value: str) -> str:
    if value != SMALLEST:
        try:
            fits = 0 < float(value) < float("inf")
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(f"allowed: a number above 0, or {SMALLEST}")
    return value


def _bytes(value: str) -> str:
    if value != SMALLEST and not float(_limit(value)).is_integer():  # brokers refuse others
        raise ValueError(f"allowed: a whole number, such as 1000000 or 1e6, or {SMALLEST}")
    return value


Percent = Annotated[str, AfterValidator(_limit)]
Bytes = Annotated[str, AfterValidator(_bytes)]


class WhatIfSettings(JobSettings):
    """Say what a proposed quota or subscription would do, from what the lake has recorded, before brokers change."""

    what: CliPositionalArg[Literal["quota", "subscription"]]
    """what is proposed: quota (--client-id app --produce 1e6), or subscription (--name all --interval-ms 60000)"""
    lake: str
    """folder or URI of the lake"""
    user: str = ""
    """the quota's user; without it the quota is one of all users"""
    user_defaults: bool = False
    """a quota of each user that has none of its own, as of kafka-configs"""
    client_id: str = ""
    """the quota's client id; without it the quota is one of all client ids"""
    client_defaults: bool = False
    """a quota of each client id that has none of its own"""
    produce: Bytes | None = None
    """bytes a second and broker; or smallest: the least that throttles nobody for more than --throttled-percent"""
    fetch: Bytes | None = None
    """bytes a second and broker that are fetched, or smallest"""
    request: Percent | None = None
    """percent of one thread's time a broker, or smallest"""
    throttled_percent: Annotated[float, Field(ge=0, lt=100)] = 0.0
    """with smallest: for so many percent of its recorded time an entity may be throttled"""
    name: str = ""
    """name of the subscription that would change, or be new"""
    metrics: list[str] | None = None
    """prefixes that it would request, with commas in between; * for all [as it is]"""
    interval_ms: int | None = None
    """its push interval, ms [as it is; of a new one 300000]"""
    match: dict[str, str] | None = None
    """whom it would match: a Java regular expression by attribute, such as client_id=orders-.* [as it is; all]"""
    subscriptions_file: Path | None = None
    """YAML file of all subscriptions that there would be, as for sync, instead of --name"""
    cluster_id: str | None = None
    """cluster of the subscriptions, if the lake has several"""
    show: Literal["totals", "clients", "needs"] = "totals"
    """the cluster's totals, a row for each client, or the findings and views that lose or gain metrics"""
    from_: Annotated[Time | None, Field(alias="from")] = None
    """start of the recorded time, such as 2026-11-30T08:00Z [quota: a day before --to; subscription: an hour]"""
    to_: Annotated[Time | None, Field(alias="to")] = None
    """its end [now]"""
    format: Literal["table", "vertical", "csv", "jsonl"] = "table"
    """output format, as of query; table leaves out some columns"""

    def check_together(self) -> None:
        others = SUBSCRIPTION if self.what == "quota" else QUOTA
        fields = type(self).model_fields
        if strange := [name for name in others if getattr(self, name) != fields[name].default]:
            other = "subscription" if self.what == "quota" else "quota"
            raise UsageError(f"{strange[0]}: works only with what-if {other}")
        if self.what == "quota":
            self._check_quota()
        else:
            self._check_subscription()

    def _check_quota(self) -> None:
        if (self.user and self.user_defaults) or (self.client_id and self.client_defaults):
            raise UsageError("user, client_id: name one, or give --user-defaults or --client-defaults, not both")
        if not (self.user or self.user_defaults or self.client_id or self.client_defaults):
            raise UsageError("user, client_id: for whom? --user, --user-defaults, --client-id or --client-defaults")
        given = [name for name in QUOTA_TYPES if getattr(self, name) is not None]
        if len(given) != 1:
            raise UsageError("produce, fetch, request: give one of them")
        if self.throttled_percent and getattr(self, given[0]) != SMALLEST:
            raise UsageError(f"throttled_percent: works only with --{given[0]} {SMALLEST}")

    def _check_subscription(self) -> None:
        if bool(self.name) == (self.subscriptions_file is not None):
            raise UsageError("name, subscriptions_file: which subscription? set exactly one of both")
        given = [name for name in CHANGES if getattr(self, name) is not None]
        if self.name and not given:
            raise UsageError("metrics, interval_ms, match: what would change? give at least one of them")
        if given and not self.name:
            raise UsageError(f"{given[0]}: works only with --name")
