"""Upkeep of a lake's tables in a thread of the job, once a minute."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from kafka_telemetry_lake.pipelines.lake.errors import FencedError
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES, QUOTA_SAMPLES, TABLES
from kafka_telemetry_lake.pipelines.upkeep.merging import MergeEndedError
from kafka_telemetry_lake.pipelines.upkeep.small_files import SmallFiles

log = logging.getLogger(__name__)

PAUSE_S = 60.0
# The tables that the job commits to without opening them.
KEPT_UP = (*TABLES, QUOTA_SAMPLES, CLIENT_CHANGES)


class Upkeep:
    """Upkeep of one lake.

    Args:
        judged: the version of table `pushes` up to which all pushes are judged; a batch may need later files as they
            are.
    """

    def __init__(self, lake: str, judged: Callable[[], int | None], fence: Fence | None = None) -> None:
        self._lake, self._judged = lake, judged
        self._tables = {table.name: (table, SmallFiles(table, lake, fence)) for table in KEPT_UP}

    def run(self, ended: threading.Event) -> None:
        """Look after the tables until the event is set."""
        while not ended.wait(PAUSE_S):
            self.look(ended)

    def look(self, ended: threading.Event, day: date | None = None) -> None:
        """Look after each table once; what fails is tried again at the next look.

        Args:
            day: landed date from which files are merged; None: today.
        """
        today = (day or datetime.now(UTC).date()).isoformat()
        for name, (table, files) in self._tables.items():
            if ended.is_set():
                return
            try:
                if not DeltaTable.is_deltatable(table.uri(self._lake)):
                    continue
                until = (self._judged() or 0) if table is PUSHES else None
                # The lifecycle merges its own changes.
                replaced = 0 if table is CLIENT_CHANGES else files.merge(today, until, ended)
                files.write_checkpoint()
            except (MergeEndedError, FencedError):
                return
            except (DeltaError, OSError, pa.ArrowException) as error:
                log.warning("upkeep: %s: %s", name, " ".join(str(error).split())[:500])
                continue
            if replaced:
                log.info("upkeep: %s: %d small files merged", name, replaced)
