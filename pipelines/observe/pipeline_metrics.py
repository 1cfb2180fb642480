"""Writes table `pipeline_metrics`: one row for each micro-batch of each stream."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

from kafka_telemetry_lake.pipelines.tables.pipeline_metrics import PIPELINE_METRICS

log = logging.getLogger(__name__)

FLUSH_EVERY_S = 60.0  # a commit per batch would be more commits than the tables themselves get
SHORTEST_S = 0.1  # a rate over less time says more about the clock than about the job
MOST_WAITING = 10_000  # rows to buffer while the table can't be written


@dataclass(frozen=True)
class BatchFacts:
    """Facts about a micro-batch that Spark's progress doesn't have."""

    points: int
    quarantined: int
    statuses: Mapping[str, int]
    landed_at: datetime | None
    state_bytes: int
    broken: Mapping[str, int] = field(default_factory=dict)
    set_aside: int = 0


class PipelineMetrics:
    """Buffers rows: `record` is called on the stream's thread, `add` on the thread of Spark's listener."""

    def __init__(self, lake: str, cluster_id: str | None = None) -> None:
        self._lake, self._cluster_id = lake, cluster_id
        self._lock = threading.Lock()
        self._facts: dict[tuple[str, int], BatchFacts] = {}
        self._last: dict[str, int] = {}  # run to its last batch
        self._rows: list[dict[str, Any]] = []
        self._flushed = time.monotonic()

    def record(self, stream: str, batch_id: int, facts: BatchFacts) -> None:
        """Store the facts of a batch. Must be called before `add` gets the batch's progress."""
        with self._lock:
            self._facts[stream, batch_id] = facts

    def add(self, progress: Mapping[str, Any]) -> dict[str, Any] | None:
        """Add a row for Spark's StreamingQueryProgress (parsed JSON). None: reported before, or not a batch."""
        with self._lock:
            run, batch = progress["runId"], progress["batchId"]
            if batch <= self._last.get(run, -1) or "addBatch" not in progress["durationMs"]:
                return None
            self._last[run] = batch
            facts = self._facts.pop((progress["name"], progress["batchId"]), None)
            row = metrics_row(progress, facts, self._cluster_id)
            self._rows.append(row)
            del self._rows[:-MOST_WAITING]
            due = time.monotonic() - self._flushed >= FLUSH_EVERY_S
        if due:
            self.flush()
        return row

    def flush(self) -> None:
        """Write the buffered rows. A failure is logged, and the rows are written with the next flush."""
        with self._lock:
            rows, self._rows, self._flushed = self._rows, [], time.monotonic()
        if not rows:
            return
        table = pa.Table.from_pylist(rows, PIPELINE_METRICS.schema)
        try:
            self.append(PIPELINE_METRICS.with_partition(table))
        except (DeltaError, OSError) as error:
            log.warning("pipeline_metrics: write failed, will be retried: %s", " ".join(str(error).split())[:300])
            with self._lock:
                self._rows = rows + self._rows

    def append(self, rows: pa.Table) -> None:
        """Append rows with the columns as stored. Raises ``DeltaError`` or ``OSError`` if that fails."""
        write_deltalake(PIPELINE_METRICS.create(self._lake), rows, mode="append")


def behind(source: dict[str, Any]) -> int:
    """Number of available records of a Kafka source that the batch didn't read; 0 for other sources."""
    latest, end = source.get("latestOffset"), source.get("endOffset")
    if not isinstance(latest, dict) or not isinstance(end, dict):
        return 0
    return sum(
        max(0, offset - end.get(topic, {}).get(partition, 0))
        for topic, partitions in latest.items()
        if isinstance(partitions, dict)
        for partition, offset in partitions.items()
    )


def metrics_row(progress: Mapping[str, Any], facts: BatchFacts | None, cluster_id: str | None) -> dict[str, Any]:
    """Build a row of `pipeline_metrics` from Spark's progress and the batch's facts."""
    seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
    begun = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).astimezone(UTC)
    ended = datetime.fromtimestamp(begun.timestamp() + seconds, UTC)
    landed_at = None if facts is None else facts.landed_at
    return {
        "cluster_id": cluster_id,
        "stream": progress["name"],
        "run_id": progress["runId"],
        "batch_id": progress["batchId"],
        "started_at": begun,
        "ended_at": ended,
        "seconds": seconds,
        "records": progress["numInputRows"],
        "records_per_s": progress["numInputRows"] / seconds if seconds >= SHORTEST_S else None,
        # A second source has statuses and quota samples, which wait for long on purpose.
        "waiting": sum(behind(source) for source in progress["sources"][:1]),
        "landed_at": landed_at,
        "freshness_s": None if landed_at is None else (ended - landed_at).total_seconds(),
        "points": None if facts is None else facts.points,
        "quarantined": None if facts is None else facts.quarantined,
        "statuses": None if facts is None else list(facts.statuses.items()),
        "state_bytes": None if facts is None else facts.state_bytes,
        "broken": None if facts is None else list(facts.broken.items()),
        "set_aside": None if facts is None else facts.set_aside,
    }
