"""Replay: the operator's rows made anew from the stored pushes, and swapped in, one commit per table.

A replay is a new generation of rows and of state. It begins at the first push, or at a snapshot of the state before the
pushes that are asked for, never with empty state in mid-stream: a running counter would count its lifetime again. Until
the swap readers see the old rows only, then the new ones only. Its commits carry the generation's own ``txnAppId``, so
the stream's own ids stay as they are and a swap that was cut off goes on where it was.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pipelines.delta_log import DataFile, TableFiles, TableLog, lake_uri, write_whole
from pipelines.once import IDENTITY
from pipelines.operator_task import ShardTask
from pipelines.replay_followers import follow, quota_reports_anew
from pipelines.snapshots import Snapshot, Snapshots
from pipelines.state_manifest import Manifest, StateFolder
from pipelines.stored_pushes import DROPPED_BEFORE, SAME, ask
from pipelines.tables import CLIENT_EVENTS, LANDED_DATE, OPERATOR_TABLES, PUSH_OUTCOMES, PUSHES, QUOTA_REPORTS
from udfs.shard import Limits

TaskResults = Iterable[Mapping[str, Any]]
RunTasks = Callable[[ShardTask], TaskResults]  # rows of `operator_task.TASK_RESULT`, one per shard
Progress = Callable[[int, int], None]  # payload bytes done, of all

SWAP = "points-swap.json"  # beside the checkpoints
# What the operator writes into `client_events`.
OPERATOR_EVENTS = ("temporality_flip", "lost_interval", "lost_interval_closed", "too_late")
COPIES = "_replay"  # below the folder of table pushes


class ReplayError(RuntimeError):
    """The lake can't be replayed as asked; the message says why, and what to do."""


@dataclass(frozen=True)
class PushFile:
    """A file of table `pushes` that is to be replayed: path below the table's folder, bytes, offsets per partition."""

    path: str
    size: int
    spans: dict[int, tuple[int, int]]

    def overlaps(self, other: PushFile) -> bool:
        both = self.spans.keys() & other.spans.keys()
        return any(self.spans[p][0] <= other.spans[p][1] and other.spans[p][0] <= self.spans[p][1] for p in both)


def replay(
    lake: str, checkpoints: str, wanted: str | None, limits: Limits, batch_bytes: int, run_tasks: RunTasks,
    progress: Progress | None = None,
) -> str:  # fmt: skip
    """Replay the pushes of a lake whose points stream is at rest: all of `pushes` judged, nothing running.

    Args:
        wanted: condition on `push_outcomes` (SQL of DuckDB) that selects what must be among the replayed; None: all.
        batch_bytes: bytes of push files that are worked on at a time.
        run_tasks: runs a task for every shard.

    Returns:
        The generation's id.

    Raises:
        ReplayError: nothing has changed then.
    """
    checkpoints = checkpoints.rstrip("/")
    state = StateFolder(f"{checkpoints}/points-state", None, 1)
    last = state.last()
    if last is None:
        raise ReplayError("nothing to replay: no push of this lake has been judged yet")
    snapshot = None if wanted is None else _snapshot_before(lake, checkpoints, wanted)
    if snapshot is not None and snapshot.shards != last.shards:
        raise ReplayError(f"the snapshot of {snapshot.taken_at} has {snapshot.shards} shards, the state {last.shards}")
    _check_whole(lake, snapshot)
    generation = uuid.uuid4().hex
    states: dict[int, tuple[str, ...]] = {}
    if snapshot is not None:
        snapshot.restore(state.uri)
        states = snapshot.states
    files: list[DataFile] = []
    batches = batches_of(_push_files(lake, snapshot, generation), batch_bytes)
    total, done = sum(file.size for batch in batches for file in batch), 0
    for batch in batches:
        paths = tuple(file.path for file in batch)
        task = ShardTask(lake, last.batch_id, paths, last.shards, state.uri, states, limits)
        for row in run_tasks(task):
            states = states | {row["shard"]: tuple(row["state"])}
            files += [DataFile.from_json(text) for text in row["files"]]
        done += sum(file.size for file in batch)
        if progress is not None:
            progress(done, total)
    files += _kept_events(lake, snapshot)
    reports, minutes = quota_reports_anew(lake, files)
    _write_swap(checkpoints, generation, last, states, snapshot, [*files, *reports], minutes)
    finish_swap(lake, checkpoints)
    return generation


