"""Settings of ``telemetry-lake doctor``."""

from __future__ import annotations

from typing import Literal

from kafka_telemetry_lake.jobs.settings.base import JobSettings, UsageError
from kafka_telemetry_lake.jobs.settings.shared import KafkaOptions


class DoctorSettings(JobSettings):
    """Check brokers, plugin, topics, rights, subscriptions, lake and machine: each line is ok or says what to do."""

    bootstrap_servers: str | None = None
    """brokers of the cluster to check [only lake and machine]"""
    lake: str | None = None
    """folder or URI of the lake to check [only cluster and machine]"""
    kafka_options: KafkaOptions
    """Kafka client options with prefix kafka. (SASL, SSL), as for ingest; never logged"""
    topic: str = "client-telemetry"
    """topic of landed pushes"""
    status_topic: str = "client-telemetry-status"
    """topic of receiver statuses"""
    quotas_topic: str = "client-quotas"
    """topic of quota samples"""
    format: Literal["text", "json"] = "text"
    """a line for each check, or one JSON object"""

    def check_together(self) -> None:
        if self.bootstrap_servers is None and self.lake is None:
            raise UsageError("bootstrap_servers, lake: name at least one: --bootstrap-servers host:port, --lake DIR")
