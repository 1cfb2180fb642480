"""Whether a folder of checkpoints is this lake's own, and of its own time.

A checkpoint counts its batches, and a table that has a batch's number skips the batch. So with a checkpoint of another
lake records would be left out, and with an older one than the lake its next batches would be skipped, both in silence.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import pyarrow.fs as pafs
from deltalake import DeltaTable

from pipelines.delta_log import lake_uri, write_whole
from pipelines.state_manifest import StateError
from pipelines.tables import OPERATOR_TABLES, PUSHES, RECEIVER_HEALTH, Table

NOTE = "lake.json"
STREAMS: dict[str, tuple[Table, ...]] = {
    PUSHES.name: (PUSHES,),
    RECEIVER_HEALTH.name: (RECEIVER_HEALTH,),
    "points": OPERATOR_TABLES,
}


def check_checkpoints(lake: str, checkpoints: str) -> None:
    """Note at the first start whose checkpoints these are; compare at later ones.

    Raises:
        StateError: they are of another lake, or older than the lake; says what to do.
    """
    checkpoints = checkpoints.rstrip("/")
    filesystem, root = pafs.FileSystem.from_uri(lake_uri(checkpoints))
    filesystem.create_dir(root, recursive=True)
    own = str(DeltaTable(PUSHES.uri(lake)).metadata().id)
    try:
        with filesystem.open_input_file(f"{root}/{NOTE}") as stream:
            noted = json.loads(stream.read())["pushes"]
    except FileNotFoundError:
        write_whole(f"{checkpoints}/{NOTE}", {"pushes": own})
    else:
        if noted != own:
            raise StateError(
                f"the checkpoints below {checkpoints} are of another lake than {lake}, or the lake was deleted and "
                "made again: name its own with --checkpoints, or a new folder to read the source from its beginning "
                "(nothing is stored twice)"
            )
    for stream, tables in STREAMS.items():
        query, last = _query_id(filesystem, f"{root}/{stream}"), _last_batch(filesystem, f"{root}/{stream}")
        if query is None:
            continue
        written = _last_written(lake, tables, (query, f"kafka-telemetry-lake:{stream}:{query}"))
        if written > last:
            raise StateError(
                f"the checkpoint of stream {stream} below {checkpoints} ends at batch {last}, but the lake has its "
                f"batch {written}: it was restored from an older time than the lake. Restore both from one backup, or "
                "name a new folder with --checkpoints: the source is read from its beginning, nothing is stored twice"
            )


def _query_id(filesystem: pafs.FileSystem, root: str) -> str | None:
    try:
        with filesystem.open_input_file(f"{root}/metadata") as stream:
            return str(json.loads(stream.read())["id"])
    except FileNotFoundError:
        return None


def _last_batch(filesystem: pafs.FileSystem, root: str) -> int:
    entries = filesystem.get_file_info(pafs.FileSelector(f"{root}/offsets", allow_not_found=True))
    return max((int(entry.base_name) for entry in entries if entry.base_name.isdigit()), default=-1)


def _last_written(lake: str, tables: Iterable[Table], app_ids: Iterable[str]) -> int:
    opened = [DeltaTable(table.uri(lake)) for table in tables]
    versions = [table.transaction_version(app_id) for table in opened for app_id in app_ids]
    return max((version for version in versions if version is not None), default=-1)
