"""Gives the state of a lake another number of shards, between two batches.

To the operator it is a batch without pushes: new state files, then the manifest that names them, then a commit to table
`push_outcomes` with the batch's number, which makes it count. Until that commit the next batch starts from the manifest
before it, whose files stay. So a crash at any step, or a job that takes over, leaves the old number or the new one.
"""

from __future__ import annotations

from typing import NamedTuple

from kafka_telemetry_lake.pipelines.ingest.checkpoint import STATE, check_checkpoints, points_app_id, read_id
from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.state.manifest import Manifest, StateFolder
from kafka_telemetry_lake.pipelines.state.redistribute import redistribute
from kafka_telemetry_lake.pipelines.tables.operator import OPERATOR_TABLES, PUSH_OUTCOMES
from kafka_telemetry_lake.pipelines.tables.table import table_uri


class Resharded(NamedTuple):
    """The number of shards before, and the clients that have moved; None: it was that number already."""

    before: int
    clients: int | None


def reshard(uri: str, checkpoints: str, shards: int, fence: Fence | None = None) -> Resharded:
    """Distribute the operator's state to so many shards. Nothing else may write to the lake at the same time.

    Args:
        uri: path or URI of the lake.
        fence: the lease under which the commit is made.

    Raises:
        StateError: the state can't be read, or a batch has to be finished first; nothing has changed.
    """
    check_checkpoints(uri, checkpoints)
    lake, app_id = Lake(uri, fence), points_app_id(checkpoints)
    outcomes = lake.table(PUSH_OUTCOMES)
    done = outcomes.transaction_version(app_id)
    if done is None or outcomes.transaction_version(read_id(app_id)) is None:
        raise StateError(
            f"no push of {uri} has been judged yet, so there is nothing to distribute: start "
            f"`telemetry-lake ingest` first; of a new lake, with --shards {shards}"
        )
    number = done + 1
    if any(lake.table(table).transaction_version(app_id) == number for table in OPERATOR_TABLES):
        raise StateError(
            f"batch {number} of {uri} was cut off in its commits: start `telemetry-lake ingest --once`, which "
            "finishes it, then run this command again"
        )
    folder = StateFolder(table_uri(checkpoints, STATE), None, 1)
    folder.drop_after(done)
    before = folder.before(number)
    if before.shards == shards:
        return Resharded(shards, None)
    new = redistribute(folder.uri, before.states, shards, number)
    folder.write(Manifest(number, shards, new.states))
    lake.log(PUSH_OUTCOMES).commit([], app_id, number, {})
    return Resharded(before.shards, new.clients)
