"""Settings of ``telemetry-lake ingest``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveInt, SecretStr

from kafka_telemetry_lake.jobs.settings.base import UsageError, secret_text
from kafka_telemetry_lake.jobs.settings.shared import (
    KafkaOptions,
    LimitSettings,
    NamedLakeSettings,
    require_checkpoints,
)


def _source(value: str) -> str:
    if value == "kafka" or (value.startswith("files:") and len(value) > len("files:")):
        return value
    raise ValueError("allowed: files:<folder> or kafka")


def _starting(value: str) -> str:
    if value in ("earliest", "latest") or value.isdigit():
        return value
    raise ValueError("allowed: earliest, latest, or a time in epoch milliseconds")


def size_in_bytes(text: str) -> int:
    """Bytes of a size such as 128m."""
    return int(text[:-1]) << {"k": 10, "m": 20, "g": 30}[text[-1]]


class IngestSettings(NamedLakeSettings, LimitSettings):
    """Store landed pushes unchanged, decode them, convert counters to deltas, and write the lake's Delta tables."""

    source: Annotated[str, AfterValidator(_source)]
    """kafka, or files:<folder> with Parquet files that have the columns of Spark's Kafka source"""
    take_over: bool = False
    """start in the place of a job that still has this lake but was cut off or doesn't answer; it can change nothing any more"""  # noqa: E501  # the help of the flag, in one line
    once: bool = False
    """process all available input and exit, instead of following the source"""
    trigger_seconds: Annotated[float, Field(gt=0, le=3600)] = 5.0
    """longest time that pushes wait for a micro-batch; up to 5, half as long if 50 or more wait; ignored with --once"""
    checkpoints: str | None = None
    """folder or URI for checkpoints, and with --catalog for notes and locks [<lake>/_checkpoints]"""
    source_name: str | None = None
    """value of column source, part of a push's identity [kafka, or files:<folder name>]"""
    cluster_id: str | None = None
    """Kafka cluster id for records without one"""
    shards: PositiveInt | None = None
    """number of state partitions of a new lake; `reshard` changes that of another [cores of the session]"""
    master: str = "local[*,3]"  # three attempts: a killed Python worker fails a task, not the job
    """Spark master; ignored under spark-submit and on Databricks"""
    driver_memory: Annotated[str, Field(pattern=r"^\d+[mg]$")] = "2g"
    """memory of a local Spark driver"""
    max_bytes_per_batch: Annotated[str, Field(pattern=r"^\d+[kmg]$")] = "128m"
    """maximum landed bytes converted in one micro-batch"""
    bootstrap_servers: str | None = None
    """kafka: brokers of the landing topic"""
    topic: str = "client-telemetry"
    """topic of landed pushes"""
    status_topic: str = "client-telemetry-status"
    """topic of receiver statuses"""
    quotas_topic: str = "client-quotas"
    """topic of quota samples"""
    starting_offsets: Annotated[str, AfterValidator(_starting)] = "earliest"
    """kafka: where a new checkpoint starts: earliest, latest or epoch milliseconds"""
    max_records_per_batch: PositiveInt = 50_000
    """kafka: maximum records read in one micro-batch; as soon as so many wait, a batch starts"""
    fail_on_data_loss: bool = True
    """kafka: fail if records were deleted from the topic before they were read"""
    new_topic: bool = False
    """kafka: read a landing topic that was deleted and made again from its beginning, instead of refusing it"""
    kafka_options: KafkaOptions
    """kafka: options of Spark's Kafka source; with prefix kafka. those of its consumer (SASL, SSL); never logged"""
    sync_seconds: Annotated[float, Field(ge=1, le=86_400)] | None = None
    """kafka: run `sync` every N seconds inside this job [off]"""
    findings_minutes: Annotated[float, Field(gt=0, le=1440)] | None = None
    """evaluate findings every N minutes inside this job, with --once at its end, as `telemetry-lake findings` does [off]"""  # noqa: E501  # the help of the flag, in one line
    rules: Path | None = None
    """YAML file of other bounds of the findings' rules for some client ids, such as conf/findings.yml"""
    notify: Path | None = None
    """YAML file of sinks: send changes of findings inside this job, as `telemetry-lake notify` does; needs findings_minutes [off]"""  # noqa: E501  # the help of the flag, in one line
    events_topic: str | None = None
    """kafka: existing topic to send each new row of client_events to, at least once and in order [off]"""
    personal_data: Literal["keep", "hash", "drop"] = "keep"
    """store principals and client addresses unchanged, hashed, or not at all"""
    personal_data_key: SecretStr | None = None
    """key of the hashes; prefer TELEMETRY_LAKE_PERSONAL_DATA_KEY; the same key gives the same hashes; never logged"""
    metrics_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    """port for /metrics (Prometheus) and /health; 0: any free port [off]"""
    metrics_host: str = "127.0.0.1"
    """address to listen on for --metrics-port; there is no login, so expose it only to those who may read it"""
    metrics_fleet: bool = False
    """with --metrics-port: serve fleet figures there too, as `telemetry-lake export` does"""
    health_file: Path | None = None
    """JSON file with the health of the streams, rewritten whenever a stream reports progress [off]"""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """lowest level of log lines to print"""
    log_format: Literal["text", "json"] = "text"
    """log lines as text, or as one JSON object per line"""

    def check_together(self) -> None:
        self.check_place_of_lake()
        require_checkpoints(self.names, self.checkpoints)
        self._check_names()
        if self.personal_data == "hash" and not secret_text(self.personal_data_key):
            raise UsageError(
                "personal_data_key: required if personal_data is hash; set TELEMETRY_LAKE_PERSONAL_DATA_KEY"
            )
        if self.notify is not None and self.findings_minutes is None:
            raise UsageError("notify: needs findings, which nothing evaluates; add --findings-minutes 5")
        if self.metrics_fleet and (self.metrics_port is None or self.once):
            raise UsageError("metrics_fleet: needs --metrics-port, and a job that runs on (no --once)")
        if self.source == "kafka":
            if self.bootstrap_servers is None:
                raise UsageError("bootstrap_servers: required with --source kafka; add --bootstrap-servers host:port")
            if self.events_topic in (self.topic, self.status_topic, self.quotas_topic):
                raise UsageError(f"events_topic: this job reads {self.events_topic}; name a topic used only for events")
            return
        if self.events_topic is not None:
            raise UsageError("events_topic: works only with --source kafka; with files read table client_events")
        if self.sync_seconds is not None:
            raise UsageError("sync_seconds: works only with --source kafka; with files run `telemetry-lake sync`")

    def _check_names(self) -> None:
        """What a lake of tables by name can't have: what reads or writes tables by path, and what Spark can't do."""
        if self.names is None:
            return
        if self.take_over:
            raise UsageError(
                "take_over: Spark's commits can't be fenced, so it doesn't work with --catalog: end the other job"
            )
        for name, asked in (("no-fail-on-data-loss", not self.fail_on_data_loss), ("new-topic", self.new_topic)):
            if asked:
                raise UsageError(
                    "catalog: tables by name have no record of what a topic has lost: leave out "
                    f"--{name} and write to a new schema"
                )
        asked_by_path = {
            "sync_seconds": self.sync_seconds,
            "findings_minutes": self.findings_minutes,
            "events_topic": self.events_topic,
            "metrics_fleet": self.metrics_fleet or None,
        }
        for name in (name for name, value in asked_by_path.items() if value is not None):
            raise UsageError(
                f"{name}: reads tables by path, so it doesn't work with --catalog: ask views by SQL instead"
            )
