"""The lifecycle of clients: follows `pushes` and `push_outcomes`, writes `client_changes` and `client_events`.

It runs in the driver on Arrow columns, without Spark, so a step has no cost of planning a micro-batch. Its state is
table `client_changes`, whose rows are committed with the step's number, and a note in the table's folder. The note
names the input of a step before the step commits anything. After a crash the step is repeated with the same input, and
tables that already have its number skip it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from kafka_telemetry_lake.pipelines.lake.delta_log import TableFiles, TableLog
from kafka_telemetry_lake.pipelines.lake.dropped_rows import record_dropped
from kafka_telemetry_lake.pipelines.lake.epoch_notes import EpochNote
from kafka_telemetry_lake.pipelines.lake.errors import LogGapError, StateMissingError, StateVersionError
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.followed_table import Commit, FollowedTable
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.transactions import transaction
from kafka_telemetry_lake.pipelines.lifecycle.stored_rows import Reached, StoredRows, drop_stored_rows, unstored_events
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS, PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS
from kafka_telemetry_lake.pipelines.tables.table import NOT_OPENED, Opened, Table
from kafka_telemetry_lake.udfs.lifecycle.clients import Clients
from kafka_telemetry_lake.udfs.lifecycle.events import EventLimit, Events, event_rows
from kafka_telemetry_lake.udfs.lifecycle.labels import LABELS_IN, label
from kafka_telemetry_lake.udfs.lifecycle.push_sequences import LIFECYCLE_IN, Clocks
from kafka_telemetry_lake.udfs.lifecycle.rebootstrap import SIGNALS_IN, judge
from kafka_telemetry_lake.udfs.lifecycle.transitions import advance, sweep
from kafka_telemetry_lake.udfs.lifecycle.waves import Waves, wave_rows

log = logging.getLogger(__name__)

APP_ID = "kafka-telemetry-lake:lifecycle"
OUTCOMES_IN = pa.unify_schemas([LABELS_IN, SIGNALS_IN])
STEP_ROWS = 200_000  # a step reads whole commits until they have this many rows
# Changes are merged into one row per client when there are many more of them than clients, or too many files.
LEAST_CHANGES = 100_000
MOST_FILES = 200
ROWS_AT_A_TIME = 65_536
FORGOTTEN_AFTER_US = 30 * 86_400_000_000
RETENTION_HOURS = 1  # time for readers of the files before a merge to finish
NOTE_VERSION = 1
Input = tuple[list[Commit], list[Commit]]  # commits of `pushes` and of `push_outcomes`
EVENT_COUNTS = "told"  # the note's name for `Note.event_counts`; a new name would need a new version


@dataclass(frozen=True)
class StepEnd:
    """Where a step's input ends: the last versions of both tables that it reads.

    Attributes:
        now: µs; all pushes until then are known to have been read from a live source; None: not known.
        part: the step reads this part of `StoredRows` instead, from 1 on; 0: it reads commits.
    """

    pushes: int = -1
    outcomes: int = -1
    now: int | None = None
    part: int = 0


@dataclass(frozen=True)
class Note:
    """The state after a step that `client_changes` doesn't contain, and the end of the step under way."""

    step: int = 0
    done: StepEnd = field(default_factory=StepEnd)
    clocks: tuple[tuple[str, str, int, int], ...] = ()
    event_counts: dict[str, int] = field(default_factory=dict)
    waves: dict[str, Any] = field(default_factory=dict)
    under_way: StepEnd | None = None


