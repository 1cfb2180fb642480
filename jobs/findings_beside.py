"""Evaluates findings beside the streams of `ingest`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from kafka_telemetry_lake.jobs.locks import FINDINGS, LakeBusyError, only
from kafka_telemetry_lake.pipelines.findings.evaluator import Evaluator
from kafka_telemetry_lake.pipelines.findings.lake_hours import LakeHours
from kafka_telemetry_lake.pipelines.query.finding_overrides import Overrides
from kafka_telemetry_lake.pipelines.runtime.beside import beside

# An evaluation reads the whole hour under way again: it gets a tenth of the time, and a large fleet waits longer.
PAUSE_TIMES_EVALUATION = 9
END_PATIENCE_S = 30  # a step that is cut off is repeated at the next start

log = logging.getLogger("telemetry-lake")


@contextmanager
def evaluating(lake: str, minutes: float | None, *, once: bool, overrides: Overrides = ()) -> Iterator[None]:
    """Evaluate findings every so many minutes inside the block, or `once` at its end. A failure doesn't end the block.

    After an evaluation that took long, the next one waits longer.

    Args:
        minutes: None: never.
        overrides: other bounds for some client ids.
    """
    if minutes is None:
        yield
        return
    if once:
        yield
        _evaluate(lake, overrides)
        return
    with beside("findings", partial(_repeat, lake, overrides, 60 * minutes), END_PATIENCE_S):
        yield


def _repeat(lake: str, overrides: Overrides, pause_s: float, ended: threading.Event) -> None:
    next_pause_s = pause_s
    while not ended.wait(next_pause_s):
        begun = time.monotonic()
        _evaluate(lake, overrides)
        took_s = time.monotonic() - begun
        next_pause_s = max(pause_s, PAUSE_TIMES_EVALUATION * took_s)
        if next_pause_s > pause_s:
            log.info("findings: evaluated in %.0f s, again in %.0f s", took_s, next_pause_s)


def _evaluate(lake: str, overrides: Overrides) -> None:
    try:
        with only(FINDINGS, lake, ""):
            Evaluator(lake, LakeHours(lake, overrides)).evaluate(time.time_ns() // 1000)
    except LakeBusyError:
        log.info("findings: another process evaluates them; next time again")
    except Exception:
        log.exception("findings: not evaluated; next time again")
