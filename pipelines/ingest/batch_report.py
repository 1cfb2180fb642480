"""What is said of a batch of the operator, by either engine: a line of the log, and progress and facts for metrics."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from kafka_telemetry_lake.pipelines.ingest.checkpoint import POINTS
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from kafka_telemetry_lake.pipelines.observe.pipeline_metrics import BatchFacts
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES

log = logging.getLogger(__name__)

# Takes a batch's progress, with the fields of Spark's StreamingQueryProgress, and its facts.
Report = Callable[[Mapping[str, Any], BatchFacts], None]


def progress_of(run_id: str, number: int, ended_at: datetime, seconds: float, pushes: int) -> dict[str, Any]:
    """As Spark reports a micro-batch of a query."""
    return {
        "name": POINTS,
        "runId": run_id,
        "batchId": number,
        "timestamp": (ended_at - timedelta(seconds=seconds)).isoformat(),
        "durationMs": {"addBatch": 1000 * seconds, "triggerExecution": 1000 * seconds},
        "numInputRows": pushes,
        "sources": [],
    }


def latest_landing(files: Sequence[DataFile]) -> datetime | None:
    """When the last of the batch's pushes landed."""
    landed = [json.loads(file.stats)["maxValues"]["landed_at"] for file in files if file.table == PUSH_OUTCOMES.name]
    return datetime.fromisoformat(max(landed).replace("Z", "+00:00")) if landed else None


def facts_of(counts: Counter[str], latest: datetime | None, state_bytes: int, broken: Mapping[str, int]) -> BatchFacts:
    """What Spark's progress doesn't say of a batch, by what its tasks have counted."""
    statuses = {name.removeprefix("status:"): n for name, n in counts.items() if name.startswith("status:")}
    return BatchFacts(
        counts["metric_points"], counts["quarantine"], statuses, latest, state_bytes, broken, counts["set_aside"]
    )


def log_batch(number: int, counts: Counter[str], seconds: float) -> None:
    """Log what a batch has judged, in one line."""
    pushes, points, read = counts["push_outcomes"], counts["metric_points"], counts["state_bytes_read"]
    statuses = ", ".join(
        f"{count:,} {name.removeprefix('status:')}"
        for name, count in counts.most_common()
        if name.startswith("status:")
    )
    log.info(
        "points: batch %d: %s pushes, %s points (%s), %s quarantined, %.1f s, %s points/s%s",
        number, f"{pushes:,}", f"{points:,}", statuses or "none", f"{counts['quarantine']:,}", seconds,
        f"{points / max(seconds, 0.001):,.0f}", f", {read:,} bytes of state read from the store" if read else "",
    )  # fmt: skip
