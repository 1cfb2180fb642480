"""Takes over from earlier checkpoints: a new one begins where they ended, and passes over what is stored already.

Earlier releases stored pushes, statuses and quota samples by a query each, with a checkpoint of its own. And after a
landing topic was replaced by another of its name, the query goes on with a new checkpoint (`topic_ids`). In Kafka it
begins at the offsets after the last finished batch, with files at the first file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

import pyarrow.dataset as ds
import pyarrow.fs as pafs
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.ingest.checkpoint import LANDING, STREAMS, batches_of, landing_name, query_id
from kafka_telemetry_lake.pipelines.ingest.offset_log import end_of
from kafka_telemetry_lake.pipelines.ingest.sources import Offsets
from kafka_telemetry_lake.pipelines.ingest.topic_ids import replaced_topics
from kafka_telemetry_lake.pipelines.lake.json_files import read_json
from kafka_telemetry_lake.pipelines.lake.offset_guard import NOTE, OffsetGuard, OffsetRange
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES, QUARANTINE, QUOTA_SAMPLES, RECEIVER_HEALTH
from kafka_telemetry_lake.pipelines.tables.table import Table, table_uri

# Each stream's tables, and the folder below the checkpoints with the note of what a table had before it.
EARLIER = {
    PUSHES.name: ((PUSHES, PUSHES.name),),
    RECEIVER_HEALTH.name: ((RECEIVER_HEALTH, RECEIVER_HEALTH.name),),
    QUOTA_SAMPLES.name: tuple((table, f"{QUOTA_SAMPLES.name}/{table.name}") for table in (QUOTA_SAMPLES, QUARANTINE)),
}


def take_over(lake: str, checkpoints: str) -> Offsets:
    """The offsets up to which earlier streams have read, by topic and partition; notes what is stored after them.

    Empty if there were none, or if the one query has begun a batch. Until then its checkpoint may not have its first
    offsets yet, even if it has an id. A replaced topic has no offsets: each partition is read from its beginning.
    """
    if _has_begun(checkpoints, landing_name(checkpoints)):
        return {}
    before, replaced = replaced_topics(checkpoints)
    own = () if before is None else tuple((table, f"{before}/{table.name}") for table in STREAMS[LANDING])
    earlier = {before: own} if before is not None and _has_begun(checkpoints, before) else EARLIER
    start: dict[str, Mapping[int, int]] = {}
    for stream, tables in earlier.items():
        filesystem, root = filesystem_of(table_uri(checkpoints, stream))
        if query_id(filesystem, root) is None:
            continue
        done = max(batches_of(filesystem, root, "commits"), default=-1)
        offsets = {topic: own for topic, own in end_of(filesystem, root, done).items() if topic not in replaced}
        start |= offsets
        for table, folder in tables:
            note = read_json(*_note(checkpoints, folder))
            if note is not None and DeltaTable.is_deltatable(table.uri(lake)):
                noted = (OffsetRange(**each) for each in note["ranges"] if each["topic"] not in replaced)
                ranges = (*(each for each in noted if not _is_read(each, start)), *_stored_after(table, lake, offsets))
                guard = OffsetGuard(table.uri(lake), ranges, note["version"])
                guard.note(guard_folder(checkpoints, table))
    return start | {topic: {} for topic in replaced}


def guard_folder(checkpoints: str, table: Table) -> str:
    """The folder where the one query notes what a table had before it."""
    return table_uri(checkpoints, f"{landing_name(checkpoints)}/{table.name}")


def _note(checkpoints: str, folder: str) -> tuple[pafs.FileSystem, str]:
    filesystem, root = filesystem_of(table_uri(checkpoints, folder))
    return filesystem, f"{root}/{NOTE}"


def _has_begun(checkpoints: str, name: str) -> bool:
    """Whether a query with this checkpoint has begun a batch."""
    filesystem, root = filesystem_of(table_uri(checkpoints, name))
    return bool(batches_of(filesystem, root, "offsets"))


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
