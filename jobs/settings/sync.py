"""Settings of ``telemetry-lake sync``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from kafka_telemetry_lake.jobs.settings.base import JobSettings, UsageError
from kafka_telemetry_lake.jobs.settings.shared import KafkaOptions


class SyncSettings(JobSettings):
    """Record the history of subscriptions (KIP-714), quotas, consumer groups and aliases, from the cluster or files."""

    lake: str
    """folder or URI of the lake; created if missing"""
    bootstrap_servers: str | None = None
    """brokers of the cluster to poll; the user needs DescribeConfigs on it, and Describe on groups and topics"""
    kafka_options: KafkaOptions
    """Kafka client options with prefix kafka. (SASL, SSL), as for ingest; never logged"""
    subscriptions_file: Path | None = None
    """YAML file of subscriptions, instead of polling the cluster"""
    empty_metrics: Literal["none", "all"] = "none"
    """what a subscription with an empty list of metrics asks for: none as in Apache Kafka, or all as in WarpStream"""
    aliases_file: Path | None = None
    """YAML or CSV file of aliases: application and owner by client_id or client_instance_id; YAML may have rules"""
    aliases_topic: str | None = None
    """compacted topic of client aliases: one JSON object per record with the same keys; a null value ends an alias"""
    prices_file: Path | None = None
    """YAML file of prices, such as conf/prices.yml, for view application_cost"""
    consumer_groups: bool = True
    """also record consumer groups: their members, committed offsets and lag"""
    unread_records: bool = True
    """also look for the first unread record of a group that is behind: not each offset has one; needs Read on topics"""
    personal_data: Literal["keep", "hash", "drop"] = "keep"
    """store addresses of group members unchanged, hashed, or not at all; as for ingest"""
    personal_data_key: SecretStr | None = None
    """key of the hashes, as for ingest; never logged"""
    cluster_id: str | None = None
    """Kafka cluster id of the files, unless they contain one; without it aliases and prices apply to all clusters"""
    check: bool = False
    """print the changes since the last sync and write nothing"""
    every_seconds: Annotated[float, Field(ge=1, le=86_400)] | None = None
    """repeat every N seconds until stopped [sync once]"""
    database: str | None = None
    """Spark database of the lake's views; one view per subscription is created and dropped in it"""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """lowest level of log lines to print"""

    def check_together(self) -> None:
        sources = [source for source in (self.bootstrap_servers, self.subscriptions_file) if source is not None]
        if len(sources) > 1 or (not sources and self.aliases_file is None and self.prices_file is None):
            raise UsageError(
                "bootstrap_servers, subscriptions_file: set exactly one of --bootstrap-servers, --subscriptions-file"
            )
        if self.aliases_topic is not None and (self.aliases_file or self.bootstrap_servers is None):
            raise UsageError("aliases_topic: requires --bootstrap-servers, and excludes --aliases-file")
