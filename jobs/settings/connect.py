"""Settings of ``telemetry-lake connect``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveInt

from kafka_telemetry_lake.jobs.settings.base import JobSettings
from kafka_telemetry_lake.jobs.settings.shared import KafkaOptions


class ConnectSettings(JobSettings):
    """Connect a cluster to a lake: make what is missing with your consent, say what the brokers need, and ingest."""

    bootstrap_servers: str
    """brokers of the cluster; the user needs Create and AlterConfigs on it for what is missing"""
    lake: str
    """folder or URI of the lake; created if missing"""
    yes: bool = False
    """consent to all changes, instead of being asked for each"""
    ingest: bool = True
    """then run the job until it is stopped, and print the first rows"""
    partitions: PositiveInt = 12
    """partitions of the topic of pushes, if it is created"""
    metrics: str = "org.apache.kafka."
    """prefix of the metrics to request, if no subscription requests any; franz-go takes * for a literal prefix"""
    interval_seconds: Annotated[float, Field(ge=0.1, le=3600)] = 60
    """push interval of that subscription"""
    topic: str = "client-telemetry"
    """topic of landed pushes"""
    status_topic: str = "client-telemetry-status"
    """topic of receiver statuses"""
    quotas_topic: str = "client-quotas"
    """topic of quota samples"""
    driver_memory: Annotated[str, Field(pattern=r"^\d+[mg]$")] = "2g"
    """memory of the job's local Spark driver"""
    kafka_options: KafkaOptions
    """Kafka client options with prefix kafka. (SASL, SSL), as for ingest; never logged"""
