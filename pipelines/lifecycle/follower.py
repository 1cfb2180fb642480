"""The lifecycle of clients: follows `pushes` and `push_outcomes`, writes `client_changes` and `client_events`.

A step processes clients on Arrow columns: few of them in this process, so a small fleet has no cost of planning a job,
and many in tasks of Spark, each with the clients of some shards (`shard_task`). Its state is table `client_changes`,
whose rows are committed with the step's number, and a note in the table's folder: what else there is of it is a copy.
The note names the input of a step before the step commits anything. After a crash the step is repeated with the same
input, and tables that already have its number skip it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from kafka_telemetry_lake.pipelines.lake.errors import StateMissingError
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.follower import Follower, Gap, Position, Step
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from kafka_telemetry_lake.pipelines.lifecycle.shard_runs import InProcess, InTasks, RunTask, ShardRuns
from kafka_telemetry_lake.pipelines.lifecycle.shard_task import ApplyPushes, Merge, MergeResult, ShardResult
from kafka_telemetry_lake.pipelines.lifecycle.step_note import FIELDS, StepEnd, StepNote
from kafka_telemetry_lake.pipelines.lifecycle.stored_rows import (
    ANEW,
    Reached,
    StoredRows,
    drop_stored_rows,
    unstored_events,
)
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS, PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS
from kafka_telemetry_lake.pipelines.tables.table import NOT_OPENED, Opened, Table
from kafka_telemetry_lake.udfs.lifecycle.clients import PLACE
from kafka_telemetry_lake.udfs.lifecycle.events import EventLimit
from kafka_telemetry_lake.udfs.lifecycle.labels import label
from kafka_telemetry_lake.udfs.lifecycle.push_sequences import Clocks, clocks_until
from kafka_telemetry_lake.udfs.lifecycle.step import step_events
from kafka_telemetry_lake.udfs.lifecycle.waves import Waves

log = logging.getLogger(__name__)

APP_ID = "kafka-telemetry-lake:lifecycle"
STEP_ROWS = 200_000  # a step reads whole commits until they have this many rows
# Changes are merged into one row per client when there are many more of them than clients, or too many files.
LEAST_CHANGES = 100_000
MOST_FILES = 200  # of a shard
# With more rows than that the clients are processed in tasks, if there are any: so many take 0.1 GB of this process.
MOST_IN_PROCESS = 100_000
RETENTION_HOURS = 1  # time for readers of the files before a merge to finish
Files = tuple[tuple[str, ...], tuple[str, ...]]  # of `pushes` and of `push_outcomes`


class Lifecycle:
    """The lifecycle of a lake's clients. Only one process may use it at a time: that of the lease `fence`.

    Args:
        opened: tables of the lake that are open already.
        tasks: number of shards, and what runs a task for each, for many clients; None: they are in this process too.

    Raises:
        StateMissingError: the table has rows, but its note is missing.
        OtherFormatError: the note has another format.
    """

    def __init__(
        self,
        lake: str,
        fence: Fence | None = None,
        opened: Opened = NOT_OPENED,
        tasks: tuple[int, RunTask] | None = None,
    ) -> None:
        tables = {
            table.name: opened.get(table.name) or table.create(lake)
            for table in (PUSHES, PUSH_OUTCOMES, CLIENT_EVENTS, CLIENT_CHANGES)
        }
        self._lake, self._tasks = Lake(lake, fence), tasks
        self._pushes, self._outcomes = (
            Follower(
                lake,
                table,
                Gap.ANEW,
                "lifecycle" if table is PUSHES else None,
                most_rows=STEP_ROWS,
                fence=fence,
                opened=tables,
            )
            for table in (PUSHES, PUSH_OUTCOMES)
        )
        self._logs = {
            table.name: self._lake.log(table, tables[table.name]) for table in (CLIENT_EVENTS, CLIENT_CHANGES)
        }
        self._note_file = self._lake.note(CLIENT_CHANGES, "_lifecycle", FIELDS, ANEW)
        content = self._note_file.read()
        note = None if content is None else StepNote.of(content)
        files = pa.table(tables[CLIENT_CHANGES.name].get_add_actions())
        self._changes, self._files = pc.sum(files["num_records"], min_count=0).as_py(), files.num_rows
        if note is None and self._changes:
            raise StateMissingError(f"{self._note_file.path} is missing: {ANEW}, or restore both from one backup")
        # After its folder was deleted, steps are numbered on from the stored events, and all stored rows are read
        # again: `unstored_events` leaves out events that are stored already.
        self._note = note or StepNote(self._logs[CLIENT_EVENTS.name].transaction_version(APP_ID) or 0)
        self._is_begun_again = note is None and self._note.step > 0
        self._runs, self._size = self._runs_for(self._changes, tables[CLIENT_CHANGES.name]), self._changes
        self._deadline = self._runs.deadline
        self._clocks: Clocks = {(source, topic, part): clock for source, topic, part, clock in self._note.clocks}
        partitions = list(self._clocks)
        self._event_limit, self._waves = EventLimit(self._note.event_counts, partitions), Waves(self._note.waves)
        self._subscriptions: DeltaTable | None = None
        self._stored = StoredRows.read(self._lake)
        if not any(end and end.part for end in (self._note.done, self._note.under_way)):
            drop_stored_rows(self._lake)  # of a beginning that was cut off before its first step, or after its last
        elif self._stored is not None:
            self._stored.write(self._lake)  # the process before may still delete its own

    def catch_up(self) -> None:
        """Process everything that is in the tables."""
        while self.step():
            pass

    def step(self, now: int | None = None) -> bool:
        """Process up to about `STEP_ROWS` new rows; returns whether there were any.

        Args:
            now: µs; all pushes until then are known to have been read from a live source. So clients that should have
                pushed by then are silent, even if no later push advances the clock.
        """
        end, files = self._next(now)
        if end is None:
            return False
        if self._note.under_way != end:
            self._write_note(replace(self._note, under_way=end))
        done = self._note.done
        is_new = end.part > 0 or (end.pushes, end.outcomes) != (done.pushes, done.outcomes)
        self._process(end, files)
        self._merge_changes()
        return is_new

    def relabel(self, outcomes: pa.Table) -> int:
        """Update clients to the labels that their pushes have after a replay; returns the number of clients changed.

        Args:
            outcomes: columns of `LABELS_IN`; the latest row of each client.
        """
        assert isinstance(self._runs, InProcess)  # a replay has no tasks for it
        clients, step = self._runs.clients, self._note.step + 1
        changed = label(clients, outcomes, step)
        if len(changed):
            # The note comes first: after a crash in between, the next step has another number, and relabel runs again.
            self._write_note(replace(self._note, step=step))
            self._commit(CLIENT_CHANGES, self._written(CLIENT_CHANGES, clients.rows(changed)), step)
        return len(changed)

    def _runs_for(self, rows: int, table: DeltaTable) -> ShardRuns:
        """What processes the clients of so many rows of a table."""
        if self._tasks is None or rows <= MOST_IN_PROCESS:
            return InProcess(self._lake, table, self._note.step)
        return self._in_tasks(rows, *self._tasks)

    def _in_tasks(self, rows: int, shards: int, run: RunTask) -> ShardRuns:
        log.info("lifecycle: clients are judged in tasks of %d shards: there are %s rows of them", shards, f"{rows:,}")
        return InTasks(self._lake, shards, run)

    def _next(self, now: int | None) -> tuple[StepEnd | None, Files]:
        """The end and the files of the next step, which is the one under way if there is one; None: there is none."""
        done, end = self._note.done, self._note.under_way
        nothing: Files = ((), ())
        if self._is_begun_again:
            return self._anew(), nothing
        if (end is not None and end.part) or (end is None and done.part):
            part = self._next_part(done.part + 1)
            files = self._stored_rows().parts[part.part - 1]
            is_there = self._pushes.has(files.pushes) and self._outcomes.has(files.outcomes)
            return part if is_there else self._anew(), nothing
        # Outcomes first: their pushes were stored earlier, so the step reads those too.
        if end is None:
            outcomes, pushes = self._outcomes.next(done.outcomes), self._pushes.next(done.pushes)
        else:
            outcomes = self._outcomes.next(done.outcomes, end.outcomes.version, whole=True)
            pushes = self._pushes.next(done.pushes, end.pushes.version, whole=True)
        if any(each is not None and each.first is None for each in (outcomes, pushes)):
            return self._anew(), nothing
        if end is None and (pushes or outcomes):
            end = StepEnd(self._reached_in(pushes, done.pushes), self._reached_in(outcomes, done.outcomes))
        elif end is None and now is not None and self._is_due(now):
            end = StepEnd(done.pushes, done.outcomes, now)
        return end, (() if pushes is None else pushes.files, () if outcomes is None else outcomes.files)

    def _reached_in(self, step: Step | None, before: Position) -> Position:
        """The position after a step; its time is the newest landing that was read before."""
        newest = max(self._clocks.values(), default=None)
        read_at = None if newest is None else datetime.fromtimestamp(newest / 1e6, UTC)
        return replace(before if step is None else step.position, read_at=read_at)

    def _anew(self) -> StepEnd:
        """Begin with the stored rows. What a step that was cut off has committed counts as that of a step done."""
        self._is_begun_again = False
        step = max(self._note.step, *(table.transaction_version(APP_ID) or 0 for table in self._logs.values()))
        if step > self._note.step:
            self._write_note(replace(self._note, step=step, under_way=None))
            self._runs = self._runs_for(self._changes, self._lake.create(CLIENT_CHANGES))
        self._stored = StoredRows.now(self._lake, self._reached(), STEP_ROWS)
        self._stored.write(self._lake)
        return self._next_part(1)

    def _next_part(self, number: int) -> StepEnd:
        stored = self._stored_rows()
        return StepEnd(stored.pushes, stored.outcomes, part=number)

    def _stored_rows(self) -> StoredRows:
        if self._stored is None:
            raise StateMissingError(
                f"the list of files beside {self._note_file.path} is missing: {ANEW}, or restore it from a backup"
            )
        return self._stored

    def _reached(self) -> list[Reached]:
        """How far each partition has been read: by the note, and by a step that was cut off before it was noted."""
        stored = self._lake.rows(CLIENT_CHANGES)
        rows = stored.to_table([*PLACE, "offset", "landed_at"], filter=pads.field("step") <= self._note.step)
        greatest = rows.group_by([*PLACE]).aggregate([("offset", "max"), ("landed_at", "max")])
        landed, offsets = greatest["landed_at_max"].cast(pa.int64()).to_pylist(), greatest["offset_max"].to_pylist()
        places = zip(*(greatest[name].to_pylist() for name in PLACE), strict=True)
        last = {place: (offset, at) for place, offset, at in zip(places, offsets, landed, strict=True)}
        for place, (_, at) in last.items():
            self._clocks[place] = max(self._clocks.get(place, at), at)
        return [Reached(*place, last.get(place, (-1, 0))[0], clock) for place, clock in self._clocks.items()]

    def _work(self, end: StepEnd, files: Files) -> ApplyPushes:
        """What a step does."""
        stored = None
        if end.part:
            stored = self._stored_rows()
            part = stored.parts[end.part - 1]
            files = (part.pushes, part.outcomes)
        return ApplyPushes(*files, stored, self._versions(), Clocks(self._clocks), end.now)

    def _is_due(self, now: int) -> bool:
        return self._deadline < now or self._waves.waits(now)

    def _process(self, end: StepEnd, files: Files) -> None:
        step = self._note.step + 1
        results: list[ShardResult] = self._runs(self._work(end, files), step)
        self._clocks = results[0].clocks
        self._deadline = min(result.deadline for result in results)
        self._size = sum(result.clients for result in results)
        found, until = ((result.events, result.counts) for result in results), clocks_until(self._clocks, end.now)
        rows = step_events(found, self._event_limit, self._waves, self._clocks, until)
        events = unstored_events(self._lake, rows) if end.part else rows
        self._commit(CLIENT_EVENTS, self._written(CLIENT_EVENTS, events), step)
        changes = [file for result in results for file in result.files]
        self._commit(CLIENT_CHANGES, changes, step)
        self._changes += sum(result.changed for result in results)
        self._files += len(changes)
        is_last_part = self._stored is not None and end.part == len(self._stored.parts)
        done = replace(end, now=None, part=0 if is_last_part else end.part)
        places = tuple((*place, clock) for place, clock in self._clocks.items())
        counts = self._event_limit.content(list(self._clocks))
        self._write_note(StepNote(step, done, places, counts, self._waves.content()))
        if is_last_part:
            drop_stored_rows(self._lake)
            self._stored = None
        if results[0].pushes or rows.num_rows:
            log.info(
                "lifecycle: step %d: %s pushes, %s clients, %s events",
                step,
                f"{results[0].pushes:,}",
                f"{self._size:,}",
                f"{rows.num_rows:,}",
            )
        if isinstance(self._runs, InProcess) and self._tasks is not None and self._size > MOST_IN_PROCESS:
            self._runs = self._in_tasks(self._size, *self._tasks)

    def _versions(self) -> pa.Table:
        """The versions of all subscriptions that are known by now."""
        if self._subscriptions is None:
            if not self._lake.has(SUBSCRIPTIONS):
                return SUBSCRIPTIONS.schema.empty_table()
            self._subscriptions = self._lake.create(SUBSCRIPTIONS)
        self._subscriptions.update_incremental()
        rows = self._subscriptions.to_pyarrow_table()
        return rows.select(SUBSCRIPTIONS.schema.names).cast(SUBSCRIPTIONS.schema)

    def _written(self, table: Table, rows: pa.Table) -> list[DataFile]:
        files = self._lake.files(table)
        files.write(rows)
        return files.close()

    def _commit(self, table: Table, files: Iterable[DataFile], step: int) -> None:
        self._logs[table.name].commit(files, APP_ID, step)

    def _merge_changes(self) -> None:
        """Rewrite `client_changes` to one row per client if it has many more rows or files."""
        if self._changes <= max(LEAST_CHANGES, 2 * self._size) and self._files <= MOST_FILES * self._runs.shards:
            return
        merged: list[MergeResult] = self._runs(Merge(self._clocks), self._note.step)
        files = [file for each in merged for file in each.files]
        try:
            self._logs[CLIENT_CHANGES.name].overwrite(files, APP_ID, self._note.step)
        except CommitFailedError as error:  # maintenance compacted the files at the same time; the next step retries
            log.info("lifecycle: changes not merged: %s", error)
            return
        self._drop_unreferenced()
        self._size = sum(each.clients for each in merged)
        self._changes, self._files = self._size, 0

    def _drop_unreferenced(self) -> None:
        """Delete old files that the table doesn't refer to.

        They are listed before the table is read: this process may be stopped in between for as long as it likes, and
        another one may take over, whose files are new since then.
        """
        filesystem, root = self._lake.folder(CLIENT_CHANGES)
        listed = {info.path for info in filesystem.get_file_info(pafs.FileSelector(root, recursive=True))}
        table = self._lake.table(CLIENT_CHANGES)
        unreferenced = table.vacuum(RETENTION_HOURS, dry_run=True, enforce_retention_duration=False)
        for path in {f"{root}/{unquote(path)}" for path in unreferenced} & listed:
            filesystem.delete_file(path)

    def _write_note(self, note: StepNote) -> None:
        self._note_file.write(note.stored())
        self._note = note
