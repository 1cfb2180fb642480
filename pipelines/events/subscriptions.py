"""Adds events early_push and subscription_changed to `client_events`: rows of a view that concern new pushes."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.dropped_rows import record_dropped
from kafka_telemetry_lake.pipelines.lake.errors import LogGapError
from kafka_telemetry_lake.pipelines.lake.followed_table import Commit, FollowedTable
from kafka_telemetry_lake.pipelines.lake.push_identity import IDENTITY
from kafka_telemetry_lake.pipelines.lake.stored_files import files_table, rows_in
from kafka_telemetry_lake.pipelines.lake.stored_pushes import same_push
from kafka_telemetry_lake.pipelines.lake.transactions import append_once
from kafka_telemetry_lake.pipelines.lifecycle.stored_rows import unstored_events
from kafka_telemetry_lake.pipelines.query.views import needed
from kafka_telemetry_lake.pipelines.subscriptions.client_matches import update_client_matches
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS, PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS
from kafka_telemetry_lake.pipelines.tables.table import table_uri
from kafka_telemetry_lake.udfs.rows import PUSHES_IN

log = logging.getLogger(__name__)

APP_ID = "kafka-telemetry-lake:subscription-events"
READ_AT = f"{APP_ID}:read-at"  # its version: a time (Unix seconds) before which that of `APP_ID` was the latest
FOLLOWER = "subscription_events"
VIEW = "subscription_events"
KEYS = pa.schema([PUSHES_IN.field(name) for name in IDENTITY])
STEP_ROWS = 200_000  # a step processes whole commits until they have this many pushes
# An early push is at most five minutes after another push. Older pushes matter only for the client's connection.
LOOK_BACK = timedelta(minutes=10)


def add_subscription_events(lake: str) -> int:
    """Add the events of pushes that are new since the last call, each once; returns the number of events.

    An event reflects what was known when it was added; view `subscription_events` reflects what is known now. A lake
    without table `subscriptions` has no such events.

    Raises:
        deltalake.exceptions.DeltaError: another process did the same at the same time, or the storage fails.
    """
    if not all(DeltaTable.is_deltatable(table.uri(lake)) for table in (SUBSCRIPTIONS, PUSH_OUTCOMES, CLIENT_EVENTS)):
        return 0
    events, now = DeltaTable(CLIENT_EVENTS.uri(lake)), int(time.time())
    followed, until = FollowedTable(PUSH_OUTCOMES.uri(lake)), DeltaTable(PUSH_OUTCOMES.uri(lake)).version()
    update_client_matches(lake)  # the view needs the matches of all clients up to `until`
    seen = events.transaction_version(APP_ID)
    position, number = -1 if seen is None else seen, 0
    try:
        for step in _steps(followed.commits(position, until)):
            pushes = followed.read([file for commit in step for file in commit.files], KEYS)
            position = step[-1].version
            number += _add(events, _events(lake, pushes), position, now)
    except (LogGapError, FileNotFoundError) as error:
        log.info("subscription events: of all stored pushes, those that are missing are added: %s", error)
        if (read_at := events.transaction_version(READ_AT)) is not None:  # else nothing has been processed
            record_dropped(lake, FOLLOWER, PUSH_OUTCOMES, position, datetime.fromtimestamp(read_at, UTC))
        number += _add_missing(lake, events, position, until, now)
    return number


def _add_missing(lake: str, events: DeltaTable, position: int, until: int, now: int) -> int:
    """Add the events that are missing of all pushes that are stored, day by day."""
    files, number = files_table(DeltaTable(PUSH_OUTCOMES.uri(lake), version=until)), 0
    days = sorted(set(files["day"].to_pylist()))
    # Each commit has a version of its own: less than the last one until the last day.
    for group in np.array_split(days, min(len(days), until - position)) if days else ():
        position = until if group[-1] == days[-1] else position + 1
        of_days = files.filter(pc.is_in(files["day"], pa.array(group)))
        rows = _events(lake, rows_in(PUSH_OUTCOMES.uri(lake), KEYS, of_days).to_table())
        number += _add(events, unstored_events(lake, rows), position, now)
    return number


def _steps(commits: Iterator[Commit]) -> Iterator[list[Commit]]:
    step: list[Commit] = []
    for commit in commits:
        step.append(commit)
        if sum(each.rows for each in step) >= STEP_ROWS:
            yield step
            step = []
    if step:
        yield step


def _add(events: DeltaTable, rows: pa.Table, version: int, now: int) -> int:
    """Commit events, and record that `push_outcomes` has been processed up to a version."""
    return rows.num_rows if append_once(CLIENT_EVENTS, events, rows, APP_ID, version, also={READ_AT: now}) else 0


def _events(lake: str, pushes: pa.Table) -> pa.Table:
    """The events of these pushes."""
    if pushes.num_rows == 0:
        return CLIENT_EVENTS.schema.empty_table()
    since = pc.field("landed_at") >= pc.min(pushes["landed_at"]).as_py() - LOOK_BACK
    views, tables = needed([VIEW])
    columns = ", ".join(f'"{name}"' for name in CLIENT_EVENTS.schema.names)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("new_pushes", pushes)
        for name in tables:
            uri = table_uri(lake, name)
            if not DeltaTable.is_deltatable(uri):
                connection.register(name, CATALOG[name].empty_table())
                continue
            rows = DeltaTable(uri).to_pyarrow_dataset()
            connection.register(name, rows.filter(since) if name in (PUSHES.name, PUSH_OUTCOMES.name) else rows)
        for view in views:
            connection.execute(f'CREATE TEMP VIEW "{view.name}" AS {view.duckdb}')
        sql = f"SELECT {columns} FROM {VIEW} SEMI JOIN new_pushes ON {same_push('new_pushes', VIEW)} ORDER BY ALL"
        return connection.sql(sql).to_arrow_table().cast(CLIENT_EVENTS.schema)
