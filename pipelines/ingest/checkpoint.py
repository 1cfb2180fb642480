"""Checks that the checkpoints belong to this lake, and are as old as it is.

A checkpoint numbers its batches, and a table skips a batch whose number it already has. With the checkpoint of another
lake, or one older than the lake, records would be silently skipped. With a later one they would be, too: it has read
what the tables don't have.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable

import pyarrow.fs as pafs
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.durable import read_json, write_json
from kafka_telemetry_lake.pipelines.lake.errors import ForeignCheckpointError, OldCheckpointError, OldLakeError
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.state.manifest import OTHER_FORMAT
from kafka_telemetry_lake.pipelines.tables.operator import (
    BROKER_CONNECTIONS,
    OPERATOR_TABLES,
    PUSHES,
    QUARANTINE,
    QUOTA_SAMPLES,
    RECEIVER_HEALTH,
)
from kafka_telemetry_lake.pipelines.tables.table import NOT_OPENED, Opened, Table, table_uri
from kafka_telemetry_lake.udfs.errors import check_format

NOTE, FORMAT = "lake.json", 1  # of this note and of all others of the checkpoints that have no number of their own
TOPICS_NOTE = "topics.json"  # the landing topics' ids, and the checkpoint that reads them (`replaced_topics`)
POINTS = "points"  # the operator's name in checkpoints, logs and metrics
BATCH = "batch.json"  # beside the operator's id: what the batch reads whose commits are under way
STATE = "points-state"
LANDING = "landing"  # first checkpoint of the query that stores all landing records (`landing_name`)
STREAMS: dict[str, tuple[Table, ...]] = {
    LANDING: (PUSHES, BROKER_CONNECTIONS, RECEIVER_HEALTH, QUOTA_SAMPLES, QUARANTINE),
    POINTS: OPERATOR_TABLES,
}


def check_checkpoints(lake: str, checkpoints: str, opened: Opened = NOT_OPENED) -> None:
    """Record at the first start which lake the checkpoints belong to, and compare at later starts.

    Args:
        opened: tables of the lake that are open already.

    Raises:
        ForeignCheckpointError: the checkpoints belong to another lake.
        OtherFormatError: they have another format.
        OldCheckpointError: the checkpoints are older than the lake.
        OldLakeError: the tables are older than the checkpoints.
    """
    filesystem, root = filesystem_of(checkpoints)
    pushes = opened.get(PUSHES.name) or DeltaTable(PUSHES.uri(lake))
    check_lake_of(checkpoints, lake, str(pushes.metadata().id))
    for stream, tables in STREAMS.items():
        folder = f"{root}/{landing_name(checkpoints) if stream == LANDING else stream}"
        query = query_id(filesystem, folder)
        if query is None:
            continue
        last = _last_manifest(filesystem, root) if stream == POINTS else last_batch(filesystem, folder)
        written = _last_written(lake, tables, f"kafka-telemetry-lake:{stream}:{query}", opened)
        check_age(checkpoints, stream, last, written)
    batch = read_json(filesystem, f"{root}/{POINTS}/{BATCH}")
    if batch is not None and batch["version"] > pushes.version():
        raise OldLakeError(
            f"table {PUSHES.name} of {lake} ends at version {pushes.version()}, but the checkpoints below "
            f"{checkpoints} have read up to version {batch['version']}: the tables were copied or restored from an "
            "earlier time. Take both from one copy, made while no job ran, or name a new folder with --checkpoints "
            "(the source is read from its beginning, nothing is stored twice)"
        )


def check_lake_of(checkpoints: str, lake: str, own: str) -> None:
    """Record at the first start which lake the checkpoints belong to, and compare at later starts.

    Args:
        own: the id of its table `pushes`.

    Raises:
        ForeignCheckpointError: it is another lake.
        OtherFormatError: they have another format.
    """
    filesystem, root = filesystem_of(checkpoints)
    filesystem.create_dir(root, recursive=True)
    note = read_json(filesystem, f"{root}/{NOTE}")
    if note is None:
        write_json(filesystem, f"{root}/{NOTE}", {"format": FORMAT, "pushes": own})
        return
    check_format(f"the checkpoint below {checkpoints}", note.get("format"), FORMAT, OTHER_FORMAT)
    if note["pushes"] != own:
        raise ForeignCheckpointError(
            f"the checkpoints below {checkpoints} do not belong to lake {lake}, or the lake was deleted and created "
            "again: name the lake's own checkpoints with --checkpoints, or a new folder to read the source from its "
            "beginning (nothing is stored twice)"
        )


def check_age(checkpoints: str, stream: str, last: int, written: int) -> None:
    """Raise ``OldCheckpointError`` if a lake has a later batch of a stream than its checkpoint."""
    if written > last:
        raise OldCheckpointError(
            f"the checkpoint of stream {stream} below {checkpoints} ends at batch {last}, but the lake already "
            f"has batch {written}: the checkpoint was restored from an older backup than the lake. Restore both "
            "from one backup, or name a new folder with --checkpoints (the source is read from its beginning, "
            "nothing is stored twice)"
        )


def landing_name(checkpoints: str) -> str:
    """The folder of the checkpoint that reads the landing topics. It is another one after a topic was replaced."""
    filesystem, root = filesystem_of(checkpoints)
    note = read_json(filesystem, f"{root}/{TOPICS_NOTE}")
    return LANDING if note is None else str(note["landing"])


def begun_batch(checkpoint: str) -> int | None:
    """The batch that an earlier run started but did not finish, so Spark runs it again; None if there is none."""
    filesystem, root = filesystem_of(checkpoint)
    begun, done = last_batch(filesystem, root), last_batch(filesystem, root, "commits")
    return begun if begun > done else None


def points_app_id(checkpoints: str) -> str:
    """The application id of the operator's commits.

    Noted beside the checkpoint at its first start, where Spark notes the id of a query: `backlog` runs one there.
    """
    filesystem, root = filesystem_of(table_uri(checkpoints, POINTS))
    query = query_id(filesystem, root)
    if query is None:
        query = str(uuid.uuid4())
        filesystem.create_dir(root, recursive=True)
        write_json(filesystem, f"{root}/metadata", {"id": query})
    return f"kafka-telemetry-lake:{POINTS}:{query}"


def read_id(app_id: str) -> str:
    """The application id under which commits note the version of table `pushes` that the operator has read up to."""
    return f"{app_id}:read"


def query_id(filesystem: pafs.FileSystem, root: str) -> str | None:
    """The id of the query whose checkpoint is in a folder; None if there is none."""
    metadata = read_json(filesystem, f"{root}/metadata")
    return None if metadata is None else str(metadata["id"])


def batches_of(filesystem: pafs.FileSystem, root: str, log: str) -> list[int]:
    """The latest batches of a checkpoint that were begun (log ``offsets``) or finished (``commits``)."""
    entries = filesystem.get_file_info(pafs.FileSelector(f"{root}/{log}", allow_not_found=True))
    return [int(entry.base_name) for entry in entries if entry.base_name.isdigit()]


def last_batch(filesystem: pafs.FileSystem, root: str, log: str = "offsets") -> int:
    """The last batch of a checkpoint that was begun; -1: none."""
    return max(batches_of(filesystem, root, log), default=-1)


def _last_manifest(filesystem: pafs.FileSystem, root: str) -> int:
    entries = filesystem.get_file_info(pafs.FileSelector(f"{root}/{STATE}", allow_not_found=True))
    names = [match for entry in entries if (match := re.fullmatch(r"manifest-(\d+)\.json", entry.base_name))]
    return max((int(name[1]) for name in names), default=-1)


def _last_written(lake: str, tables: Iterable[Table], app_id: str, opened: Opened) -> int:
    there = [opened[table.name] for table in tables if table.name in opened]
    there += [
        DeltaTable(table.uri(lake))
        for table in tables
        if table.name not in opened and DeltaTable.is_deltatable(table.uri(lake))
    ]
    versions = [table.transaction_version(app_id) for table in there]
    return max((version for version in versions if version is not None), default=-1)
