"""``telemetry-lake iceberg``: Iceberg metadata over the lake's Parquet files, once or after each commit."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyiceberg.exceptions import ValidationError, ValidationException

from kafka_telemetry_lake.jobs.settings.base import UsageError
from kafka_telemetry_lake.jobs.settings.iceberg import IcebergSettings
from kafka_telemetry_lake.jobs.support.locks import ICEBERG, only
from kafka_telemetry_lake.jobs.support.running import JobFailedError
from kafka_telemetry_lake.jobs.support.signals import stop_at_signals
from kafka_telemetry_lake.pipelines.iceberg.folder_tables import GRACE_S, FolderTables
from kafka_telemetry_lake.pipelines.iceberg.mirror import MirroredTable
from kafka_telemetry_lake.pipelines.iceberg.places import iceberg_root
from kafka_telemetry_lake.pipelines.lake.place import PlaceError, check_place, no_lake
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.table import table_uri
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

# Iceberg's library has its own of wrong metadata, and ValueError of what isn't metadata at all.
ERRORS = (DeltaError, OSError, pa.ArrowException, ValidationError, ValidationException, ValueError)
log = logging.getLogger("telemetry-lake")


def run_job(settings: IcebergSettings) -> int:
    """Bring all tables up to date, and again at each look until a signal if asked to follow."""
    if not is_lake(settings.lake):
        raise UsageError(no_lake(settings.lake))
    root = iceberg_root(settings.lake, settings.to)
    try:
        check_place(root)
    except PlaceError as error:
        raise UsageError(str(error).replace("lake:", "to:", 1)) from error
    with only(ICEBERG, root, f"another `iceberg` writes {root}: wait until it has ended, or stop it"):
        tables = _Tables(settings, root)
        if settings.follow:
            _until(
                stop_at_signals("iceberg: stopped while the lake was slow to answer"), tables, settings.refresh_seconds
            )
            log.info("iceberg: stopped")
            return 0
        problems = [*tables.follow(), *tables.tidy()]
    if problems:
        raise JobFailedError("\n".join(f"{problem}; run it again" for problem in problems))
    log.info("iceberg: %d tables in %s are up to date", len(tables), root)
    return 0


def _until(stop: threading.Event, tables: _Tables, every_s: float) -> None:
    """Look again and again. What fails is logged when it begins, and tried at the next look."""
    tidied_at, known = time.monotonic(), set[str]()
    while True:
        problems = tables.follow()
        if time.monotonic() - tidied_at >= GRACE_S:
            problems += tables.tidy()
            tidied_at = time.monotonic()
        for problem in problems:
            if problem not in known:
                log.warning("%s; it is tried again", problem)
        known = set(problems)
        if stop.wait(every_s):
            return


class _Tables:
    """All tables that the lake has."""

    def __init__(self, settings: IcebergSettings, root: str) -> None:
        self._settings, self._folder = settings, FolderTables(root)
        self._tables: dict[str, MirroredTable] = {}

    def __len__(self) -> int:
        return len(self._tables)

    def follow(self) -> list[str]:
        """Commit a snapshot of each table that has changed; returns what went wrong."""
        return [problem for name in CATALOG if (problem := _problem(name, self._follow)) is not None]

    def tidy(self) -> list[str]:
        """Delete metadata that nobody needs any more; returns what went wrong."""
        return [problem for name in self._tables if (problem := _problem(name, self._tidy)) is not None]

    def _follow(self, name: str) -> None:
        table = self._tables.get(name)
        if table is None:
            if not DeltaTable.is_deltatable(table_uri(self._settings.lake, name)):
                return
            table = MirroredTable(self._settings.lake, name, self._folder, self._settings.keep_snapshots)
        change = table.follow()
        self._tables[name] = table
        if change is not None:
            log.info(
                "iceberg: %s: %d files added, %d removed, as of version %d",
                name,
                change.added,
                change.removed,
                change.version,
            )

    def _tidy(self, name: str) -> None:
        if deleted := self._tables[name].tidy():
            log.info("iceberg: %s: %d files of old metadata deleted", name, deleted)


def _problem(name: str, step: Callable[[str], None]) -> str | None:
    """What went wrong with a table in a step; None: nothing. The others don't suffer from it."""
    try:
        step(name)
    except TelemetryLakeError as error:
        return f"iceberg: {error}"
    except ERRORS as error:
        return f"iceberg: {name}: {' '.join(str(error).split())[:300]}"
    return None
