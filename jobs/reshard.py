"""``telemetry-lake reshard``: distributes the state of a lake's clients to another number of shards."""

from __future__ import annotations

import logging
import time

import pyarrow as pa
from deltalake.exceptions import DeltaError

from kafka_telemetry_lake.jobs.settings.base import UsageError
from kafka_telemetry_lake.jobs.settings.reshard import ReshardSettings
from kafka_telemetry_lake.jobs.support.locks import only_job
from kafka_telemetry_lake.jobs.support.running import JobFailedError
from kafka_telemetry_lake.pipelines.ingest.reshard import reshard
from kafka_telemetry_lake.pipelines.lake.checkpoint_folders import own_checkpoints
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake
from kafka_telemetry_lake.pipelines.replay.swap_note import is_swapping

log = logging.getLogger("telemetry-lake")


def run_job(settings: ReshardSettings) -> int:
    """Distribute the state, unless it has that number of shards already."""
    if not is_lake(settings.lake):
        raise UsageError(f"no lake at {settings.lake}")
    busy = f"a job is running on {settings.lake}: stop it, reshard, then start it again"
    with only_job(settings.lake, "reshard", busy) as fence:
        _reshard(settings, fence)
    return 0


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
        f"{done.clients:,}",
        done.before,
        settings.shards,
        time.monotonic() - began,
    )
