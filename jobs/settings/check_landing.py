"""Settings of ``telemetry-lake check-landing``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import CliPositionalArg

from kafka_telemetry_lake.jobs.settings.base import JobSettings, UsageError
from kafka_telemetry_lake.jobs.settings.shared import KafkaOptions


class CheckLandingSettings(JobSettings):
    """Check landing records of another receiver: what is wrong with each, by the contract in docs/landing.md."""

    target: CliPositionalArg[str]
    """a Parquet or JSON-lines file, or a folder of them; with --bootstrap-servers a topic"""
    bootstrap_servers: str | None = None
    """brokers of the topic; the user needs Read on it, but no consumer group"""
    kafka_options: KafkaOptions
    """Kafka client options with prefix kafka. (SASL, SSL), as for ingest; never logged"""
    max_records: Annotated[int, Field(ge=1)] = 1000
    """records of a topic to check, the newest; of files all are checked"""
    max_problems: Annotated[int, Field(ge=0)] = 100
    """most problems to print one by one; the summary counts all"""
    format: Literal["text", "jsonl"] = "text"
    """text, or one JSON object per problem and a last one with the counts"""
    status_topic: str = "client-telemetry-status"
    """topic of receiver statuses: such records in files are not checked"""
    quotas_topic: str = "client-quotas"
    """topic of quota samples: such records in files are not checked"""

    def check_together(self) -> None:
        if self.kafka_options and self.bootstrap_servers is None:
            raise UsageError("kafka_options: works only with --bootstrap-servers")
        if self.bootstrap_servers is None and "://" in self.target:
            raise UsageError(f"target: {self.target} is a URI; allowed: a file or folder of this machine")
