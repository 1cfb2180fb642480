"""The settings of limits on pushes, clients and principals, which `ingest` and `replay` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, PositiveInt

from kafka_telemetry_lake.jobs.settings.base import JobSettings

if TYPE_CHECKING:
    from kafka_telemetry_lake.udfs.limits import Limits


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
