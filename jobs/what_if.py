"""``telemetry-lake what-if``: what a proposed quota would have done to the recorded load, without Spark or Kafka."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.jobs.settings.base import UsageError
from kafka_telemetry_lake.jobs.settings.what_if import QUOTA_TYPES, SMALLEST, WhatIfSettings
from kafka_telemetry_lake.pipelines.lake.place import no_lake
from kafka_telemetry_lake.pipelines.query.formats import TEXT_FORMATS
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake
from kafka_telemetry_lake.pipelines.quotas.what_if import Proposal, what_if
from kafka_telemetry_lake.udfs.findings.remarks import end_of_mute
from kafka_telemetry_lake.udfs.quotas.limits import DEFAULT

NOT_FOR_PEOPLE = ["cluster_id", "mean_rate", "throttled_s", "last_throttled", "source"]
EPOCH = datetime.fromtimestamp(0, UTC)


def run_job(settings: WhatIfSettings) -> int:
    """Print a row for each entity that the quota would have limited, and what they are together."""
    if not is_lake(settings.lake):
        raise UsageError(no_lake(settings.lake))
    end = _time(settings.to_, time.time_ns() // 1000)
    start = _time(settings.from_, (end - EPOCH) // timedelta(microseconds=1) - 86_400_000_000)
    (quota_type,) = (name for name in QUOTA_TYPES if getattr(settings, name) is not None)
    given = getattr(settings, quota_type)
    proposal = Proposal(
        quota_type,
        DEFAULT if settings.user_defaults else settings.user,
        DEFAULT if settings.client_defaults else settings.client_id,
        None if given == SMALLEST else float(given),
        settings.throttled_percent,
    )
    rows, together = what_if(settings.lake, proposal, start, end)
    shown = rows.drop_columns(NOT_FOR_PEOPLE) if settings.format == "table" else rows
    TEXT_FORMATS[settings.format](shown.to_reader(), sys.stdout)
    sys.stdout.flush()
    print(_summary(rows, proposal), file=sys.stderr)
    if together:
        print(f"{together:,} more were recorded together with others, which this quota would separate", file=sys.stderr)
    return 0


def _time(text: str | None, otherwise: int) -> datetime:
    return EPOCH + timedelta(microseconds=otherwise if text is None else end_of_mute(text))


def _summary(rows: pa.Table, proposal: Proposal) -> str:
    """The answer in one line."""
    if proposal.limit is None:
        largest = pc.max(rows["quota_limit"]).as_py()
        limited = (
            "nobody" if not proposal.throttled_percent else f"nobody for more than {proposal.throttled_percent:g} %"
        )
        return f"{largest:.6g} is the smallest limit that would have throttled {limited} of {len(rows):,}"
    throttled = pc.sum(pc.greater(rows["throttled_s"], 0)).as_py() or 0
    return f"{throttled:,} of {len(rows):,} would have been throttled"
