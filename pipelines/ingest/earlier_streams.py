"""Takes over from the streams of earlier releases, which stored pushes, statuses and quota samples one by one.

Each had a checkpoint of its own. The one query begins where each of them ended: in Kafka at the offsets after their
last finished batch, with files at the first file. It passes over what is stored already.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import reduce

import pyarrow.dataset as ds
import pyarrow.fs as pafs
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.ingest.checkpoint import LANDING, batches_of, query_id
from kafka_telemetry_lake.pipelines.ingest.sources import Offsets
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
    offsets yet, even if it has an id.
    """
    filesystem, root = filesystem_of(table_uri(checkpoints, LANDING))
    if batches_of(filesystem, root, "offsets"):
        return {}
    start: dict[str, dict[int, int]] = {}
    for stream, tables in EARLIER.items():
        filesystem, root = filesystem_of(table_uri(checkpoints, stream))
        if query_id(filesystem, root) is None:
            continue
        offsets = _offsets(filesystem, root)
        start |= offsets
        for table, folder in tables:
            before = read_json(*_note(checkpoints, folder))
            if before is not None and DeltaTable.is_deltatable(table.uri(lake)):
                noted = (OffsetRange(**each) for each in before["ranges"])
                ranges = (*(each for each in noted if not _is_read(each, start)), *_stored_after(table, lake, offsets))
                guard = OffsetGuard(table.uri(lake), ranges, before["version"])
                guard.note(guard_folder(checkpoints, table))
    return start


def guard_folder(checkpoints: str, table: Table) -> str:
    """The folder where the one query notes what a table had before it."""
    return table_uri(checkpoints, f"{LANDING}/{table.name}")


def _note(checkpoints: str, folder: str) -> tuple[pafs.FileSystem, str]:
    filesystem, root = filesystem_of(table_uri(checkpoints, folder))
    return filesystem, f"{root}/{NOTE}"


def _offsets(filesystem: pafs.FileSystem, root: str) -> dict[str, dict[int, int]]:
    """Where the batch after the last finished one begins; empty for files, which have no offsets."""
    done = batches_of(filesystem, root, "commits")
    path = f"{root}/offsets/{max(done)}" if done else f"{root}/sources/0/0"
    if filesystem.get_file_info(path).type == pafs.FileType.NotFound:
        return {}
    with filesystem.open_input_file(path) as stream:
        content = json.loads(stream.read().decode().splitlines()[-1])
    return {
        topic: {int(number): offset for number, offset in partitions.items()}
        for topic, partitions in content.items()
        if isinstance(partitions, Mapping)
    }


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
