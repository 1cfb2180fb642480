"""The lifecycle of clients: follows `pushes` and `push_outcomes`, keeps `client_changes`, adds to `client_events`.

It runs in the driver, on Arrow columns, without Spark: a step costs what its pushes cost, not a micro-batch's planning.
Table `client_changes` is its state too: a step's rows are committed with the step's number, and what else a step needs
stands in a note beside them. A step is noted before its commits and done again after a crash, over the same commits of
`pushes`; the tables that have its number skip it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from pipelines.delta_log import TableFiles, TableLog, lake_uri
from pipelines.lifecycle_log import Commit, FollowedTable
from pipelines.lifecycle_tables import CLIENT_CHANGES
from pipelines.state_manifest import StateError
from pipelines.subscriptions import SUBSCRIPTIONS
from pipelines.tables import CLIENT_EVENTS, LANDED_DATE, PUSH_OUTCOMES, PUSHES, Table
from udfs.lifecycle import LIFECYCLE_IN, Clocks, advance, sweep
from udfs.lifecycle_events import Bound, Found, event_rows
from udfs.lifecycle_labels import LABELS_IN, label
from udfs.lifecycle_state import Clients
from udfs.lifecycle_waves import Waves, wave_rows
from udfs.rebootstrap import SIGNALS_IN, judge

log = logging.getLogger(__name__)

APP_ID = "kafka-telemetry-lake:lifecycle"
OUTCOMES_IN = pa.unify_schemas([LABELS_IN, SIGNALS_IN])
STEP_ROWS = 200_000  # pushes that one step takes, whole commits
# Changes are merged into one row per client when they outgrow the clients, or lie in too many files.
LEAST_CHANGES = 100_000
MOST_FILES = 200
ROWS_AT_A_TIME = 65_536
FORGOTTEN_AFTER_US = 30 * 86_400_000_000
KEPT_HOURS = 1  # that readers of merged files have to finish
NOTE_VERSION = 1


@dataclass(frozen=True)
class Cut:
    """What a step reads: commits up to these versions; `now`, µs: what a live source is known to be read up to."""

    pushes: int = -1
    outcomes: int = -1
    now: int | None = None


@dataclass(frozen=True)
class Note:
    """What holds after a step beside the rows of `client_changes`, and the step that is under way."""

    step: int = 0
    done: Cut = field(default_factory=Cut)
    clocks: tuple[tuple[str, str, int, int], ...] = ()
    told: dict[str, int] = field(default_factory=dict)
    waves: dict[str, Any] = field(default_factory=dict)
    under_way: Cut | None = None


class Lifecycle:
    """The lifecycle of a lake's clients. One process at a time.

    Raises:
        StateError: the lake's note and its table aren't of one time.
    """

    def __init__(self, lake: str) -> None:
        for table in (PUSHES, PUSH_OUTCOMES, CLIENT_EVENTS, CLIENT_CHANGES):
            table.create(lake)
        self._lake = lake
        self._pushes, self._outcomes = FollowedTable(PUSHES.uri(lake)), FollowedTable(PUSH_OUTCOMES.uri(lake))
        self._logs = {table.name: TableLog(table, lake) for table in (CLIENT_EVENTS, CLIENT_CHANGES)}
        self._filesystem, root = pafs.FileSystem.from_uri(lake_uri(CLIENT_CHANGES.uri(lake)))
        self._note_path = f"{root}/_lifecycle.json"  # Delta readers and vacuum leave names with an underscore alone
        note = self._read_note()
        held = DeltaTable(CLIENT_CHANGES.uri(lake)).to_pyarrow_table()
        if note is None and held.num_rows:
            raise StateError(
                f"{self._note_path} is missing: delete the folder of table {CLIENT_CHANGES.name} to judge all pushes "
                "of the lake anew, or restore both from one backup"
            )
        self._note = note or Note()
        self._changes, self._files = held.num_rows, 0
        of_steps_done = held.filter(pc.less_equal(held["step"], self._note.step))
        self._clients = Clients.of_rows(of_steps_done, (place[:3] for place in self._note.clocks))
        self._clocks: Clocks = {code: clock for code, (*_, clock) in enumerate(self._note.clocks)}
        self._bound, self._waves = Bound(self._note.told), Waves(self._note.waves)

    def catch_up(self) -> None:
        """Take all that is there."""
        while self.step():
            pass

    def step(self, now: int | None = None) -> bool:
        """Take some of what is new; gives whether there was anything.

        Args:
            now: µs; a live source is known to be read up to there: who should have pushed by then is silent, though
                nothing arrives that would say so.
        """
        cut = self._note.under_way or self._next(now)
        if cut is None:
            return False
        if self._note.under_way is None:
            self._write_note(replace(self._note, under_way=cut))
        is_new = (cut.pushes, cut.outcomes) != (self._note.done.pushes, self._note.done.outcomes)
        self._take(cut)
        self._merge_changes()
        return is_new

    def relabel(self, outcomes: pa.Table) -> int:
        """Take labels that pushes have since a replay; gives how many clients had others.

        Args:
            outcomes: columns of `LABELS_IN`, of each client the latest.
        """
        step = self._note.step + 1
        changed = label(self._clients, outcomes, step)
        if len(changed):
            # Noted first: cut off in between, the next step has a number of its own, and the labels come once more.
            self._write_note(replace(self._note, step=step))
            self._commit(CLIENT_CHANGES, self._clients.rows(changed), step)
        return len(changed)

    def _next(self, now: int | None) -> Cut | None:
        done = self._note.done
        # Outcomes first: the push of each that is seen here is then there too.
        outcomes = _until(self._outcomes.commits(done.outcomes), done.outcomes)
        pushes = _until(self._pushes.commits(done.pushes), done.pushes)
        if (pushes, outcomes) != (done.pushes, done.outcomes):
            return Cut(pushes, outcomes)
        if now is None or not self._is_due(now):
            return None
        return Cut(pushes, outcomes, now)

    def _is_due(self, now: int) -> bool:
        return bool((self._clients["deadline"] < now).any()) or self._waves.waits(now)

    def _take(self, cut: Cut) -> None:
        step, done, clients = self._note.step + 1, self._note.done, self._clients
        pushes = _rows(self._pushes, done.pushes, cut.pushes, LIFECYCLE_IN)
        versions = _versions(self._lake)
        found = advance(clients, self._clocks, pushes, versions, step)
        changed, events = found.changed, found.events
        clocks = self._clocks
        if cut.now is not None:
            clocks = {code: max(clock, cut.now) for code, clock in self._clocks.items()}
            swept, silent = sweep(clients, clocks, versions, step)
            changed, events = np.union1d(changed, swept), Found.all_of([events, silent])
        outcomes = _rows(self._outcomes, done.outcomes, cut.outcomes, OUTCOMES_IN)
        changed = np.union1d(changed, label(clients, outcomes, step))
        self._waves.add(clients, events)
        connected, signs = judge(clients, outcomes, step)
        changed, events = np.union1d(changed, connected), Found.all_of([events, signs])
        fleet = wave_rows(self._waves.close(clients, clocks))
        single = event_rows(clients, self._bound.kept(events))
        self._bound.forget(self._clocks)
        self._commit(CLIENT_EVENTS, pa.concat_tables([single, fleet]), step)
        self._commit(CLIENT_CHANGES, clients.rows(changed), step)
        self._changes += len(changed)
        self._files += 1
        places = ((*clients.partitions[code], clock) for code, clock in sorted(self._clocks.items()))
        self._write_note(Note(step, replace(cut, now=None), tuple(places), self._bound.told, self._waves.content()))
        if pushes.num_rows or len(events.kind):
            log.info(
                "lifecycle: step %d: %s pushes, %s clients, %s events", step, f"{pushes.num_rows:,}",
                f"{clients.size:,}", f"{single.num_rows + fleet.num_rows:,}",
            )  # fmt: skip

    def _commit(self, table: Table, rows: pa.Table, step: int) -> None:
        files = TableFiles(table, self._lake)
        files.write(rows)
        self._logs[table.name].commit(files.close(), APP_ID, step)

    def _merge_changes(self) -> None:
        """Leave one row per client in `client_changes` when there are many more."""
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
                commit_properties=CommitProperties(app_transactions=[Transaction(APP_ID, self._note.step)]),
            )
        except CommitFailedError as error:  # maintenance has compacted its files meanwhile: the next step merges
            log.info("lifecycle: changes not merged: %s", error)
            return
        table.vacuum(KEPT_HOURS, dry_run=False, enforce_retention_duration=False)
        self._changes, self._files = self._clients.size, 0

    def _every_row(self) -> Iterator[pa.RecordBatch]:
        """The row of each client, some at a time: those of a million clients at once took 1.5 GB."""
        for first in range(0, self._clients.size, ROWS_AT_A_TIME):
            rows = self._clients.rows(np.arange(first, min(first + ROWS_AT_A_TIME, self._clients.size)))
            dates = pc.cast(rows["landed_at"], LANDED_DATE.type)
            yield from rows.append_column(LANDED_DATE, dates).cast(CLIENT_CHANGES.stored).to_batches()

    def _forget_gone(self) -> None:
        """Drop clients that are gone for long by their partition's clock; one that comes back is a new one."""
        clients = self._clients
        clock = np.array([self._clocks.get(code, 0) for code in range(len(clients.partitions))], np.int64)
        gone = clock[clients["partition"]] - clients["last_seen"] > FORGOTTEN_AFTER_US
        if gone.any():
            kept = clients.rows(np.flatnonzero(~gone))
            self._clients = Clients.of_rows(kept, clients.partitions)

    def _read_note(self) -> Note | None:
        if self._filesystem.get_file_info(self._note_path).type == pafs.FileType.NotFound:
            return None
        with self._filesystem.open_input_file(self._note_path) as stream:
            content = json.loads(stream.read())
        if content.pop("version") != NOTE_VERSION:
            raise StateError(f"{self._note_path}: written by another release, this one reads version {NOTE_VERSION}")
        cuts = {name: content[name] and Cut(**content[name]) for name in ("done", "under_way")}
        clocks = tuple((place[0], place[1], place[2], place[3]) for place in content["clocks"])
        return Note(**(content | cuts | {"clocks": clocks}))

    def _write_note(self, note: Note) -> None:
        with self._filesystem.open_output_stream(f"{self._note_path}.tmp") as stream:
            stream.write(json.dumps({"version": NOTE_VERSION, **asdict(note)}).encode())
        self._filesystem.move(f"{self._note_path}.tmp", self._note_path)
        self._note = note


def _until(commits: Iterable[Commit], done: int) -> int:
    """The last version that a step takes."""
    rows = 0
    for commit in commits:
        done, rows = commit.version, rows + commit.rows
        if rows >= STEP_ROWS:
            break
    return done


def _rows(table: FollowedTable, after: int, until: int, schema: pa.Schema) -> pa.Table:
    files = [file for commit in table.commits(after, until) for file in commit.files]
    return table.read(files, schema)


def _versions(lake: str) -> pa.Table:
    uri = SUBSCRIPTIONS.uri(lake)
    if not DeltaTable.is_deltatable(uri):
        return SUBSCRIPTIONS.schema.empty_table()
    return DeltaTable(uri).to_pyarrow_table().select(SUBSCRIPTIONS.schema.names).cast(SUBSCRIPTIONS.schema)
