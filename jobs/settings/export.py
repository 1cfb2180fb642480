"""Settings of ``telemetry-lake export``."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from kafka_telemetry_lake.jobs.settings.base import JobSettings, UsageError
from kafka_telemetry_lake.pipelines.export.measures import DEFAULT_DIMENSIONS, DIMENSIONS


def _otlp_url(value: SecretStr) -> SecretStr:
    url = value.get_secret_value()
    if not url.startswith(("http://", "https://")):
        raise ValueError("allowed: a URL that begins with http:// or https://")
    try:
        has_host = bool(urlsplit(url).hostname)
    except ValueError:
        has_host = False
    if not has_host or not url.isprintable():
        raise ValueError("allowed: a URL that begins with http:// or https:// and names a host")
    path = urlsplit(url).path.rstrip("/")
    if found := re.search(r"/v1/(?:metrics|logs|traces)$", path):
        raise ValueError(f"leave {found[0]} out: the path of each signal is added")
    return value


def _dimensions(value: str) -> str:
    wrong = [name for name in value.split(",") if name not in DIMENSIONS]
    if wrong:
        raise ValueError(f"allowed: {', '.join(DIMENSIONS)}, with commas in between")
    return value


def _signals(value: str) -> str:
    if not set(value.split(",")) <= {"metrics", "logs"}:
        raise ValueError("allowed: metrics, logs, or both with a comma in between")
    return value


OtlpUrl = Annotated[SecretStr, AfterValidator(_otlp_url)]


class ExportSettings(JobSettings):
    """Serve fleet figures to Prometheus until stopped, and send points and events by OTLP."""

    lake: str
    """folder or URI of the lake"""
    port: Annotated[int, Field(ge=0, le=65535)] = 9465
    """port for /metrics (Prometheus) and /health; 0: any free port"""
    host: str = "127.0.0.1"
    """address to listen on; there is no login, so expose it only to those who may read it"""
    by: Annotated[str, AfterValidator(_dimensions)] = ",".join(DEFAULT_DIMENSIONS)
    """by what series differ, with commas in between: client (id), application, topic, software, instance"""
    top: Annotated[int, Field(ge=1, le=10_000)] = 100
    """most series of each metric; all others are one series with the label rest"""
    stale_minutes: Annotated[float, Field(gt=0, le=525_600)] = 60
    """a series without new points for so many minutes is dropped"""
    window_minutes: Annotated[float, Field(gt=0, le=1440)] = 10
    """gauges of clients are about the points that landed within so many minutes"""
    refresh_seconds: Annotated[float, Field(ge=0.1, le=3600)] = 15
    """look at the lake every so many seconds; scrapes in between get the same figures"""
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")] = "prometheus"
    """of this exporter: its position in the lake is stored under it, so each exporter of a lake needs its own"""
    otlp: OtlpUrl | None = None
    """URL of an OTLP/HTTP endpoint, such as http://host:4318; points go to its /v1/metrics, events to its /v1/logs [off]"""  # noqa: E501  # the help of the flag, in one line
    otlp_headers: Annotated[dict[str, SecretStr], Field(default_factory=dict)]
    """NAME=VALUE: headers of OTLP requests, for tokens; never logged"""
    otlp_signals: Annotated[str, AfterValidator(_signals)] = "metrics,logs"
    """what is sent, with a comma in between: metrics (points), logs (events)"""
    otlp_temporality: Literal["delta", "cumulative"] = "delta"
    """of sums: increments as they are stored, or totals since the first point that was sent"""
    otlp_since: Literal["now", "start"] = "now"
    """what the first run sends: points and events from now on, or all that the lake has"""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """lowest level of log lines to print"""
    log_format: Literal["text", "json"] = "text"
    """log lines as text or as one JSON object per line"""

    def check_together(self) -> None:
        if self.otlp_headers and self.otlp is None:
            raise UsageError("otlp_headers: needs --otlp URL")
