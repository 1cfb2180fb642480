"""Rows for landing records that no batch has read, because they were gone (``--no-fail-on-data-loss``).

Spark's Kafka source then reads what is left and says nothing. A batch is planned as ranges of offsets, which Spark
notes before it runs (`offset_log`). If fewer records were stored than planned, the topic's first offsets say which of
them had expired. A new checkpoint on a lake that has pushes may begin after the last one stored: these are lost too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from pyspark.sql import SparkSession

from kafka_telemetry_lake.pipelines.ingest.offset_log import OffsetLog
from kafka_telemetry_lake.pipelines.ingest.sources import KafkaSource, Offsets
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.offset_guard import OffsetRange
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from kafka_telemetry_lake.pipelines.lake.transactions import append_once
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import cluster_id
from kafka_telemetry_lake.pipelines.runtime.kafka_topics import earliest_offsets
from kafka_telemetry_lake.pipelines.tables.lost_records import EXPIRED, LOST_RECORDS, SKIPPED
from kafka_telemetry_lake.pipelines.tables.operator import BROKER_CONNECTIONS
from kafka_telemetry_lake.pipelines.tables.table import table_uri

log = logging.getLogger("telemetry-lake")
PARTITION = ("topic", "partition")


class Loss(NamedTuple):
    """Offsets of a partition from `first` up to, without, `end`."""

    topic: str
    partition: int
    first: int
    end: int
    reason: str


class ClusterOffsets(Protocol):
    """What is asked of the cluster when records are missing."""

    def earliest(self, topics: Iterable[str]) -> Offsets:
        """The first offset that each partition still has."""

    def cluster_id(self) -> str: ...


@dataclass(frozen=True)
class KafkaCluster:
    """The cluster of a source, through its Admin client."""

    spark: SparkSession
    source: KafkaSource

    def earliest(self, topics: Iterable[str]) -> Offsets:
        return earliest_offsets(self.spark, self.source.bootstrap_servers, self.source.options, tuple(topics))

    def cluster_id(self) -> str:
        return cluster_id(self.spark, self.source.bootstrap_servers, self.source.options)


@dataclass
class LostRecords:
    """Finds what a batch didn't read, and appends it to table `lost_records`.

    Attributes:
        offsets: of the query's batches.
        source: name of the source.
        stored_before: the ranges that the lake had when the checkpoint was made.
    """

    lake: str
    offsets: OffsetLog
    source: str
    cluster: ClusterOffsets
    stored_before: Sequence[OffsetRange] = ()
    cluster_id: str | None = None
    fence: Fence | None = None

    def note(self, app_id: str, batch: int, files: Sequence[DataFile]) -> None:
        """Append a row for each range that the batch should have read and didn't, once however often it runs.

        Args:
            files: what was stored of the batch.
        """
        begin, end = self.offsets.of_batch(batch)
        planned = sum(
            last - begin.get(topic, {}).get(partition, 0)
            for topic, partitions in end.items()
            for partition, last in partitions.items()
        )
        before = self._next_offsets() if batch == 0 else {}
        # A row of any other table is a record; a status has one in `receiver_health` however many connections it lists.
        records = sum(file.rows for file in files if file.table != BROKER_CONNECTIONS.name)
        if planned <= records and not before:
            return
        earliest = self.cluster.earliest({*end, *before})
        losses = [*_expired(self._unstored(begin), end, earliest, self._first_stored(files))]
        losses += _skipped(before, begin, earliest)
        if losses:
            self._append(losses, app_id, batch)

    def _next_offsets(self) -> Offsets:
        """Where reading would have gone on after what the lake has."""
        offsets: dict[str, dict[int, int]] = {}
        for each in self.stored_before:
            if each.source == self.source:
                own = offsets.setdefault(each.topic, {})
                own[each.partition] = max(own.get(each.partition, 0), each.high + 1)
        return offsets

    def _unstored(self, begin: Offsets) -> Offsets:
        """The offsets at which a batch begins, without those that the lake had: an earlier batch was cut off."""
        after = self._next_offsets()
        return {
            topic: {number: max(offset, after.get(topic, {}).get(number, 0)) for number, offset in partitions.items()}
            for topic, partitions in begin.items()
        }

    def _first_stored(self, files: Sequence[DataFile]) -> Offsets:
        """The first offset of each partition in the files: what was read before it expired isn't lost."""
        offsets: dict[str, dict[int, int]] = {}
        for name in {file.table for file in files}:
            filesystem, root = filesystem_of(table_uri(self.lake, name))
            paths = [f"{root}/{file.path}" for file in files if file.table == name]
            rows = pads.dataset(paths, filesystem=filesystem, format="parquet").to_table([*PARTITION, "offset"])
            plain = rows.set_column(0, "topic", pc.cast(rows["topic"], pa.string()))
            for row in plain.group_by(PARTITION).aggregate([("offset", "min")]).to_pylist():
                own = offsets.setdefault(row["topic"], {})
                own[row["partition"]] = min(own.get(row["partition"], row["offset_min"]), row["offset_min"])
        return offsets

    def _append(self, losses: Sequence[Loss], app_id: str, batch: int) -> None:
        delta = LOST_RECORDS.create(self.lake)
        cluster_id, now = self.cluster_id or self.cluster.cluster_id(), datetime.now(UTC)
        rows = [
            {
                "cluster_id": cluster_id,
                "source": self.source,
                "topic": loss.topic,
                "partition": loss.partition,
                "first_offset": loss.first,
                "last_offset": loss.end - 1,
                "records": loss.end - loss.first,
                "reason": loss.reason,
                "noticed_at": now,
            }
            for loss in losses
        ]
        if append_once(LOST_RECORDS, delta, pa.Table.from_pylist(rows, LOST_RECORDS.schema), app_id, batch, self.fence):
            for loss in losses:
                log.warning(
                    "pushes: %s/%d: offsets %d to %d were not read (%s), see table lost_records",
                    loss.topic,
                    loss.partition,
                    loss.first,
                    loss.end - 1,
                    loss.reason,
                )


def _expired(begin: Offsets, end: Offsets, earliest: Offsets, stored: Offsets) -> Iterator[Loss]:
    """What was planned and no longer there. A partition that the batch before didn't have begins at 0."""
    for topic, partition, last in _each(end):
        first = begin.get(topic, {}).get(partition, 0)
        there = min(earliest.get(topic, {}).get(partition, last), stored.get(topic, {}).get(partition, last), last)
        if first < there:
            yield Loss(topic, partition, first, there, EXPIRED)


def _skipped(before: Offsets, begin: Offsets, earliest: Offsets) -> Iterator[Loss]:
    """What lies between the lake's last record and the first offset of a new checkpoint."""
    for topic, partition, first in _each(before):
        last = begin.get(topic, {}).get(partition, 0)
        there = min(max(earliest.get(topic, {}).get(partition, 0), first), last)
        if first < there:
            yield Loss(topic, partition, first, there, EXPIRED)
        if there < last and first < last:
            yield Loss(topic, partition, there, last, SKIPPED)


def _each(offsets: Mapping[str, Mapping[int, int]]) -> Iterator[tuple[str, int, int]]:
    for topic, partitions in offsets.items():
        for partition, offset in partitions.items():
            yield topic, partition, offset
