"""After a landing topic was replaced by another of its name, a new checkpoint begins where the one before it ended.

In Kafka it begins at the offsets after the last finished batch, with files at the first file, and passes over what is
stored already. The replaced topic is read from its beginning (`topic_ids`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import pyarrow.dataset as ds
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.ingest.checkpoint import LANDING, STREAMS, landing_name, last_batch
from kafka_telemetry_lake.pipelines.ingest.offset_log import end_of
from kafka_telemetry_lake.pipelines.ingest.sources import Offsets
from kafka_telemetry_lake.pipelines.ingest.topic_ids import replaced_topics
from kafka_telemetry_lake.pipelines.lake.json_files import read_json
from kafka_telemetry_lake.pipelines.lake.offset_guard import NOTE, OffsetGuard, OffsetRange
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.tables.table import Table, table_uri


def take_over(lake: str, checkpoints: str) -> Offsets:
    """The offsets up to which the checkpoint before has read, by topic and partition; notes what is stored after them.

    Empty if there was none, or if the query has begun a batch. Until then its checkpoint may not have its first
    offsets yet, even if it has an id. A replaced topic has no offsets: each partition is read from its beginning.
    """
    if last_batch(*filesystem_of(table_uri(checkpoints, landing_name(checkpoints)))) >= 0:
        return {}
    before, replaced = replaced_topics(checkpoints)
    start: Offsets = {}
    if before is not None:
        filesystem, root = filesystem_of(table_uri(checkpoints, before))
        ends = end_of(filesystem, root, last_batch(filesystem, root, "commits"))
        start = {topic: own for topic, own in ends.items() if topic not in replaced}
        for table in STREAMS[LANDING]:
            note = read_json(filesystem, f"{root}/{table.name}/{NOTE}")
            if note is not None and DeltaTable.is_deltatable(table.uri(lake)):
                noted = (OffsetRange(**each) for each in note["ranges"] if each["topic"] not in replaced)
                ranges = (*(each for each in noted if not _is_read(each, start)), *_stored_after(table, lake, start))
                guard = OffsetGuard(table.uri(lake), ranges, note["version"])
                guard.note(guard_folder(checkpoints, table))
    return {**start, **{topic: {} for topic in replaced}}


def guard_folder(checkpoints: str, table: Table) -> str:
    """The folder where the query notes what a table had before it."""
    return table_uri(checkpoints, f"{landing_name(checkpoints)}/{table.name}")


def _is_read(offsets: OffsetRange, start: Offsets) -> bool:
    """Whether all these offsets are before those that are read from now on."""
    return offsets.high < start.get(offsets.topic, {}).get(offsets.partition, 0)


def _stored_after(table: Table, lake: str, offsets: Offsets) -> Iterator[OffsetRange]:
    """What the table has at these offsets or later: rows of a batch that was not finished."""
    if not offsets:
        return
    topic, partition, offset = (ds.field(name) for name in ("topic", "partition", "offset"))
    later = [
        (topic == name) & reduce(
            ds.Expression.__or__,
            [(partition == number) & (offset >= first) for number, first in partitions.items()],
            ~partition.isin(list(partitions)),
        )
        for name, partitions in offsets.items()
    ]  # fmt: skip
    names = ["source", "topic", "partition"]
    rows = DeltaTable(table.uri(lake)).to_pyarrow_dataset()
    stored = rows.to_table([*names, "offset"], filter=reduce(ds.Expression.__or__, later))
    for row in stored.group_by(names).aggregate([("offset", "min"), ("offset", "max")]).to_pylist():
        low, high = row.pop("offset_min"), row.pop("offset_max")
        yield OffsetRange(**row, low=low, high=high)
