"""The operator: judges the pushes of table `pushes`, batch by batch, and commits what its tasks made of them.

A batch takes some commits of table `pushes`. Its order (C11): tasks write files and states; the manifest names the
states; one commit per table makes the rows visible, that of `push_outcomes` last. Each commit carries the batch's
number, that of its moment (`lake.moments`), and the version of `pushes` that the batch has read up to. A batch that was
cut off runs again over the same pushes from the manifest before it. It gives the same rows, and a table that has its
number skips it.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kafka_telemetry_lake.pipelines.ingest.batch_report import Report, facts_of, latest_landing, log_batch, progress_of
from kafka_telemetry_lake.pipelines.ingest.checkpoint import BATCH, POINTS, points_app_id, read_id
from kafka_telemetry_lake.pipelines.ingest.operator_task import ProcessedBatch, ShardTask, log_set_aside, run_tasks
from kafka_telemetry_lake.pipelines.ingest.placement import Placement
from kafka_telemetry_lake.pipelines.ingest.store_task import workers_for
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.durable import read_json, write_json
from kafka_telemetry_lake.pipelines.lake.errors import StateMissingError
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.follower import Follower, Gap, Position, Step
from kafka_telemetry_lake.pipelines.lake.held_shards import HeldShards
from kafka_telemetry_lake.pipelines.lake.moments import COMMIT_ORDER, MOMENT, READ, note_of
from kafka_telemetry_lake.pipelines.lake.offset_guard import OffsetGuard
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from kafka_telemetry_lake.pipelines.quality.batch import broken_rules, describe
from kafka_telemetry_lake.pipelines.state.manifest import StateFolder
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.pipelines.tables.table import NOT_OPENED, Opened, Table, table_uri
from kafka_telemetry_lake.udfs.limits import Limits

log = logging.getLogger(__name__)

START_AGAIN = "start the job again, which judges the pushes that have no outcome"
SNAPSHOT_EVERY = timedelta(days=1)


@dataclass(frozen=True)
class OperatorSettings:
    """The lake of an operator, and its bounds.

    Attributes:
        lake: folder or URI of the lake.
        checkpoints: folder or URI of its checkpoints.
        max_bytes: bytes of push files after which a batch takes no further commit.
        fence: the lease under which commits are made.
    """

    lake: str
    checkpoints: str
    limits: Limits
    max_bytes: int
    fence: Fence | None = None


class Operator:
    """The operator of one lake. One process at a time.

    Args:
        report: called after each batch.
        opened: tables of the lake that are open already.
        unjudged: batches of files with the pushes that have no outcome, as paths below the folder of table `pushes`:
            what is judged where the log no longer has their commits. None: then the operator stops.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: OperatorSettings,
        state: StateFolder,
        report: Report | None = None,
        opened: Opened = NOT_OPENED,
        unjudged: Callable[[], Iterable[Sequence[str]]] | None = None,
    ) -> None:
        self._spark, self._settings, self._state, self._report = spark, settings, state, report
        self._unjudged = unjudged
        self.app_id = points_app_id(settings.checkpoints)
        self._read_id = read_id(self.app_id)
        checkpoint = table_uri(settings.checkpoints, POINTS)
        self.guard = OffsetGuard.load(spark, PUSH_OUTCOMES.uri(settings.lake), checkpoint)
        self._pushes = Follower(
            settings.lake,
            PUSHES,
            Gap.STOP if unjudged is None else Gap.ANEW,
            most_bytes=settings.max_bytes,
            remedy=START_AGAIN,
            checked=True,
        )
        self._batch = filesystem_of(f"{checkpoint}/{BATCH}")
        self._logs = {
            table.name: TableLog(table, settings.lake, settings.fence, opened.get(table.name)) for table in COMMIT_ORDER
        }
        self._placement = Placement(spark)
        self._run_id = uuid.uuid4().hex
        self.position = self._logs[PUSH_OUTCOMES.name].transaction_version(self._read_id)
        """The version of table `pushes` up to which all pushes are judged; None: `start_from` must say it first."""
        # From then on table `pushes` gets only pushes that no table has rows of.
        self._stored_before = None if self.position is not None else self.guard.stored_before(checkpoint)
        self._number: int | None = None  # of the next batch
        self._moment = self._logs[PUSH_OUTCOMES.name].transaction_version(MOMENT) or 0  # of the last batch

    @property
    def shards(self) -> int:
        return self._state.shards

    def require_shards(self, shards: int) -> None:
        """Let the state of a new lake have so many shards.

        Raises:
            ShardCountError: there is a state, with another number. One that `reshard` has not committed doesn't count.
        """
        if self.position is not None and self._begun(number := self._next_number()) is None:
            self._state.drop_after(number - 1)
        self._state.require(shards)

    def start_from(self, version: int) -> None:
        """Note that all pushes up to a version of table `pushes` are judged."""
        last = self._state.last()
        done = {READ: version} | ({} if last is None else {self.app_id: last.batch_id})
        self._logs[PUSH_OUTCOMES.name].commit([], self._read_id, version, done)
        self.position = version
        if self._stored_before is not None:
            self._stored_before.delete()
            self._stored_before = None

    def has_state(self) -> bool:
        """Whether a batch of this checkpoint has left a state."""
        return self._state.last() is not None

    def next_task(self) -> ShardTask | None:
        """What judges the next batch, without its files; None: `catch_up` must say first which batch that is."""
        return None if self._number is None else self._task(self._number, ())

    def catch_up(
        self, until: int | None = None, *, guarded: bool = False, judged: ProcessedBatch | None = None
    ) -> None:
        """Judge all pushes that are stored and not judged yet.

        Args:
            until: the latest version of table `pushes`; None: not known.
            guarded: try each push of the first batch before it is processed: one of them may have ended the last run.
            judged: used if the next batch has the same pushes; else it is void, as that of a task that failed.

        Raises:
            StateMissingError: a batch was cut off in its commits, its note is missing, and so are its commits.
        """
        assert self.position is not None  # `start_from` has noted one
        begun = None
        if self._number is None:
            self._number = self._next_number()
            begun = self._begun(self._number)
            if begun is None:
                self._state.drop_after(self._number - 1)
        while (step := self._next(self.position, begun, until)) is not None:
            version = step.position.version
            if step.first is None:
                self._judge_rest(version, guarded=guarded)
            elif step.files:
                if judged is not None and _is_of(judged.task, self._number, step.files):
                    self._finish(judged, version)
                else:
                    workers = workers_for(step.size)
                    self.run_batch(self._number, step.files, version, guarded=guarded, workers=workers, held=step.held)
                self._number += 1
            self.position, begun, guarded = version, None, False

    def _judge_rest(self, version: int, *, guarded: bool) -> None:
        """Judge the pushes that have no outcome, where the log of table `pushes` no longer has their commits.

        Args:
            version: of that table, up to which all is judged then.
        """
        assert self.position is not None  # `start_from` has noted one
        assert self._unjudged is not None  # else the follower stops
        number = self._next_number()
        if self._begun(number) is not None:
            batch = read_json(*self._batch)
            if batch is None or batch["number"] != number:
                raise StateMissingError(
                    f"batch {number} of the operator was cut off in its commits, and {self._batch[1]}, which says what "
                    "it reads, is missing: restore the lake and its checkpoints from one backup"
                )
            self.run_batch(number, batch["paths"], batch["version"], guarded=guarded)
            number, guarded = number + 1, False
        for paths in self._unjudged():
            self.run_batch(number, paths, self.position, guarded=guarded)
            number, guarded = number + 1, False
        self.start_from(version)
        self._number = number

    def run_batch(
        self, number: int, paths: Sequence[str], version: int | None = None, *, guarded: bool = False,
        workers: int | None = None, held: Mapping[str, HeldShards] | None = None,
    ) -> None:  # fmt: skip
        """Judge the pushes of files.

        Args:
            number: of the batch; the manifest of the one before it has the states to start from.
            paths: below the folder of table `pushes`.
            version: of that table, up to which all is read then; None: Spark's checkpoint notes what is read.
            guarded: try each push before it is processed.
            workers: number of Python workers to use, at most; None: as many as the session has cores.
            held: which shards have pushes in the files, by path; others may have those of all.
        """
        began = time.monotonic()
        task = replace(self._task(number, paths, guarded=guarded), held=dict(held or {}))
        self._finish(ProcessedBatch(task, run_tasks(self._spark, task, workers, self._placement), began), version)

    def _task(self, number: int, paths: Sequence[str], *, guarded: bool = False) -> ShardTask:
        return ShardTask(
            self._settings.lake, number, tuple(paths), self._state.shards, self._state.uri,
            self._state.before(number).states, self._settings.limits, self._stored_before, guarded=guarded,
        )  # fmt: skip

    def _finish(self, batch: ProcessedBatch, version: int | None) -> None:
        """Commit a batch, take a snapshot of the state if one is due, and report the batch."""
        files = [DataFile.from_json(text) for row in batch.rows for text in row["files"]]
        self._commit(batch, files, version)
        now = datetime.now(UTC)
        if self._state.snapshots.due(now, SNAPSHOT_EVERY):
            self._state.snapshots.take(now, self._state.before(batch.task.batch_id + 1), self._settings.lake)
        self._report_batch(batch, files, now)

    def _commit(self, batch: ProcessedBatch, files: Sequence[DataFile], version: int | None) -> None:
        """Make the rows and states of a batch count.

        Args:
            version: as `run_batch` has it.
        """
        # The order, in which each step relies on those before it (C11, docs/commit-protocol.md):
        # 1. The tasks have written files of rows and of states. Nothing names them yet.
        # 2. The manifest names the states. The batch before keeps its own: a batch that runs again starts from that.
        # 3. The note says what the batch reads, for the case that the log of `pushes` forgets its commits.
        # 4. The tables but the last one, at the same time, as no reader needs an order among them. Each commit has the
        #    batch's number: a table that has it skips the commit. So a batch may be committed any number of times.
        # 5. `push_outcomes`: the batch is done. Its number and version are where the next start goes on.
        # Cut off before 4, the batch is as if it had never been: its manifest is dropped, and the next one may read
        # more pushes. Cut off later, some tables have rows of exactly these pushes, so it runs again over the same ones
        # (`_begun`). Each commit checks the fence itself, so a job that was taken over fails at its next one.
        number = batch.task.batch_id
        manifest = self._state.before(number)
        self._state.write(manifest.after(number, {row["shard"]: row["state"] for row in batch.rows}))
        if version is not None:
            write_json(*self._batch, {"number": number, "version": version, "paths": batch.task.paths})
        *others, last = COMMIT_ORDER
        also = {MOMENT: self._moment + 1} | ({} if version is None else {self._read_id: version})

        def commit(table: Table) -> int:
            own, table_log = [file for file in files if file.table == table.name], self._logs[table.name]
            if not own:
                return table_log.version
            table_log.commit(own, self.app_id, number, also)
            return table_log.known_version

        with ThreadPoolExecutor(len(others)) as pool:  # each waits for its disk or store
            commits = {table.name: pool.submit(commit, table) for table in others}
            versions = {name: done.result() for name, done in commits.items()}
        # Spark's checkpoint reads pushes in its own order: any that is stored may have an outcome.
        versions[PUSHES.name] = DeltaTable(PUSHES.uri(self._settings.lake)).version() if version is None else version
        own = [file for file in files if file.table == last.name]
        outcomes = also | {READ: versions[PUSHES.name]} if own or version is not None else None
        note = note_of(self._moment + 1, versions)
        if self._logs[last.name].commit(own, self.app_id, number, outcomes, note):
            self._moment += 1

    def _report_batch(self, batch: ProcessedBatch, files: Sequence[DataFile], now: datetime) -> None:
        """Log and report what a batch has judged, which pushes it has set aside, and which quality rules it breaks."""
        number = batch.task.batch_id
        counts: Counter[str] = Counter()
        for row in batch.rows:
            counts.update(row["counts"])
        log_set_aside(f"points: batch {number}", batch.rows)
        seconds = time.monotonic() - batch.began
        broken = broken_rules(counts)
        for line in describe(broken):
            log.error("points: batch %d breaks quality rule %s", number, line)
        if self._report is not None:
            facts = facts_of(counts, latest_landing(files), self._state.size(), broken)
            self._report(progress_of(self._run_id, number, now, seconds, counts["push_outcomes"]), facts)
        log_batch(number, counts, seconds)

    def _next_number(self) -> int:
        done = self._logs[PUSH_OUTCOMES.name].transaction_version(self.app_id)
        return 0 if done is None else done + 1

    def _next(self, position: int, begun: int | None, until: int | None) -> Step | None:
        """What the next batch reads; None: nothing is new."""
        if begun is not None:
            return self._pushes.next(Position(position), begun, whole=True)
        return self._pushes.next(Position(position), until)

    def _begun(self, number: int) -> int | None:
        """The version up to which a batch has read that some tables have and others don't; None: no table has it."""
        for table_log in self._logs.values():
            if table_log.transaction_version(self.app_id) == number:
                return table_log.transaction_version(self._read_id)
        return None


def _is_of(task: ShardTask, number: int, paths: Iterable[str]) -> bool:
    """Whether a task has judged exactly what this batch reads."""
    return task.batch_id == number and set(task.paths) == set(paths)
