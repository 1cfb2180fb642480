"""Landing topics that were replaced by others of their names: their ids (KIP-516) are noted with the checkpoint.

A topic that is deleted and made again begins at offset 0 again. If it has more records than were read of the one
before, Kafka has the next offset, and the records before it would be skipped without an error. So a topic with another
id is refused until someone says that it is new. Then another checkpoint begins with it, and all other topics go on
where they were: in Kafka at the offsets after the last finished batch, with files at the first file, and it passes over
what is stored already.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import reduce

import pyarrow.dataset as ds
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.ingest.checkpoint import (
    LANDING,
    STREAMS,
    TOPICS_NOTE,
    batches_of,
    landing_name,
    last_batch,
)
from kafka_telemetry_lake.pipelines.ingest.offset_log import end_of
from kafka_telemetry_lake.pipelines.ingest.sources import Offsets
from kafka_telemetry_lake.pipelines.lake.durable import read_json, write_json
from kafka_telemetry_lake.pipelines.lake.offset_guard import NOTE, OffsetGuard, OffsetRange
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.tables.table import Table, table_uri
from kafka_telemetry_lake.udfs.errors import CannotRunError

log = logging.getLogger("telemetry-lake")


class TopicReplacedError(CannotRunError):
    """A landing topic has another id than the one that was read before; the message says what to do."""


def check_topic_ids(checkpoints: str, ids: Mapping[str, str], *, new_topic: bool = False) -> None:
    """Compare the topics with those that the checkpoints were made for, and note those that are new.

    Args:
        ids: by topic; without those that don't exist. Brokers before 2.8 name none, and nothing is compared.
        new_topic: take a topic with another id as a new one, to be read from its beginning.

    Raises:
        TopicReplacedError: a topic has another id.
    """
    filesystem, root = filesystem_of(checkpoints)
    note = read_json(filesystem, f"{root}/{TOPICS_NOTE}") or {"ids": {}, "landing": LANDING}
    replaced = sorted(topic for topic, own in ids.items() if note["ids"].get(topic, own) != own)
    if replaced and not new_topic:
        (topic, *_) = replaced
        raise TopicReplacedError(
            f"topic {topic} isn't the one that this lake has read: it was deleted and made again, or the brokers are "
            f"another cluster's (topic id {ids[topic]}, before {note['ids'][topic]}). Its offsets count from 0 again, "
            "so going on would skip records. If it is the right topic, run once with --new-topic: it is read from its "
            "beginning, and no push is stored twice"
        )
    noted = note | {"ids": note["ids"] | dict(ids)}
    if replaced:
        if batches_of(filesystem, f"{root}/{note['landing']}", "offsets"):
            number = int(note["landing"].removeprefix(LANDING).removeprefix("-") or 1) + 1
            noted |= {"landing": f"{LANDING}-{number}", "before": note["landing"], "replaced": replaced}
        else:  # it has read nothing yet
            noted |= {"replaced": sorted({*replaced, *note.get("replaced", ())})}
        log.info("ingest: %s: a new topic, read from its beginning", ", ".join(replaced))
    if noted != note:
        filesystem.create_dir(root, recursive=True)
        write_json(filesystem, f"{root}/{TOPICS_NOTE}", noted)


def replaced_topics(checkpoints: str) -> tuple[str | None, frozenset[str]]:
    """The checkpoint before the current one, and the topics that were replaced then; None: it is the first one."""
    filesystem, root = filesystem_of(checkpoints)
    note = read_json(filesystem, f"{root}/{TOPICS_NOTE}") or {}
    return note.get("before"), frozenset(note.get("replaced", ()))


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
        (topic == name)
        & reduce(
            ds.Expression.__or__,
            [(partition == number) & (offset >= first) for number, first in partitions.items()],
            ~partition.isin(list(partitions)),
        )
        for name, partitions in offsets.items()
    ]
    names = ["source", "topic", "partition"]
    rows = DeltaTable(table.uri(lake)).to_pyarrow_dataset()
    stored = rows.to_table([*names, "offset"], filter=reduce(ds.Expression.__or__, later))
    for row in stored.group_by(names).aggregate([("offset", "min"), ("offset", "max")]).to_pylist():
        low, high = row.pop("offset_min"), row.pop("offset_max")
        yield OffsetRange(**row, low=low, high=high)
