"""Settings of ``telemetry-lake what-if``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import CliPositionalArg

from kafka_telemetry_lake.jobs.settings.base import JobSettings, UsageError
from kafka_telemetry_lake.jobs.settings.shared import Time

SMALLEST = "smallest"
QUOTA_TYPES = ("produce", "fetch", "request")


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
    """Say whom a quota would have throttled: telemetry-lake what-if quota --lake DIR --client-id app --produce 1e6"""

    what: CliPositionalArg[Literal["quota"]]
    """what is proposed"""
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
    from_: Annotated[Time | None, Field(alias="from")] = None
    """start of the recorded time, such as 2026-11-30T08:00Z [a day before --to]"""
    to_: Annotated[Time | None, Field(alias="to")] = None
    """its end [now]"""
    format: Literal["table", "vertical", "csv", "jsonl"] = "table"
    """output format, as of query; table leaves out some columns"""

    def check_together(self) -> None:
        if (self.user and self.user_defaults) or (self.client_id and self.client_defaults):
            raise UsageError("user, client_id: name one, or give --user-defaults or --client-defaults, not both")
        if not (self.user or self.user_defaults or self.client_id or self.client_defaults):
            raise UsageError("user, client_id: for whom? --user, --user-defaults, --client-id or --client-defaults")
        given = [name for name in QUOTA_TYPES if getattr(self, name) is not None]
        if len(given) != 1:
            raise UsageError("produce, fetch, request: give one of them")
        if self.throttled_percent and getattr(self, given[0]) != SMALLEST:
            raise UsageError(f"throttled_percent: works only with --{given[0]} {SMALLEST}")
