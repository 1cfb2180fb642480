"""Serves a fleet's figures beside the streams of `ingest`, as `telemetry-lake export` does."""

from __future__ import annotations

import contextlib
import logging
import threading
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from prometheus_client import CollectorRegistry

from kafka_telemetry_lake.jobs.locks import LakeBusyError, export_as, only
from kafka_telemetry_lake.pipelines.export.counting import Counting, Selection
from kafka_telemetry_lake.pipelines.export.fleet import Fleet
from kafka_telemetry_lake.pipelines.export.following import READ_ERRORS
from kafka_telemetry_lake.pipelines.export.measures import DEFAULT_DIMENSIONS
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake
from kafka_telemetry_lake.pipelines.runtime.beside import beside

NAME = "prometheus"  # the default of the command: it goes on where the job ended, and the other way round
REFRESH_S = 15.0
PAUSE_S = 60.0  # after a failure
END_PATIENCE_S = 5.0

log = logging.getLogger("telemetry-lake")


def exporting(lake: str, registry: CollectorRegistry, *, wanted: bool) -> AbstractContextManager[None]:
    """Let a registry have the fleet's figures while the block runs. No failure ends or delays the block."""
    return beside("export", partial(_follow, lake, registry), END_PATIENCE_S) if wanted else nullcontext()


def _follow(lake: str, registry: CollectorRegistry, ended: threading.Event) -> None:
    while not ended.is_set():
        try:
            if not is_lake(lake):  # the job is about to make its tables
                ended.wait(REFRESH_S)
                continue
            with only(export_as(NAME), lake, ""):
                _serve(lake, registry, ended)
        except LakeBusyError:
            log.warning("export: another process exports this lake under the name %s; next time again", NAME)
        except READ_ERRORS as error:
            log.warning("export: %s; next time again", " ".join(str(error).split()))
        ended.wait(PAUSE_S)


def _serve(lake: str, registry: CollectorRegistry, ended: threading.Event) -> None:
    selection = Selection(DEFAULT_DIMENSIONS)
    with contextlib.closing(Counting(lake, NAME, selection)) as counting:
        fleet = Fleet(lake, counting, selection.top)
        registry.register(fleet)
        try:
            while not ended.is_set():
                fleet.refresh()
                ended.wait(REFRESH_S)
        finally:
            registry.unregister(fleet)
