"""Settings that several commands have: where a lake of tables by name is, limits, and options of Kafka's clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field, PositiveInt

from kafka_telemetry_lake.jobs.settings.base import JobSettings, UsageError
from kafka_telemetry_lake.pipelines.tables.names import Names, is_name
from kafka_telemetry_lake.udfs.findings.remarks import end_of_mute

if TYPE_CHECKING:
    from kafka_telemetry_lake.udfs.limits import Limits


def _name(value: str) -> str:
    if is_name(value):
        return value
    raise ValueError("allowed: letters, digits, _ and -")


def _time(value: str) -> str:
    end_of_mute(value)
    return value


Name = Annotated[str, AfterValidator(_name)]
Time = Annotated[str, AfterValidator(_time)]  # without a zone it is UTC


class NamedLakeSettings(JobSettings):
    """The place of a lake: a folder, or a catalog and schema."""

    lake: str | None = None
    """folder or URI of the lake; ingest creates it if missing, views without one lists the views"""
    catalog: Name | None = None
    """catalog of a lake of tables by name, such as main; needs schema, and replaces lake"""
    schema_: Annotated[Name | None, Field(alias="schema")] = None
    """schema of the lake's tables in that catalog; ingest creates it if missing"""

    @property
    def folder(self) -> str:
        """Folder or URI of a lake that isn't in a catalog."""
        assert self.lake is not None  # ensured by `check_place_of_lake`
        return self.lake

    @property
    def names(self) -> Names | None:
        """Names of the lake's tables; None: it is a folder."""
        return Names(self.catalog, self.schema_) if self.catalog is not None and self.schema_ is not None else None

    def check_place_of_lake(self) -> None:
        """Raise ``UsageError`` unless there is a folder, or a catalog with what it needs."""
        if self.catalog is None and self.schema_ is None:
            if self.lake is None:
                raise UsageError("lake: required; set --lake or TELEMETRY_LAKE_LAKE")
            return
        if self.catalog is None:
            raise UsageError("schema: works only with --catalog")
        if self.schema_ is None:
            raise UsageError("catalog: needs the schema of the lake's tables; add --schema NAME")
        if self.lake is not None:
            raise UsageError("catalog: not together with --lake: a lake is a catalog and schema, or a folder")


def require_checkpoints(names: Names | None, checkpoints: str | None) -> None:
    """Raise ``UsageError`` if a lake in a catalog has no place for what isn't a table."""
    if names is not None and checkpoints is None:
        raise UsageError("catalog: needs --checkpoints: a folder or URI for state, notes and locks, outside of tables")


class LimitSettings(JobSettings):
    """Limits of payloads, points, texts and series. A replay gives the same rows only with the limits of the ingest."""

    max_payload_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = 16 << 20
    """maximum size of a decompressed payload; larger ones are quarantined as TELEMETRY_TOO_LARGE"""
    max_points_per_push: PositiveInt = 100_000
    """maximum data points of one push; the rest are quarantined as TOO_MANY_POINTS"""
    max_text_bytes: Annotated[int, Field(ge=256, le=1 << 20)] = 16 << 10
    """maximum bytes of a metric name, of a point's attributes, or of a push's labels; longer ones are quarantined"""
    max_series_per_client: PositiveInt = 100_000
    """maximum cumulative series, and histogram buckets, tracked for one client; the rest are quarantined as TOO_MANY_SERIES"""  # noqa: E501  # the help of the flag, in one line
    future_tolerance_seconds: Annotated[int, Field(ge=1, le=3600)] = 3600
    """how far a point's time may lie after its landing time; later ones are quarantined as FUTURE_TIME"""
    principal_series_per_hour: Annotated[int, Field(ge=0)] = 200_000_000
    """maximum new cumulative series of one principal per hour, split equally between the shards; 0: no limit"""
    principal_text_mb_per_hour: Annotated[int, Field(ge=0)] = 64 << 10
    """maximum megabytes of names and attributes in those new series; 0: no limit"""
    principal_mb_per_hour: Annotated[int, Field(ge=0)] = 256 << 10
    """maximum landed megabytes of one principal per hour, split equally between the shards; 0: no limit"""

    def limits(self) -> Limits:
        """Limits of payloads, points, texts and series, in bytes and counts."""
        from kafka_telemetry_lake.udfs.limits import Limits  # noqa: PLC0415  # settings import quickly: it needs NumPy

        return Limits(
            max_decompressed_bytes=self.max_payload_bytes,
            max_points_per_push=self.max_points_per_push,
            max_text_bytes=self.max_text_bytes,
            max_series_per_client=self.max_series_per_client,
            future_tolerance_s=self.future_tolerance_seconds,
            principal_series_per_hour=self.principal_series_per_hour,
            principal_text_bytes_per_hour=self.principal_text_mb_per_hour << 20,
            principal_bytes_per_hour=self.principal_mb_per_hour << 20,
        )


PREFIX = "kafka."
# Options of Spark's Kafka source that change no result and that no other setting sets.
OF_SPARK = (
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "maxRecordsPerPartition",
    "minPartitions",
)
OWN = {
    "subscribe": "topic",
    "startingoffsets": "starting_offsets",
    "startingtimestamp": "starting_offsets",
    "maxoffsetspertrigger": "max_records_per_batch",
    "failondataloss": "fail_on_data_loss",
    "kafka.bootstrap.servers": "bootstrap_servers",
    "bootstrap.servers": "bootstrap_servers",
}


def _check_options(options: dict[str, str]) -> dict[str, str]:
    """Refuse options that nothing reads, which Spark and Kafka would ignore in silence. Values are never named."""
    for key in options:
        if own := OWN.get(key.lower()):
            raise ValueError(f"{key} is the setting {own}: set --{own.replace('_', '-')}")
        if not key.startswith(PREFIX) and key.lower() not in map(str.lower, OF_SPARK):
            raise ValueError(
                f"{key} would be ignored: options of Kafka's clients begin with {PREFIX}, such as {PREFIX}{key}; "
                f"those of Spark's source are {', '.join(OF_SPARK)}"
            )
    return options


KafkaOptions = Annotated[dict[str, str], Field(default_factory=dict), AfterValidator(_check_options)]
