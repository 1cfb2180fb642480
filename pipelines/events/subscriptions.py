"""Adds events early_push and subscription_changed to `client_events`: rows of a view that concern new pushes."""

from __future__ import annotations

from datetime import timedelta

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.follower import Follower, Gap
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.stored_pushes import IDENTITY, same_push
from kafka_telemetry_lake.pipelines.lake.transactions import append
from kafka_telemetry_lake.pipelines.lifecycle.stored_rows import unstored_events
from kafka_telemetry_lake.pipelines.query.views import create_views, needed
from kafka_telemetry_lake.pipelines.subscriptions.client_matches import update_client_matches
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS, PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS
from kafka_telemetry_lake.pipelines.tables.table import table_uri
from kafka_telemetry_lake.udfs.rows import PUSHES_IN

APP_ID = "kafka-telemetry-lake:subscription-events"
FOLLOWER = "subscription_events"
VIEW = "subscription_events"
KEYS = pa.schema([PUSHES_IN.field(name) for name in IDENTITY])
STEP_ROWS = 200_000  # a step processes whole commits until they have this many pushes
# An early push is at most five minutes after another push. Older pushes matter only for the client's connection.
LOOK_BACK = timedelta(minutes=10)


def add_subscription_events(uri: str) -> int:
    """Add the events of pushes that are new since the last call, each once; returns the number of events.

    An event reflects what was known when it was added; view `subscription_events` reflects what is known now. A lake
    without table `subscriptions` has no such events.

    Args:
        uri: path or URI of the lake.

    Raises:
        deltalake.exceptions.DeltaError: another process did the same at the same time, or the storage fails.
    """
    lake = Lake(uri)
    if not all(map(lake.has, (SUBSCRIPTIONS, PUSH_OUTCOMES, CLIENT_EVENTS))):
        return 0
    events, until = lake.table(CLIENT_EVENTS), lake.table(PUSH_OUTCOMES).version()
    update_client_matches(uri)  # the view needs the matches of all clients up to `until`
    follower, number = Follower(uri, PUSH_OUTCOMES, Gap.GO_ON, FOLLOWER, KEYS, most_rows=STEP_ROWS), 0
    for step in follower.steps(follower.committed(events, APP_ID), until):
        rows = _events(uri, step.rows)
        if step.first is None:  # some pushes were read before
            rows = unstored_events(lake, rows)
        append(CLIENT_EVENTS, events, rows, step.position.transactions(APP_ID))
        number += rows.num_rows
    return number


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
        create_views(connection, [VIEW], views)
        sql = f"SELECT {columns} FROM {VIEW} SEMI JOIN new_pushes ON {same_push('new_pushes', VIEW)} ORDER BY ALL"
        return connection.sql(sql).to_arrow_table().cast(CLIENT_EVENTS.schema)
