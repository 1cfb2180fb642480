"""``telemetry-lake compare``: what changed of an application at a moment, without Spark or Kafka."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.jobs.settings.base import UsageError
from kafka_telemetry_lake.jobs.settings.compare import CompareSettings
from kafka_telemetry_lake.pipelines.applications.before_after import before_and_after
from kafka_telemetry_lake.pipelines.applications.compared_windows import WINDOWS_S
from kafka_telemetry_lake.pipelines.lake.place import no_lake
from kafka_telemetry_lake.pipelines.query.formats import TEXT_FORMATS
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake
from kafka_telemetry_lake.udfs.before_after import UNCHANGED
from kafka_telemetry_lake.udfs.findings.remarks import end_of_mute

NOT_FOR_PEOPLE = ["noise", "differences"]
EPOCH = datetime.fromtimestamp(0, UTC)


def run_job(settings: CompareSettings) -> int:
    """Print a row per measure, and on stderr how many did not change, what was compared and what isn't known."""
    if not is_lake(settings.lake):
        raise UsageError(no_lake(settings.lake))
    at = EPOCH + timedelta(microseconds=end_of_mute(settings.at))
    found = before_and_after(settings.lake, settings.application, at, WINDOWS_S[settings.window])
    rows, remarks = found.rows, list(found.remarks)
    if settings.show == "changed":
        rows = rows.filter(pc.not_equal(rows["status"], UNCHANGED))
        if hidden := found.rows.num_rows - rows.num_rows:
            remarks.insert(0, f"{hidden:,} more did not change beyond their noise (--show all)")
    _print(rows, settings)
    for line in remarks:
        print(line, file=sys.stderr)
    return 0


def _print(rows: pa.Table, settings: CompareSettings) -> None:
    shown = rows.drop_columns(NOT_FOR_PEOPLE) if settings.format == "table" else rows
    TEXT_FORMATS[settings.format](shown.to_reader(), sys.stdout)
    sys.stdout.flush()
