"""The limits on pushes, clients and principals, from the settings of `ingest` and `replay`."""

from __future__ import annotations

from kafka_telemetry_lake.jobs.settings.limits import LimitSettings
from kafka_telemetry_lake.udfs.limits import Limits


def limits_of(settings: LimitSettings) -> Limits:
    """Limits of payloads, points, texts and series, in bytes and counts."""
    return Limits(
        max_decompressed_bytes=settings.max_payload_bytes,
        max_points_per_push=settings.max_points_per_push,
        max_text_bytes=settings.max_text_bytes,
        max_series_per_client=settings.max_series_per_client,
        future_tolerance_s=settings.future_tolerance_seconds,
        principal_series_per_hour=settings.principal_series_per_hour,
        principal_text_bytes_per_hour=settings.principal_text_mb_per_hour << 20,
        principal_bytes_per_hour=settings.principal_mb_per_hour << 20,
    )