class Lifecycle:
    """The lifecycle of a lake's clients. Only one process may use it at a time: that of the claim `fence`.

    Args:
        opened: tables of the lake that are open already.

    Raises:
        StateMissingError: the table has rows, but its note is missing.
        StateVersionError: the note was written by a release with another format.
    """

    def __init__(self, lake: str, fence: Fence | None = None, opened: Opened = NOT_OPENED) -> None:
        tables = {
            table.name: opened.get(table.name) or table.create(lake)
            for table in (PUSHES, PUSH_OUTCOMES, CLIENT_EVENTS, CLIENT_CHANGES)
        }
        self._lake, self._fence = lake, fence
        self._pushes, self._outcomes = FollowedTable(PUSHES.uri(lake)), FollowedTable(PUSH_OUTCOMES.uri(lake))
        self._logs = {
            table.name: TableLog(table, lake, fence, tables[table.name]) for table in (CLIENT_EVENTS, CLIENT_CHANGES)
        }
        self._note_file = EpochNote(CLIENT_CHANGES.uri(lake), "_lifecycle", fence)
        note = self._read_note()
        stored = tables[CLIENT_CHANGES.name].to_pyarrow_table()
        if note is None and stored.num_rows:
            raise StateMissingError(
                f"{self._note_file.path} is missing: delete the folder of table {CLIENT_CHANGES.name} to process all "
                "pushes of the lake again, or restore both from one backup"
            )
        # Begun again, its steps follow those whose events are stored.
        self._note = note or Note(self._logs[CLIENT_EVENTS.name].transaction_version(APP_ID) or 0)
        self._changes, self._files = stored.num_rows, 0
        of_steps_done = stored.filter(pc.less_equal(stored["step"], self._note.step))
        self._clients = Clients.of_rows(of_steps_done, (place[:3] for place in self._note.clocks))
        self._clocks: Clocks = {code: clock for code, (*_, clock) in enumerate(self._note.clocks)}
        self._event_limit, self._waves = EventLimit(self._note.event_counts), Waves(self._note.waves)
        self._subscriptions: DeltaTable | None = None
        self._found: tuple[StepEnd, Input] | None = None  # the commits of the next step, as `_next` has seen them
        self._stored = StoredRows.read(lake)
        if not any(end and end.part for end in (self._note.done, self._note.under_way)):
            drop_stored_rows(lake, fence)  # of a beginning that was cut off before its first step, or after its last
        elif self._stored is not None:
            self._stored.write(lake, fence)  # the process before may still delete its own

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
        end = self._note.under_way or self._next(now)
        if end is None:
            return False
        if self._note.under_way is None:
            self._write_note(replace(self._note, under_way=end))
        done = self._note.done
        is_new = end.part > 0 or (end.pushes, end.outcomes) != (done.pushes, done.outcomes)
        self._process(end)
        self._merge_changes()
        return is_new

    def relabel(self, outcomes: pa.Table) -> int:
        """Update clients to the labels that their pushes have after a replay; returns the number of clients changed.

        Args:
            outcomes: columns of `LABELS_IN`; the latest row of each client.
        """
        step = self._note.step + 1
        changed = label(self._clients, outcomes, step)
        if len(changed):
            # The note comes first: after a crash in between, the next step has another number, and relabel runs again.
            self._write_note(replace(self._note, step=step))
            self._commit(CLIENT_CHANGES, self._clients.rows(changed), step)
        return len(changed)

    def _next(self, now: int | None) -> StepEnd | None:
        done = self._note.done
        if done.part:
            return self._next_part(done.part + 1)
        try:
            # Outcomes first: their pushes were stored earlier, so the step reads those too.
            outcomes = _next_commits(self._outcomes.commits(done.outcomes))
            pushes = _next_commits(self._pushes.commits(done.pushes))
        except LogGapError as error:
            log.info("lifecycle: reads the stored pushes, not their commits: %s", error)
            if self._clocks:
                newest = datetime.fromtimestamp(max(self._clocks.values()) / 1e6, UTC)
                record_dropped(self._lake, "lifecycle", PUSHES, done.pushes, newest, self._fence)
            self._stored = StoredRows.now(self._lake, self._reached(), STEP_ROWS)
            self._stored.write(self._lake, self._fence)
            return self._next_part(1)
        if pushes or outcomes:
            end = StepEnd(_last(pushes, done.pushes), _last(outcomes, done.outcomes))
            self._found = end, (pushes, outcomes)
            return end
        if now is None or not self._is_due(now):
            return None
        return StepEnd(done.pushes, done.outcomes, now)

    def _next_part(self, number: int) -> StepEnd:
        stored = self._stored_rows()
        return StepEnd(stored.pushes, stored.outcomes, part=number)

    def _stored_rows(self) -> StoredRows:
        if self._stored is None:
            raise StateMissingError(
                f"the list of files beside {self._note_file.path} is missing: delete the folder of table "
                f"{CLIENT_CHANGES.name} to process all pushes of the lake again, or restore it from a backup"
            )
        return self._stored

    def _reached(self) -> list[Reached]:
        """How far each partition has been read."""
        clients, reached = self._clients, []
        for code, clock in self._clocks.items():
            offsets = clients["offset"][clients["partition"] == code]
            reached.append(Reached(*clients.partitions[code], int(offsets.max(initial=-1)), clock))
        return reached

    def _read(self, end: StepEnd) -> tuple[pa.Table, pa.Table]:
        """The rows of both tables that a step reads."""
        if end.part == 0:
            pushes, outcomes = self._commits(end)
            return self._pushes.read(_files(pushes), LIFECYCLE_IN), self._outcomes.read(_files(outcomes), OUTCOMES_IN)
        stored = self._stored_rows()
        part = stored.parts[end.part - 1]
        pushes = self._pushes.read(list(part.pushes), LIFECYCLE_IN)
        return stored.unread(pushes), stored.unread(self._outcomes.read(list(part.outcomes), OUTCOMES_IN))

    def _commits(self, end: StepEnd) -> Input:
        """The commits of both tables that a step reads: those that were seen before it, unless it was cut off."""
        found, self._found = self._found, None
        if found is not None and found[0] == end:
            return found[1]
        done = self._note.done
        pushes = list(self._pushes.commits(done.pushes, end.pushes))
        return pushes, list(self._outcomes.commits(done.outcomes, end.outcomes))

    def _is_due(self, now: int) -> bool:
        return bool((self._clients["deadline"] < now).any()) or self._waves.waits(now)

    def _process(self, end: StepEnd) -> None:
        step, clients = self._note.step + 1, self._clients
        pushes, outcomes = self._read(end)
        versions = self._versions()
        advanced = advance(clients, self._clocks, pushes, versions, step)
        changed, events = advanced.changed, advanced.events
        clocks = self._clocks
        if end.now is not None:
            clocks = {code: max(clock, end.now) for code, clock in self._clocks.items()}
            swept, silent = sweep(clients, clocks, versions, step)
            changed, events = np.union1d(changed, swept), Events.all_of([events, silent])
        changed = np.union1d(changed, label(clients, outcomes, step))
        self._waves.add(clients, events)
        connected, signs = judge(clients, outcomes, step)
        changed, events = np.union1d(changed, connected), Events.all_of([events, signs])
        fleet = wave_rows(self._waves.close(clients, clocks))
        single = event_rows(clients, self._event_limit.apply(events))
        self._event_limit.forget(self._clocks)
        rows = pa.concat_tables([single, fleet])
        self._commit(CLIENT_EVENTS, unstored_events(self._lake, rows) if end.part else rows, step)
        self._commit(CLIENT_CHANGES, clients.rows(changed), step)
        self._changes += len(changed)
        self._files += 1
        places = ((*clients.partitions[code], clock) for code, clock in sorted(self._clocks.items()))
        is_last_part = self._stored is not None and end.part == len(self._stored.parts)
        done = replace(end, now=None, part=0 if is_last_part else end.part)
        self._write_note(Note(step, done, tuple(places), self._event_limit.counts, self._waves.content()))
        if is_last_part:
            drop_stored_rows(self._lake, self._fence)
            self._stored = None
        if pushes.num_rows or len(events.kind):
            log.info(
                "lifecycle: step %d: %s pushes, %s clients, %s events", step, f"{pushes.num_rows:,}",
                f"{clients.size:,}", f"{single.num_rows + fleet.num_rows:,}",
            )  # fmt: skip

    def _versions(self) -> pa.Table:
        """The versions of all subscriptions that are known by now."""
        if self._subscriptions is None:
            if not DeltaTable.is_deltatable(SUBSCRIPTIONS.uri(self._lake)):
                return SUBSCRIPTIONS.schema.empty_table()
            self._subscriptions = DeltaTable(SUBSCRIPTIONS.uri(self._lake))
        self._subscriptions.update_incremental()
        rows = self._subscriptions.to_pyarrow_table()
        return rows.select(SUBSCRIPTIONS.schema.names).cast(SUBSCRIPTIONS.schema)

    def _commit(self, table: Table, rows: pa.Table, step: int) -> None:
        files = TableFiles(table, self._lake)
        files.write(rows)
        self._logs[table.name].commit(files.close(), APP_ID, step)

    def _merge_changes(self) -> None:
        """Rewrite `client_changes` to one row per client if it has many more rows or files."""
        size = self._clients.size
        if self._changes <= max(LEAST_CHANGES, 2 * size) and self._files <= MOST_FILES:
            return
        self._forget_gone()
        table = DeltaTable(CLIENT_CHANGES.uri(self._lake))
        try:
            write_deltalake(
                table,
                pa.RecordBatchReader.from_batches(CLIENT_CHANGES.stored, self._every_row()),
                mode="overwrite",
                commit_properties=transaction(APP_ID, self._note.step, table, self._fence),
            )
        except CommitFailedError as error:  # maintenance compacted the files at the same time; the next step retries
            log.info("lifecycle: changes not merged: %s", error)
            return
        self._drop_unreferenced()
        self._changes, self._files = self._clients.size, 0

    def _drop_unreferenced(self) -> None:
        """Delete old files that the table doesn't refer to.

        They are listed before the table is read: this process may be stopped in between for as long as it likes, and
        another one may take over, whose files are new since then.
        """
        uri = CLIENT_CHANGES.uri(self._lake)
        filesystem, root = filesystem_of(uri)
        listed = {info.path for info in filesystem.get_file_info(pafs.FileSelector(root, recursive=True))}
        unreferenced = DeltaTable(uri).vacuum(RETENTION_HOURS, dry_run=True, enforce_retention_duration=False)
        for path in {f"{root}/{unquote(path)}" for path in unreferenced} & listed:
            filesystem.delete_file(path)

    def _every_row(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all clients in batches: a million rows at once took 1.5 GB."""
        for first in range(0, self._clients.size, ROWS_AT_A_TIME):
            rows = self._clients.rows(np.arange(first, min(first + ROWS_AT_A_TIME, self._clients.size)))
            yield from CLIENT_CHANGES.with_partition(rows).to_batches()

    def _forget_gone(self) -> None:
        """L18: drop clients unseen for long by their partition's clock. If one comes back, it counts as new."""
        clients = self._clients
        clock = np.array([self._clocks.get(code, 0) for code in range(len(clients.partitions))], np.int64)
        gone = clock[clients["partition"]] - clients["last_seen"] > FORGOTTEN_AFTER_US
        if gone.any():
            self._clients = Clients.of_rows(clients.rows(np.flatnonzero(~gone)), clients.partitions)

    def _read_note(self) -> Note | None:
        content = self._note_file.read()
        if content is None:
            return None
        if content.pop("version") != NOTE_VERSION:
            raise StateVersionError(
                f"{self._note_file.path}: written by another release, this one reads version {NOTE_VERSION}"
            )
        ends = {name: content[name] and StepEnd(**content[name]) for name in ("done", "under_way")}
        clocks = tuple((place[0], place[1], place[2], place[3]) for place in content["clocks"])
        event_counts = content.pop(EVENT_COUNTS)
        return Note(**(content | ends | {"clocks": clocks, "event_counts": event_counts}))

    def _write_note(self, note: Note) -> None:
        content = {"version": NOTE_VERSION, **asdict(note)}
        for end in (content["done"], content["under_way"]):
            if end is not None and not end["part"]:  # earlier releases don't know it
                del end["part"]
        content[EVENT_COUNTS] = content.pop("event_counts")
        self._note_file.write(content)
        self._note = note


def _next_commits(commits: Iterable[Commit]) -> list[Commit]:
    """The commits that a step reads."""
    found, rows = list[Commit](), 0
    for commit in commits:
        found.append(commit)
        rows += commit.rows
        if rows >= STEP_ROWS:
            break
    return found


def _last(commits: Sequence[Commit], done: int) -> int:
    """The version of the last commit; without any, that of the step before."""
    return commits[-1].version if commits else done


def _files(commits: Iterable[Commit]) -> list[str]:
    return [file for commit in commits for file in commit.files]
