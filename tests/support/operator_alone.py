"""The operator's own code on a lake, in this process and without Spark: what its batches commit, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.ingest import operator
from kafka_telemetry_lake.pipelines.ingest.operator import Operator, OperatorSettings
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.offset_guard import OffsetGuard
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.pipelines.tables.table import Table
from kafka_telemetry_lake.pipelines.upkeep.maintenance import Maintenance, MaintenanceSettings
from kafka_telemetry_lake.udfs.limits import Limits
from tests.support.ledger import Fleet
from tests.support.local_stream import LocalStream, run_tasks


def without_spark(patch: pytest.MonkeyPatch) -> None:
    """Let operators run their tasks in this process."""
    patch.setattr(operator, "run_tasks", lambda _, task, *__: list(run_tasks(task)))
    patch.setattr(OffsetGuard, "load", staticmethod(lambda *_: OffsetGuard("", (), -1)))


class CutOffError(Exception):
    """The job ends here."""


class Job:
    """The operator's own code on a lake in this process, without Spark."""

    def __init__(self, folder: Path, rounds: Callable[[], Iterable[Any]] | None = None) -> None:
        self.stream = LocalStream(folder)
        self.lake, self._rounds = str(self.stream.lake), rounds or Fleet().round
        self.start()

    def start(self, checkpoints: Path | None = None) -> None:
        where = str(checkpoints or self.stream.checkpoints)
        self.operator = Operator(None, OperatorSettings(self.lake, where, Limits(), 1 << 30), self.stream.state)  # type: ignore[arg-type]  # no Spark
        if self.operator.position is None:
            self.operator.start_from(DeltaTable(PUSHES.uri(self.lake)).version())

    def batch(self) -> None:
        self.stream.land(self._rounds())
        self.operator.catch_up()

    def cut_off_batch(self, patch: pytest.MonkeyPatch, before: Table = PUSH_OUTCOMES) -> None:
        """A batch whose last commit isn't made."""
        commit = TableLog.commit

        def cut(log: TableLog, *args: Any) -> bool:
            if log.table is before:
                raise CutOffError
            return commit(log, *args)

        with patch.context() as context:
            context.setattr(TableLog, "commit", cut)
            with pytest.raises(CutOffError):
                self.batch()

    def maintain(self, today: date, **days: int) -> None:
        settings = MaintenanceSettings(days, 64 << 20, 0, 7)
        job = Maintenance(self.lake, str(self.stream.checkpoints), settings, today)
        for name in job.tables():
            assert job.maintain(name).problems == ()
