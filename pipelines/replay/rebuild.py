"""Rebuilds the state of shards whose files are damaged, from the stored pushes. No table row changes.

It starts from the newest undamaged snapshot, or else from the first push, and ends where the operator will continue:
after the last batch that is done. A later batch is repeated anyway.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow.fs as pafs

from kafka_telemetry_lake.pipelines.ingest.checkpoint import points_app_id, read_id
from kafka_telemetry_lake.pipelines.ingest.operator_task import ShardTask
from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.stored_pushes import StoredOffsets
from kafka_telemetry_lake.pipelines.replay.files import batches_of, count_missing_pushes, drop_copies, push_files
from kafka_telemetry_lake.pipelines.state.chain import ShardFiles
from kafka_telemetry_lake.pipelines.state.manifest import Manifest, StateFolder
from kafka_telemetry_lake.pipelines.state.redistribute import restored
from kafka_telemetry_lake.pipelines.state.snapshots import Snapshot, Snapshots
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES
from kafka_telemetry_lake.udfs.errors import OtherFormatError
from kafka_telemetry_lake.udfs.limits import Limits

# Runs a task for the given shards and returns rows of `operator_task.TASK_RESULT`.
RunShards = Callable[[ShardTask, Sequence[int]], Iterable[Mapping[str, Any]]]
ALTERNATIVES = (
    "restore the lake and its checkpoints from one backup, or name a new folder with --checkpoints (the source is read "
    "from its beginning, nothing is stored twice)"
)


class Rebuilt(NamedTuple):
    """Result of `rebuild_state`: the batch after which the state is valid, the rebuilt shards, the snapshot used."""

    batch_id: int
    shards: list[int]
    snapshot: Snapshot | None


def rebuild_state(uri: str, checkpoints: str, limits: Limits, batch_bytes: int, run_shards: RunShards) -> Rebuilt:
    """Rebuild the state of the damaged shards. Nothing else may write to the lake at the same time.

    Args:
        uri: path or URI of the lake.
        limits: the job's own limits; with others the state would differ.
        batch_bytes: bytes of push files that are processed at a time.
        run_shards: runs tasks.

    Raises:
        StateError: the state can't be rebuilt; the lake is unchanged.
    """
    lake, checkpoints = Lake(uri), checkpoints.rstrip("/")
    folder = StateFolder(f"{checkpoints}/points-state", None, 1)
    target = _target(folder, _last_done(lake, checkpoints))
    damaged = [shard for shard in range(target.shards) if _is_damaged(folder, target, shard)]
    if not damaged:
        return Rebuilt(target.batch_id, [], None)
    _check_one_checkpoint(checkpoints)
    until = _version_after(lake, points_app_id(checkpoints), target.batch_id)
    snapshot = _usable_snapshot(checkpoints, folder.uri, target)
    _check_pushes(lake, snapshot, until)
    states: dict[int, tuple[str, ...]] = {}
    if snapshot is not None:
        states = restored(snapshot, folder.uri, target)
        states = {shard: names for shard, names in states.items() if shard in damaged}
    # The tables have all rows: tasks only update the state.
    included = lake.rows(PUSH_OUTCOMES, until)
    stored = StoredOffsets(f"{checkpoints}/points/rebuild.parquet").write(included)
    before = None if snapshot is None else snapshot.dataset(lake, PUSH_OUTCOMES)
    for batch in batches_of(push_files(uri, uuid.uuid4().hex, before, included), batch_bytes):
        paths = tuple(file.path for file in batch)
        task = ShardTask(uri, target.batch_id, paths, target.shards, folder.uri, states, limits, stored)
        states = states | {row["shard"]: tuple(row["state"]) for row in run_shards(task, damaged)}
    undamaged = {shard: names for shard, names in target.states.items() if shard not in damaged}
    folder.write(Manifest(target.batch_id, target.shards, undamaged | states))
    drop_copies(uri)
    stored.delete()
    return Rebuilt(target.batch_id, damaged, snapshot)


def _target(folder: StateFolder, last_done: int | None) -> Manifest:
    """The manifest that the next batch starts from. If it is damaged, the result names no files."""
    readable = folder.readable()
    if not readable:
        raise StateError(f"no manifest below {folder.uri} can be read: {ALTERNATIVES}")
    batch_id = max(folder.batch_ids()) if last_done is None else last_done
    undamaged = [manifest for manifest in readable if manifest.batch_id == batch_id]
    return undamaged[0] if undamaged else Manifest(batch_id, readable[-1].shards)


def _last_done(lake: Lake, checkpoints: str) -> int | None:
    """The operator's last batch that is done; None if nothing says which."""
    outcomes, app_id = lake.table(PUSH_OUTCOMES), points_app_id(checkpoints)
    if outcomes.transaction_version(read_id(app_id)) is not None:
        return outcomes.transaction_version(app_id)
    # A new checkpoint drains the lake's pushes by a query of Spark's (`backlog`), which marks its batches.
    filesystem, root = filesystem_of(f"{checkpoints}/points/commits")
    entries = filesystem.get_file_info(pafs.FileSelector(root, allow_not_found=True))
    return max((int(entry.base_name) for entry in entries if entry.base_name.isdigit()), default=None)


def _is_damaged(folder: StateFolder, manifest: Manifest, shard: int) -> bool:
    if not manifest.states:
        return True
    try:
        ShardFiles(folder.uri, shard).check(manifest.states.get(shard, ()))
    except (StateError, OtherFormatError):
        return True
    return False


def _check_one_checkpoint(checkpoints: str) -> None:
    """Raise ``StateError`` if the lake had points before this checkpoint.

    Then it is unknown which of the processed pushes the checkpoint's state includes.
    """
    filesystem, note = filesystem_of(f"{checkpoints}/points/offsets-before.json")
    if filesystem.get_file_info(note).type == pafs.FileType.NotFound:
        return
    with filesystem.open_input_file(note) as stream:
        if json.loads(stream.read())["ranges"]:
            raise StateError(
                f"the checkpoint below {checkpoints} began on a lake that had points already, so it is unknown which "
                f"of them its state includes. To rebuild the state, {ALTERNATIVES}"
            )


def _version_after(lake: Lake, app_id: str, batch_id: int) -> int:
    """The version of `push_outcomes` with the pushes of all batches up to and including this one."""
    table = lake.table(PUSH_OUTCOMES)
    while (table.transaction_version(app_id) or 0) > batch_id:
        table = lake.table(PUSH_OUTCOMES, table.version() - 1)
    return int(table.version())


def _usable_snapshot(checkpoints: str, states_uri: str, target: Manifest) -> Snapshot | None:
    """The newest usable snapshot that isn't after the target; None: start from the first push."""
    for snapshot in reversed(Snapshots(checkpoints).all()):
        if snapshot.batch_id > target.batch_id:
            continue
        try:
            for shard, names in snapshot.states.items():
                ShardFiles(states_uri, shard).check(names)
        except (StateError, OtherFormatError):
            continue
        return snapshot
    return None


def _check_pushes(lake: Lake, snapshot: Snapshot | None, until: int) -> None:
    """Raise ``StateError`` if table pushes lacks pushes that the state has processed since the snapshot."""
    missing = count_missing_pushes(lake, snapshot, until)
    if missing:
        raise StateError(
            f"the state can't be rebuilt: table pushes no longer has {missing} of the pushes that it includes "
            f"(retention), and no undamaged snapshot is recent enough: {ALTERNATIVES}"
        )
