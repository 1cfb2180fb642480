"""``telemetry-lake reshard``: distributes the state of a lake's clients to another number of shards."""

from __future__ import annotations

import logging
import time

import pyarrow as pa
from deltalake.exceptions import DeltaError

from kafka_telemetry_lake.jobs.locks import LakeBusyError, only_job
from kafka_telemetry_lake.jobs.reshard_settings import ReshardSettings
from kafka_telemetry_lake.jobs.running import JobFailedError
from kafka_telemetry_lake.jobs.settings import UsageError
from kafka_telemetry_lake.pipelines.lake.checkpoint_folders import own_checkpoints
from kafka_telemetry_lake.pipelines.lake.engine import require_fast
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake
from kafka_telemetry_lake.pipelines.replay.swap_note import is_swapping
from kafka_telemetry_lake.pipelines.reshard import reshard
from kafka_telemetry_lake.pipelines.state.reshard_request import ReshardRequest

log = logging.getLogger("telemetry-lake")


ASK_S = 1.0  # between two looks at a request
LOOK_S = 10.0  # between two looks whether the job still runs


def run_job(settings: ReshardSettings) -> int:
    """Distribute the state, unless it has that number of shards already; a job that runs does it itself."""
    if not is_lake(settings.lake):
        raise UsageError(f"no lake at {settings.lake}")
    require_fast(settings.lake, "reshard")
    request, asked = ReshardRequest(settings.lake), False
    try:
        while True:
            try:
                with only_job(settings.lake, "reshard", "") as fence:
                    request.delete()
                    _reshard(settings, fence)
                    return 0
            except LakeBusyError:
                if _done_by_job(request, settings.shards, asked=asked):
                    return 0
                asked = True
    except BaseException:
        request.delete()
        raise


def _reshard(settings: ReshardSettings, fence: Fence) -> None:
    began = time.monotonic()
    checkpoints = own_checkpoints(settings.lake, settings.checkpoints, fence)
    if is_swapping(checkpoints):
        raise UsageError("a replay was interrupted in its swap: finish it with `telemetry-lake replay` first")
    try:
        done = reshard(settings.lake, checkpoints, settings.shards, fence)
    except (DeltaError, pa.ArrowException, OSError) as error:
        raise JobFailedError(f"reshard: {' '.join(str(error).split())}; run it again") from error
    if done.clients is None:
        log.info("reshard: nothing to do: %s has %d shards", settings.lake, done.before)
        return
    log.info(
        "reshard: done: %s clients from %d shards to %d in %.1f s; ingest can start again",
        f"{done.clients:,}", done.before, settings.shards, time.monotonic() - began,
    )  # fmt: skip


def _done_by_job(request: ReshardRequest, shards: int, *, asked: bool) -> bool:
    """Whether the job has done it within some seconds; it is asked first, unless it was before.

    Args:
        asked: this command has asked it before. If nothing is asked any more, the job has just answered.

    Raises:
        JobFailedError: it can't.
    """
    waiting = request.asked()
    if waiting != shards and not (asked and waiting is None):
        request.ask(shards)
        log.info("reshard: a job runs on the lake: it changes the shards before its next batch, after the next push")
    looks = time.monotonic() + LOOK_S
    while time.monotonic() < looks:
        if (refusal := request.refusal()) is not None:
            raise JobFailedError(f"reshard: {refusal}")
        if request.asked() is None:
            log.info("reshard: done: the job goes on with %d shards", shards)
            return True
        time.sleep(ASK_S)
    return False
