"""The ids of the landing topics (KIP-516), noted beside the offsets that were read of them.

A topic that is deleted and made again begins at offset 0 again. If it has more records than were read of the one
before, Kafka has the next offset, and the records before it would be skipped without an error. So a topic with another
id is refused until someone says that it is new. Then another checkpoint begins with it, and all other topics go on
where they were.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kafka_telemetry_lake.pipelines.ingest.checkpoint import LANDING, TOPICS_NOTE, batches_of
from kafka_telemetry_lake.pipelines.lake.json_files import read_json, write_json
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
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
