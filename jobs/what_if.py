"""``telemetry-lake what-if``: what a proposed quota or subscription would do, without Spark or Kafka."""

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
from kafka_telemetry_lake.pipelines.quotas.recorded import Proposal
from kafka_telemetry_lake.pipelines.quotas.what_if import remarks
from kafka_telemetry_lake.pipelines.quotas.what_if import what_if as what_if_quota
from kafka_telemetry_lake.pipelines.subscriptions.what_if import (
    SubscriptionChange,
    SubscriptionPrediction,
    SubscriptionProposal,
)
from kafka_telemetry_lake.pipelines.subscriptions.what_if import what_if as what_if_subscription
from kafka_telemetry_lake.udfs.findings.remarks import end_of_mute
from kafka_telemetry_lake.udfs.quotas.limits import DEFAULT

NOT_FOR_PEOPLE = {
    "quota": ["cluster_id", "mean_rate", "throttled_s", "last_throttled", "source"],
    "clients": ["cluster_id", "client_software_name", "client_software_version", "unknown"],
}
EPOCH = datetime.fromtimestamp(0, UTC)
RECORDED_S = {"quota": 86_400, "subscription": 3600}  # before --to


def run_job(settings: WhatIfSettings) -> int:
    """Print the rows of the answer, and on stderr what they are together and what isn't known."""
    if not is_lake(settings.lake):
        raise UsageError(no_lake(settings.lake))
    end = _time(settings.to_, time.time_ns() // 1000)
    before = (end - EPOCH) // timedelta(microseconds=1) - RECORDED_S[settings.what] * 1_000_000
    start = _time(settings.from_, before)
    return (_quota if settings.what == "quota" else _subscription)(settings, start, end)


def _quota(settings: WhatIfSettings, start: datetime, end: datetime) -> int:
    (quota_type,) = (name for name in QUOTA_TYPES if getattr(settings, name) is not None)
    given = getattr(settings, quota_type)
    proposal = Proposal(
        quota_type,
        DEFAULT if settings.user_defaults else settings.user,
        DEFAULT if settings.client_defaults else settings.client_id,
        None if given == SMALLEST else float(given),
        settings.throttled_percent,
    )
    predicted = what_if_quota(settings.lake, proposal, start, end)
    _print(settings, predicted.rows, NOT_FOR_PEOPLE["quota"])
    for line in (_summary(predicted.rows, proposal), *remarks(predicted, start, end)):
        print(line, file=sys.stderr)
    return 0


def _subscription(settings: WhatIfSettings, start: datetime, end: datetime) -> int:
    if settings.subscriptions_file is None:
        change = SubscriptionChange(settings.name, settings.metrics, settings.interval_ms, settings.match)
        proposal = SubscriptionProposal(change, settings.cluster_id)
    else:
        from kafka_telemetry_lake.pipelines.subscriptions.file import (  # noqa: PLC0415  # it needs the extra spark
            read_subscriptions_file,
        )

        configured = read_subscriptions_file(settings.subscriptions_file, settings.cluster_id)
        proposal = SubscriptionProposal(configured.subscriptions, configured.cluster_id)
    predicted = what_if_subscription(settings.lake, proposal, start, end)
    _print(settings, getattr(predicted, settings.show), NOT_FOR_PEOPLE.get(settings.show, []))
    for line in (_of_needs(predicted), *predicted.remarks):
        print(line, file=sys.stderr)
    return 0


def _print(settings: WhatIfSettings, rows: pa.Table, not_for_people: list[str]) -> None:
    shown = rows.drop_columns(not_for_people) if settings.format == "table" else rows
    TEXT_FORMATS[settings.format](shown.to_reader(), sys.stdout)
    sys.stdout.flush()


def _time(text: str | None, otherwise: int) -> datetime:
    return EPOCH + timedelta(microseconds=otherwise if text is None else end_of_mute(text))


def _of_needs(predicted: SubscriptionPrediction) -> str:
    """How many would be asked for other things, and what loses or gains metrics, in one line."""
    counted = []
    for change in ("loses", "gains"):
        for what in ("finding", "view"):
            rows = predicted.needs.filter(
                pc.and_(pc.equal(predicted.needs["change"], change), pc.equal(predicted.needs["what"], what))
            )
            if rows.num_rows:
                verb = change[:-1] if rows.num_rows > 1 else change
                counted.append(f"{rows.num_rows} {what}{'s' if rows.num_rows > 1 else ''} {verb} metrics")
    changes = f"{', '.join(counted)} (--show needs)" if counted else "no finding or view loses or gains metrics"
    return f"{predicted.clients.num_rows:,} client instances would be asked for something else: {changes}"


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