def finish_swap(lake: str, checkpoints: str) -> bool:
    """Carry out the swap that a replay has prepared, or what is left of it; each step may run again.

    Returns:
        Whether there was one.
    """
    checkpoints = checkpoints.rstrip("/")
    filesystem, root = pafs.FileSystem.from_uri(lake_uri(checkpoints))
    note = f"{root}/{SWAP}"
    if filesystem.get_file_info(note).type == pafs.FileType.NotFound:
        return False
    with filesystem.open_input_file(note) as stream:
        swap = json.loads(stream.read())
    files = [DataFile(**file) for file in swap["files"]]
    app_id = f"kafka-telemetry-lake:replay:{swap['generation']}"
    minutes = swap.get("quota_minutes")  # None: an earlier release has prepared it
    reports = (QUOTA_REPORTS,) if minutes is not None and DeltaTable.is_deltatable(QUOTA_REPORTS.uri(lake)) else ()
    for table in (*OPERATOR_TABLES, *reports):
        own = [file for file in files if file.table == table.name]
        TableLog(table, lake).replace(own, swap["versions"].get(table.name), app_id)
    states = {int(shard): tuple(names) for shard, names in swap["states"].items()}
    StateFolder(f"{checkpoints}/points-state", None, 1).write(Manifest(swap["batch_id"], swap["shards"], states))
    # Snapshots after the replay's beginning are of the rows and the state that it has replaced.
    snapshots = Snapshots(checkpoints)
    for snapshot in snapshots.all():
        if snapshot.uri.rpartition("/")[2] > swap["snapshot"]:
            snapshots.drop(snapshot)
    _forget_rows_before(filesystem, root, checkpoints)
    follow(lake, minutes or (), app_id)
    filesystem.delete_file(note)
    _drop_copies(lake)
    return True


def batches_of(files: Sequence[PushFile], batch_bytes: int) -> list[list[PushFile]]:
    """Files in groups of about so many bytes; those whose offsets overlap stay together, so that order is kept."""
    batches: list[list[PushFile]] = []
    for file in files:
        meets = next((n for n, batch in enumerate(batches) if any(file.overlaps(other) for other in batch)), None)
        if meets is not None:
            batches[meets:] = [[other for batch in batches[meets:] for other in batch] + [file]]
        elif batches and sum(other.size for other in batches[-1]) + file.size <= batch_bytes:
            batches[-1].append(file)
        else:
            batches.append([file])
    return batches


def _snapshot_before(lake: str, checkpoints: str, wanted: str) -> Snapshot | None:
    """The newest snapshot before which none of the wanted pushes was judged; None: only the beginning will do."""
    for snapshot in reversed(Snapshots(checkpoints).all()):
        try:
            held = _dataset(PUSH_OUTCOMES.uri(lake), snapshot.versions[PUSH_OUTCOMES.name])
        except (DeltaError, KeyError):
            continue  # its version is no longer in the table's log
        query = f"SELECT count(*) FROM h WHERE {wanted}"
        if ask(query, h=held) == [(0,)]:
            return snapshot
    return None


def _check_whole(lake: str, snapshot: Snapshot | None) -> None:
    """All pushes whose rows are to be replaced must be there."""
    if snapshot is None and (days := DeltaTable(PUSHES.uri(lake)).transaction_version(DROPPED_BEFORE)) is not None:
        raise ReplayError(
            f"retention has dropped the pushes that landed before {date(1970, 1, 1) + timedelta(days=days)}: a replay "
            "can't begin at the beginning any more. Begin at a later point, for which there is a snapshot (--from)"
        )
    pushes, outcomes = _dataset(PUSHES.uri(lake)), _dataset(PUSH_OUTCOMES.uri(lake))
    tables = {"n": outcomes, "h": pushes}
    replaced = f"SELECT count(*) FROM n ANTI JOIN h ON {SAME}"
    if snapshot is not None:
        tables["s"] = _dataset(PUSH_OUTCOMES.uri(lake), snapshot.versions[PUSH_OUTCOMES.name])
        replaced += f" ANTI JOIN s ON {SAME.replace('h.', 's.')}"
    ((gone,),) = ask(replaced, **tables)
    if gone:
        raise ReplayError(
            f"rows of {gone} pushes would be replaced that table pushes no longer has (retention): their counters "
            "can't be made anew. Replay from a later point, if a snapshot of the state is old enough (--from)"
        )


