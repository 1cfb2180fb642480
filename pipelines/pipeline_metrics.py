"""What the job tells about itself: a row of table `pipeline_metrics` for each micro-batch of each stream."""

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

from pipelines.tables import LANDED_DATE, Table
from udfs.rows import TIMESTAMP, column

log = logging.getLogger(__name__)

FLUSH_EVERY_S = 60.0  # a commit per batch would be more commits than the tables themselves get
MOST_WAITING = 10_000  # rows, should the table refuse them for long


PIPELINE_METRICS = Table(
    "pipeline_metrics",
    "One micro-batch of one stream of the job.",
    pa.schema(
        [
            column("cluster_id", pa.string(), "the job's setting; NULL when it has none"),
            column("stream", pa.string(), "pushes, points, receiver_health, ..."),
            column("run_id", pa.string(), "Spark's id of the stream since its start"),
            column("batch_id", pa.int64(), "number of the batch under the stream's checkpoint"),
            column("started_at", TIMESTAMP, "when the batch began"),
            column("ended_at", TIMESTAMP, "when it was done; the partition's date is its date"),
            column("seconds", pa.float64(), "how long it took"),
            column("records", pa.int64(), "records or pushes taken"),
            column("records_per_s", pa.float64(), "records / seconds"),
            column("waiting", pa.int64(), "records of the source that were there but not taken yet: the lag"),
            column("landed_at", TIMESTAMP, "latest landing among the pushes judged; NULL for other streams"),
            column("freshness_s", pa.float64(), "ended_at - landed_at: how old the newest rows were when visible"),
            column("points", pa.int64(), "data points written"),
            column("quarantined", pa.int64(), "rows of quarantine written"),
            column("statuses", pa.map_(pa.string(), pa.int64()), "data points by delta_status"),
            column("state_bytes", pa.int64(), "size of the operator's state files"),
            column("broken", pa.map_(pa.string(), pa.int64()), "rows that break a rule of docs/quality.md, by rule"),
        ]
    ),
    ("ended_at",),
)


@dataclass(frozen=True)
class BatchFacts:
    """What only the stream itself knows of its batch."""

    points: int
    quarantined: int
    statuses: Mapping[str, int]
    landed_at: datetime | None
    state_bytes: int
    broken: Mapping[str, int] = field(default_factory=dict)


class PipelineMetrics:
    """Rows in the making. Batches are told from the stream's thread, progress from Spark's listener's."""

    def __init__(self, lake: str, cluster_id: str | None = None) -> None:
        self._lake, self._cluster_id = lake, cluster_id
        self._lock = threading.Lock()
        self._facts: dict[tuple[str, int], BatchFacts] = {}
        self._last: dict[str, int] = {}  # run to its last batch
        self._rows: list[dict[str, Any]] = []
        self._flushed = time.monotonic()

    def tell(self, stream: str, batch_id: int, facts: BatchFacts) -> None:
        """Before the batch's progress is."""
        with self._lock:
            self._facts[stream, batch_id] = facts

    def add(self, progress: Mapping[str, Any]) -> dict[str, Any] | None:
        """A row of Spark's StreamingQueryProgress, as JSON has it; None when it has been told before or is no batch."""
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
        """Write the rows; the job goes on when that fails, and they are tried again."""
        with self._lock:
            rows, self._rows, self._flushed = self._rows, [], time.monotonic()
        if not rows:
            return
        found = pa.Table.from_pylist(rows, PIPELINE_METRICS.schema)
        dates = found["ended_at"].cast(pa.date32())
        try:
            write_deltalake(
                PIPELINE_METRICS.create(self._lake),
                found.append_column(LANDED_DATE, dates),
                mode="append",
                partition_by=[LANDED_DATE.name],
            )
        except (DeltaError, OSError) as error:
            log.warning("pipeline_metrics: not written, will be tried again: %s", " ".join(str(error).split())[:300])
            with self._lock:
                self._rows = rows + self._rows


def behind(source: dict[str, Any]) -> int:
    """Records of a Kafka source that were there but not in the batch; 0 for other sources."""
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
    """A row of the table."""
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
        "records_per_s": progress["numInputRows"] / seconds if seconds else None,
        "waiting": sum(behind(source) for source in progress["sources"]),
        "landed_at": landed_at,
        "freshness_s": None if landed_at is None else (ended - landed_at).total_seconds(),
        "points": None if facts is None else facts.points,
        "quarantined": None if facts is None else facts.quarantined,
        "statuses": None if facts is None else list(facts.statuses.items()),
        "state_bytes": None if facts is None else facts.state_bytes,
        "broken": None if facts is None else list(facts.broken.items()),
    }
