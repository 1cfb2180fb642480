"""The lifecycle of a lake of tables by name: a step a micro-batch, right after the batch's rows are written.

What is recognised, and how, is that of `pipelines.lifecycle`, which follows tables by their logs. Here a step reads the
rows of its batch, and the clients are in this process. Its state is table `client_changes`, read at the start, and a
note in the folder of the checkpoint, which is written when both tables have the step. A batch that runs again, without
a note of it, repeats the step from the same rows and the same state; tables that have it skip it.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.pipelines.lake.notes import FencedNote
from kafka_telemetry_lake.pipelines.spark_engine.tables import TablesByName
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS
from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS
from kafka_telemetry_lake.udfs.errors import NEW_LAKE
from kafka_telemetry_lake.udfs.lifecycle.clients import Clients
from kafka_telemetry_lake.udfs.lifecycle.events import EventLimit
from kafka_telemetry_lake.udfs.lifecycle.push_sequences import Clocks, with_clocks
from kafka_telemetry_lake.udfs.lifecycle.step import gone, step_events, step_shard
from kafka_telemetry_lake.udfs.lifecycle.waves import Waves

log = logging.getLogger(__name__)

LEAST_CHANGES = 100_000  # rows of `client_changes` from which it is rewritten, if it has twice as many as clients
EMPTY: dict[str, Any] = {"batch": -1, "step": 0, "clocks": [], "counts": {}, "waves": {}}


class BatchLifecycle:
    """The clients of a lake, as of the last batch.

    Args:
        checkpoints: folder or URI of the note.

    Raises:
        OtherFormatError: the note has another format.
    """

    def __init__(self, tables: TablesByName, checkpoints: str) -> None:
        self._tables = tables
        self._note = FencedNote(checkpoints, "lifecycle", EMPTY, NEW_LAKE)
        note = self._note.read() or EMPTY
        self._batch, self._step = int(note["batch"]), int(note["step"])
        self._clocks: Clocks = {(source, topic, part): clock for source, topic, part, clock in note["clocks"]}
        self._event_limit, self._waves = EventLimit(note["counts"], list(self._clocks)), Waves(note["waves"])
        self._clients, rows = Clients(), tables.rows(CLIENT_CHANGES, f"step <= {self._step}")
        self._clients.put(rows)
        self._changes = rows.num_rows

    def step(self, app_id: str, batch_id: int, pushes: pa.Table, outcomes: pa.Table) -> None:
        """Process the clients of a batch, unless that is done.

        Args:
            pushes: columns of ``LIFECYCLE_IN``.
            outcomes: columns of ``OUTCOMES_IN``.
        """
        if batch_id <= self._batch:
            return
        step, app_id, number = self._step + 1, f"{app_id}:lifecycle", pushes.num_rows
        clocks = Clocks(self._clocks)
        pushes = with_clocks(pushes, clocks)
        done = step_shard(self._clients, clocks, pushes, outcomes, SUBSCRIPTIONS.schema.empty_table(), step)
        events = step_events([(done.events, done.counts)], self._event_limit, self._waves, clocks, clocks)
        for table, rows in ((CLIENT_EVENTS, events), (CLIENT_CHANGES, self._clients.rows(done.changed))):
            if rows.num_rows:
                self._tables.append(table, self._tables.frame(table, rows), app_id, batch_id)
        self._clocks, self._batch, self._step = clocks, batch_id, step
        self._write_note()
        self._changes += len(done.changed)
        log.info(
            "lifecycle: step %d: %s pushes, %s clients, %s events",
            step,
            f"{number:,}",
            f"{self._clients.size:,}",
            f"{events.num_rows:,}",
        )
        if self._changes > max(LEAST_CHANGES, 2 * self._clients.size):
            self._merge_changes()

    def _merge_changes(self) -> None:
        """Forget the clients that are gone (L18), and rewrite the table to one row of each of the others."""
        slots = np.arange(self._clients.size)
        self._clients.keep(np.setdiff1d(slots, gone(self._clients, self._clocks), assume_unique=True))
        rows = self._clients.rows(np.arange(self._clients.size))
        self._tables.replace(CLIENT_CHANGES, self._tables.frame(CLIENT_CHANGES, rows))
        self._changes = rows.num_rows

    def _write_note(self) -> None:
        note = {
            "batch": self._batch,
            "step": self._step,
            "clocks": [[*place, clock] for place, clock in self._clocks.items()],
            "counts": self._event_limit.content(list(self._clocks)),
            "waves": self._waves.content(),
        }
        self._note.write(note)
