"""The batch without pushes that gives a state another number of shards."""

from __future__ import annotations

import logging
import time
from typing import NamedTuple

from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.state.manifest import Manifest, StateFolder
from kafka_telemetry_lake.pipelines.state.redistribute import redistribute
from kafka_telemetry_lake.pipelines.state.reshard_request import ReshardRequest

log = logging.getLogger("telemetry-lake")


class Resharded(NamedTuple):
    """The number of shards before, and the clients that have moved; None: it was that number already."""

    before: int
    clients: int | None


def change(folder: StateFolder, before: Manifest, shards: int, outcomes: TableLog, app_id: str) -> Resharded:
    """Do it as the batch after the one whose manifest is given.

    Args:
        outcomes: log of table `push_outcomes`.
        app_id: of the operator's commits.

    Raises:
        StateError: the state can't be read; nothing has changed.
    """
    number = before.batch_id + 1
    new = redistribute(folder.uri, before.states, shards, number)
    folder.write(Manifest(number, shards, new.states))
    outcomes.commit([], app_id, number, {})
    folder.shards = shards
    return Resharded(before.shards, new.clients)


def change_if_asked(request: ReshardRequest, folder: StateFolder, number: int, outcomes: TableLog, app_id: str) -> bool:
    """Do it as batch `number`, if a running job is asked for it; returns whether it was done.

    What can't be done is refused.
    """
    if (shards := request.asked()) is None:
        return False
    before = folder.before(number)
    if shards == before.shards:
        request.delete()
        return False
    began = time.monotonic()
    try:
        done = change(folder, before, shards, outcomes, app_id)
    except StateError as error:
        log.warning("points: the number of shards stays %d: %s", before.shards, error)
        request.refuse(str(error))
        return False
    request.delete()
    log.info(
        "points: reshard: %s clients from %d shards to %d in %.1f s",
        f"{done.clients:,}", done.before, shards, time.monotonic() - began,
    )  # fmt: skip
    return True
