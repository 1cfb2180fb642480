"""Replay: recompute the operator's rows from the stored pushes and swap them in, with one commit per table.

A replay creates a new generation of rows and state. It starts from the first push, or from a snapshot taken before the
requested pushes. It never starts with empty state later on, because a running counter's whole value would count as an
increase. Readers of a table see only old rows before its commit and only new rows after it, and the swap is a moment of
its own (`lake.moments`). The commits have a ``txnAppId`` of the generation, so those of the stream don't change, and an
interrupted swap can be completed later.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs

from kafka_telemetry_lake.pipelines.ingest.operator_task import ShardTask
from kafka_telemetry_lake.pipelines.lake.durable import read_json, write_json
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.moments import COMMIT_ORDER, MOMENT, note_of
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.stored_pushes import DROPPED_BEFORE, ask
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from kafka_telemetry_lake.pipelines.replay.files import batches_of, count_missing_pushes, drop_copies, push_files
from kafka_telemetry_lake.pipelines.replay.followers import rewrite_quota_reports, update_followers
from kafka_telemetry_lake.pipelines.replay.swap_note import SWAP
from kafka_telemetry_lake.pipelines.state.manifest import Manifest, StateFolder
from kafka_telemetry_lake.pipelines.state.redistribute import restored
from kafka_telemetry_lake.pipelines.state.snapshots import Snapshot, Snapshots
from kafka_telemetry_lake.pipelines.tables.operator import (
    CLIENT_EVENTS,
    OPERATOR_TABLES,
    PUSH_OUTCOMES,
    PUSHES,
    QUOTA_REPORTS,
)
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE
from kafka_telemetry_lake.udfs.errors import CannotRunError
from kafka_telemetry_lake.udfs.limits import Limits

TaskResults = Iterable[Mapping[str, Any]]
RunTasks = Callable[[ShardTask], TaskResults]  # rows of `operator_task.TASK_RESULT`, one for each shard
Progress = Callable[[int, int], None]  # called with the payload bytes done and in total

# The events in `client_events` that the operator writes.
OPERATOR_EVENTS = ("temporality_flip", "lost_interval", "lost_interval_closed", "too_late")


class ReplayError(CannotRunError):
    """The requested replay is impossible; the message says why, and what to do."""


def replay(
    uri: str, checkpoints: str, wanted: str | None, limits: Limits, batch_bytes: int, run_tasks: RunTasks,
    progress: Progress | None = None, fence: Fence | None = None,
) -> str:  # fmt: skip
    """Replay the pushes of a lake. The job must have processed all of `pushes` and must not be running.

    Args:
        uri: path or URI of the lake.
        wanted: condition on `push_outcomes` (DuckDB SQL) for pushes that must be replayed; None: all.
        batch_bytes: bytes of push files that are processed at a time.
        run_tasks: runs a task for every shard.
        fence: the lease under which the lake is written.

    Returns:
        The generation's id.

    Raises:
        ReplayError: the replay is impossible; the lake is unchanged.
    """
    lake, state = Lake(uri, fence), StateFolder(f"{checkpoints}/points-state", None, 1)
    last = state.last()
    if last is None:
        raise ReplayError("nothing to replay: no push of this lake has been processed yet")
    snapshot = None if wanted is None else _snapshot_before(lake, checkpoints, wanted)
    _check_pushes(lake, snapshot)
    generation = uuid.uuid4().hex
    states: dict[int, tuple[str, ...]] = {}
    if snapshot is not None:
        states = restored(snapshot, state.uri, last)
    files: list[DataFile] = []
    before = None if snapshot is None else snapshot.dataset(lake, PUSH_OUTCOMES)
    batches = batches_of(push_files(uri, generation, before), batch_bytes)
    total, done = sum(file.size for batch in batches for file in batch), 0
    for batch in batches:
        paths = tuple(file.path for file in batch)
        task = ShardTask(uri, last.batch_id, paths, last.shards, state.uri, states, limits)
        for row in run_tasks(task):
            states = states | {row["shard"]: tuple(row["state"])}
            files += [DataFile.from_json(text) for text in row["files"]]
        done += sum(file.size for file in batch)
        if progress is not None:
            progress(done, total)
    files += _retained_events(lake, snapshot)
    reports, minutes = rewrite_quota_reports(lake, files)
    _write_swap(checkpoints, generation, last, states, snapshot, [*files, *reports], minutes)
    finish_swap(uri, checkpoints, fence)
    return generation


def finish_swap(uri: str, checkpoints: str, fence: Fence | None = None) -> bool:
    """Carry out the swap that a replay has prepared, or complete an interrupted one. Each step is idempotent.

    Args:
        uri: path or URI of the lake.
        fence: the lease under which the lake is written.

    Returns:
        Whether there was a swap to carry out.
    """
    lake = Lake(uri, fence)
    filesystem, root = filesystem_of(checkpoints)
    note = f"{root}/{SWAP}"
    swap = read_json(filesystem, note)
    if swap is None:
        return False
    files = [DataFile(**file) for file in swap["files"]]
    app_id = f"kafka-telemetry-lake:replay:{swap['generation']}"
    reports = (QUOTA_REPORTS,) if lake.has(QUOTA_REPORTS) else ()
    snapshots = Snapshots(checkpoints)
    restored = _restored_files(snapshots, swap["snapshot"])
    logs = {table: lake.log(table) for table in (*reports, *COMMIT_ORDER)}
    moment = (logs[PUSH_OUTCOMES].transaction_version(MOMENT) or 0) + 1
    versions = {PUSHES.name: lake.table(PUSHES).version()}
    for table, table_log in logs.items():
        own = [file for file in files if file.table == table.name]
        of_moment = note_of(moment, versions) if table is PUSH_OUTCOMES else None
        table_log.replace(own, restored.get(table.name, ()), app_id, {MOMENT: moment}, of_moment)
        versions[table.name] = table_log.known_version
    states = {int(shard): tuple(names) for shard, names in swap["states"].items()}
    StateFolder(f"{checkpoints}/points-state", None, 1).write(Manifest(swap["batch_id"], swap["shards"], states))
    # Snapshots taken after the replay's start refer to rows and state that no longer exist.
    for snapshot in snapshots.all():
        if snapshot.name > swap["snapshot"]:
            snapshots.drop(snapshot)
    _clear_stored_before(filesystem, root)
    update_followers(lake, swap["quota_minutes"])
    filesystem.delete_file(note)
    drop_copies(uri)
    return True


def _restored_files(snapshots: Snapshots, name: str) -> dict[str, list[dict[str, Any]]]:
    """The files, by table, that a swap restores: those of the snapshot that the replay started from."""
    if not name:
        return {}
    for snapshot in snapshots.all():
        if snapshot.name == name:
            # Of events the replay has written all rows.
            return {table.name: snapshot.files(table) for table in OPERATOR_TABLES if table is not CLIENT_EVENTS}
    raise ReplayError(
        f"the interrupted replay needs snapshot {name} of the state, which is gone: restore it, or the lake and its "
        "checkpoints, from a backup"
    )


def _snapshot_before(lake: Lake, checkpoints: str, wanted: str) -> Snapshot | None:
    """The newest snapshot before all of the wanted pushes; None: the replay must start from the first push."""
    for snapshot in reversed(Snapshots(checkpoints).all()):
        outcomes = snapshot.dataset(lake, PUSH_OUTCOMES)
        if ask(f"SELECT count(*) FROM outcomes WHERE {wanted}", outcomes=outcomes) == [(0,)]:
            return snapshot
    return None


def _check_pushes(lake: Lake, snapshot: Snapshot | None) -> None:
    """Raise ``ReplayError`` if pushes whose rows would be replaced have been dropped."""
    if snapshot is None and (days := lake.table(PUSHES).transaction_version(DROPPED_BEFORE)) is not None:
        raise ReplayError(
            f"retention has dropped the pushes that landed before {date(1970, 1, 1) + timedelta(days=days)}, so a "
            "replay can't start from the first push. Start from a later time for which there is a snapshot (--from)"
        )
    missing = count_missing_pushes(lake, snapshot)
    if missing:
        raise ReplayError(
            f"table pushes no longer has {missing} of the pushes whose rows would be replaced (retention), so the "
            "rows can't be recomputed. Replay from a later time, if there is a snapshot before it (--from)"
        )


def _retained_events(lake: Lake, snapshot: Snapshot | None) -> list[DataFile]:
    """Write the rows of `client_events` that the replay doesn't recompute, such as those of clients' lifecycles."""
    own = pads.field("event").isin(OPERATOR_EVENTS)
    now = lake.rows(CLIENT_EVENTS).to_table()
    retained = [now.filter(~own)]
    if snapshot is not None and now.num_rows:
        since = pads.field(LANDED_DATE.name) >= pc.min(now[LANDED_DATE.name])  # don't restore days dropped since
        then = snapshot.dataset(lake, CLIENT_EVENTS)
        retained.append(then.to_table(filter=own & since))
    files = lake.files(CLIENT_EVENTS)
    # An earlier version of the table may have fewer columns, and in another order.
    rows = pa.concat_tables(retained, promote_options="default")
    files.write(rows.select(CLIENT_EVENTS.schema.names).cast(CLIENT_EVENTS.schema))
    return files.close()


def _write_swap(
    checkpoints: str,
    generation: str,
    last: Manifest,
    states: dict[int, tuple[str, ...]],
    snapshot: Snapshot | None,
    files: Sequence[DataFile],
    quota_minutes: Sequence[int],
) -> None:
    """Write the note from which `finish_swap` carries out the swap. From then on a replay can't be undone."""
    content = {
        "generation": generation,
        "batch_id": last.batch_id,
        "shards": last.shards,
        "states": states,
        "snapshot": "" if snapshot is None else snapshot.name,
        "files": [asdict(file) for file in files],
        "quota_minutes": quota_minutes,
    }
    write_json(*filesystem_of(f"{checkpoints}/{SWAP}"), content)


def _clear_stored_before(filesystem: pafs.FileSystem, root: str) -> None:
    """Record that no rows were stored before this checkpoint, since all rows are now the replay's."""
    note = f"{root}/points/offsets-before.json"
    content = read_json(filesystem, note)
    if content is not None:
        write_json(filesystem, note, content | {"ranges": []})