def _push_files(lake: str, snapshot: Snapshot | None, generation: str) -> list[PushFile]:
    """The files to be replayed, in the order of landing.

    Of a file with pushes from before the snapshot, as compaction makes them, a copy of the others is taken. It lies
    in a folder that Delta's readers don't look at.
    """
    uri = PUSHES.uri(lake)
    filesystem, root = pafs.FileSystem.from_uri(lake_uri(uri))
    judged = None if snapshot is None else _dataset(PUSH_OUTCOMES.uri(lake), snapshot.versions[PUSH_OUTCOMES.name])
    active = pa.table(DeltaTable(uri).get_add_actions()).to_pylist()
    found: list[PushFile] = []
    for row in sorted(
        active, key=lambda row: (row["partition"][LANDED_DATE.name], str((row["min"] or {}).get("landed_at")))
    ):
        path, size = unquote(row["path"]), row["size_bytes"]
        if judged is not None:
            there = pq.ParquetFile(f"{root}/{path}", filesystem=filesystem)
            left = _unjudged(there.read(list(IDENTITY)), judged)
            if left.num_rows == 0:
                continue
            if left.num_rows < there.metadata.num_rows:
                path = f"{COPIES}/{generation}/{len(found):06d}.parquet"
                filesystem.create_dir(f"{root}/{COPIES}/{generation}", recursive=True)
                pq.write_table(_unjudged(there.read(), judged), f"{root}/{path}", filesystem=filesystem)
        spans = pq.ParquetFile(f"{root}/{path}", filesystem=filesystem).read(["partition", "offset"])
        bounds = spans.group_by("partition").aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
        found.append(PushFile(path, size, {b["partition"]: (b["offset_min"], b["offset_max"]) for b in bounds}))
    return found


def _kept_events(lake: str, snapshot: Snapshot | None) -> list[DataFile]:
    """Of `client_events`, to which the lifecycle of clients adds too, the rows that a replay does not make anew."""
    own = pads.field("event").isin(OPERATOR_EVENTS)
    now = _dataset(CLIENT_EVENTS.uri(lake)).to_table()
    kept = [now.filter(~own)]
    if snapshot is not None and now.num_rows:
        since = pads.field(LANDED_DATE.name) >= pc.min(now[LANDED_DATE.name])  # retention's days stay dropped
        then = _dataset(CLIENT_EVENTS.uri(lake), snapshot.versions[CLIENT_EVENTS.name])
        kept.append(then.to_table(filter=own & since))
    files = TableFiles(CLIENT_EVENTS, lake)
    files.write(pa.concat_tables(kept).select(CLIENT_EVENTS.schema.names).cast(CLIENT_EVENTS.schema))
    return files.close()


def _unjudged(pushes: pa.Table, judged: pads.Dataset) -> pa.Table:
    """The pushes that the outcomes don't name, by partition and offset."""
    low, high = pc.min_max(pushes["offset"]).as_py().values()
    near = judged.to_table(list(IDENTITY), filter=(pads.field("offset") >= low) & (pads.field("offset") <= high))
    with duckdb.connect() as connection:
        connection.register("n", pushes)
        connection.register("h", near)
        return connection.sql(
            f'SELECT n.* FROM n ANTI JOIN h ON {SAME} ORDER BY n."partition", n."offset"'
        ).to_arrow_table()


def _write_swap(
    checkpoints: str, generation: str, last: Manifest, states: dict[int, tuple[str, ...]], snapshot: Snapshot | None,
    files: Sequence[DataFile], quota_minutes: Sequence[int],
) -> None:  # fmt: skip
    """What is to be done, renamed into place whole: from here on the replay can only go forward."""
    content = {
        "generation": generation,
        "batch_id": last.batch_id,
        "shards": last.shards,
        "states": states,
        "snapshot": "" if snapshot is None else snapshot.uri.rpartition("/")[2],
        "versions": {} if snapshot is None else {n: v for n, v in snapshot.versions.items() if n != CLIENT_EVENTS.name},
        "files": [asdict(file) for file in files],
        "quota_minutes": quota_minutes,
    }
    write_whole(f"{checkpoints}/{SWAP}", content)


def _forget_rows_before(filesystem: pafs.FileSystem, root: str, checkpoints: str) -> None:
    """All rows are of this checkpoint now: none is left from before it that its tasks would have to look out for."""
    note = f"{root}/points/offsets-before.json"
    if filesystem.get_file_info(note).type != pafs.FileType.NotFound:
        with filesystem.open_input_file(note) as stream:
            content = json.loads(stream.read())
        write_whole(f"{checkpoints}/points/offsets-before.json", content | {"ranges": []})


def _dataset(uri: str, version: int | None = None) -> pads.Dataset:
    return DeltaTable(uri, version=version).to_pyarrow_dataset()


def _drop_copies(lake: str) -> None:
    filesystem, root = pafs.FileSystem.from_uri(lake_uri(PUSHES.uri(lake)))
    if filesystem.get_file_info(f"{root}/{COPIES}").type != pafs.FileType.NotFound:
        filesystem.delete_dir(f"{root}/{COPIES}")
