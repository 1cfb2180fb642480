"""Settings of ``telemetry-lake forget``."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from typing import Annotated, Literal

from pydantic import AfterValidator, SecretStr

from kafka_telemetry_lake.jobs.settings.base import JobSettings, UsageError

PRINCIPAL = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*:[^\x00-\x1f\x7f]+|[0-9a-f]{32}")
LONGEST_PRINCIPAL = 1024  # characters of a stored header


def _instance(value: str) -> str:
    if not re.fullmatch("[A-Za-z0-9_-]{22}", value) or not any(urlsafe_b64decode(f"{value}==")):
        raise ValueError("allowed: a client instance id as the tables have it, such as jHecHqLPQj2rnaP7QRzrmg")
    return value


def _principal(value: str) -> str:
    if len(value) > LONGEST_PRINCIPAL or not PRINCIPAL.fullmatch(value):
        raise ValueError("allowed: a principal as Kafka prints it, such as User:alice, or its pseudonym")
    return value


class ForgetSettings(JobSettings):
    """Erase a client instance or a principal from every table and file of a lake. The job must be stopped."""

    lake: str
    """folder or URI of the lake"""
    client_instance: Annotated[str, AfterValidator(_instance)] | None = None
    """client instance id to erase; write --client-instance=ID if it begins with a hyphen"""
    principal: Annotated[str, AfterValidator(_principal)] | None = None
    """principal to erase, such as User:alice, with all client instances that are its own"""
    cluster_id: str | None = None
    """erase only rows of this cluster [all clusters]"""
    personal_data_key: SecretStr | None = None
    """key of `ingest --personal-data hash`, to find the principal's pseudonym; set it as a variable"""
    checkpoints: str | None = None
    """folder or URI for checkpoints [<lake>/_checkpoints]"""
    dry_run: bool = False
    """only report what would be erased"""
    status: bool = False
    """only list the erasures: when nothing was left of each, or from when on `maintain` can clear its history"""
    format: Literal["table", "json"] = "table"
    """how to print the report"""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "WARNING"
    """lowest level of log lines to print"""

    def check_together(self) -> None:
        if self.status:
            return
        if (self.client_instance is None) == (self.principal is None):
            raise UsageError("client_instance, principal: name one of them: --client-instance ID or --principal NAME")
