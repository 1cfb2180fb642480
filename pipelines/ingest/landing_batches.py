"""Commits batches of landing records, and lets the operator judge their pushes. It needs no Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafka_telemetry_lake.pipelines.ingest.operator import Operator
from kafka_telemetry_lake.pipelines.ingest.operator_task import ShardTask
from kafka_telemetry_lake.pipelines.ingest.store_task import STORED, Stored, workers_for
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.pipelines.tables.table import Table

# Writes a batch's records to files: by a number of workers (None: as many as there are cores), with the task that
# judges them if they are few.
Store = Callable[[int, ShardTask | None], Stored]
# Notes what is missing between the records of an application's batch, by the files that they are in.
NoteLost = Callable[[str, int, Sequence[DataFile]], object]


class LandingBatches:
    """The batches of one run of the query.

    Args:
        lake: folder or URI of the lake.
        fence: the claim under which commits are made.
        begun: the batch that an earlier run has begun and not ended; only this one may be stored already.
    """

    def __init__(
        self, lake: str, fence: Fence | None, operator: Operator, begun: int | None, note_lost: NoteLost | None = None
    ) -> None:
        self._lake, self._fence, self._operator, self._begun = lake, fence, operator, begun
        self._note_lost = note_lost
        self._logs: dict[str, TableLog] = {}
        # Of the next batch, by the size of the last one. A small fleet never needs a second worker.
        self._workers = 1

    def run(self, app_id: str, batch_id: int, store: Store) -> None:
        """Commit a batch's records, `pushes` last, and let the operator judge all pushes that are not judged yet.

        A batch that was cut off after its commit of `pushes` isn't stored again: the operator follows the table.

        Args:
            app_id: the application of the commits.
        """
        judged, failed = None, False
        if batch_id != self._begun or self._log(PUSHES).transaction_version(app_id) != batch_id:
            # One that was begun may have ended the previous run: its pushes are stored first, and tried one by one.
            is_first = batch_id != self._begun
            judge = self._operator.next_task() if self._workers == 1 and is_first else None
            stored = store(self._workers, judge)
            self._workers = workers_for(sum(file.size for file in stored.files))
            judged, failed = stored.judged, stored.failed or not is_first
            if self._note_lost is not None:
                self._note_lost(app_id, batch_id, stored.files)
            for table in STORED:
                if own := [file for file in stored.files if file.table == table.name]:
                    self._log(table).commit(own, app_id, batch_id)
        self._operator.catch_up(self._log(PUSHES).version, guarded=failed, judged=judged)

    def _log(self, table: Table) -> TableLog:
        if table.name not in self._logs:
            if self._fence is not None:  # a job that takes over can't note its epoch in a table that is to come
                self._fence.check()
            table.create(self._lake)  # that of quota samples only when there are any
            self._logs[table.name] = TableLog(table, self._lake, self._fence)
        return self._logs[table.name]
