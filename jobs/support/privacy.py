"""How personal data is stored, from the settings of `ingest` and `sync`."""

from __future__ import annotations

from kafka_telemetry_lake.jobs.settings.base import secret_text
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from kafka_telemetry_lake.jobs.settings.sync import SyncSettings
from kafka_telemetry_lake.pipelines.lake.privacy import Privacy


def privacy_of(settings: IngestSettings | SyncSettings) -> Privacy:
    """What becomes of principals and addresses."""
    return Privacy(settings.personal_data, secret_text(settings.personal_data_key))
