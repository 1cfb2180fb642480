"""Events early_push and subscription_changed, into `client_events`: what a view says of the pushes that are new."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from pipelines.catalog import CATALOG
from pipelines.client_matches import keep_matches
from pipelines.lifecycle_log import Commit, FollowedTable
from pipelines.once import IDENTITY
from pipelines.state_manifest import StateError
from pipelines.subscriptions import SUBSCRIPTIONS
from pipelines.tables import CLIENT_EVENTS, LANDED_DATE, PUSH_OUTCOMES, PUSHES
from pipelines.views import needed
from udfs.rows import PUSHES_IN

log = logging.getLogger(__name__)

APP_ID = "kafka-telemetry-lake:subscription-events"
VIEW = "subscription_events"
KEYS = pa.schema([PUSHES_IN.field(name) for name in IDENTITY])
STEP_ROWS = 200_000  # pushes that one commit of events is about, whole commits
# A push is early within five minutes of another at most: what is older is looked at for the connection only.
LOOK_BACK = timedelta(minutes=10)


def keep_events(lake: str) -> int:
    """Add the events of pushes that are new since the last call, each once; gives their number.

    An event says what was known then; view `subscription_events` tells it anew. A lake without table `subscriptions`
    has none.

    Raises:
        deltalake.exceptions.DeltaError: another process was faster, or the storage fails.
    """
    if not all(DeltaTable.is_deltatable(table.uri(lake)) for table in (SUBSCRIPTIONS, PUSH_OUTCOMES, CLIENT_EVENTS)):
        return 0
    events = DeltaTable(CLIENT_EVENTS.uri(lake))
    followed, until = FollowedTable(PUSH_OUTCOMES.uri(lake)), DeltaTable(PUSH_OUTCOMES.uri(lake)).version()
    keep_matches(lake)  # of all clients up to there: the view is asked about them once
    seen = events.transaction_version(APP_ID)
    number = 0
    try:
        for step in _steps(followed.commits(-1 if seen is None else seen, until)):
            pushes = followed.read([file for commit in step for file in commit.files], KEYS)
            number += _add(lake, events, pushes, step[-1].version)
    except StateError:
        log.warning("events of pushes are left out whose commits are no longer in the log; view %s has them", VIEW)
        _add(lake, events, KEYS.empty_table(), until)
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


def _add(lake: str, events: DeltaTable, pushes: pa.Table, version: int) -> int:
    """One commit, of the events of these pushes, which says that `push_outcomes` is done up to a version."""
    found = _events(lake, pushes) if pushes.num_rows else CLIENT_EVENTS.schema.empty_table()
    rows = found.append_column(LANDED_DATE, pc.cast(found["landed_at"], LANDED_DATE.type)).cast(CLIENT_EVENTS.stored)
    done = CommitProperties(app_transactions=[Transaction(APP_ID, version)])
    write_deltalake(events, rows, mode="append", commit_properties=done)
    number: int = rows.num_rows
    return number


def _events(lake: str, pushes: pa.Table) -> pa.Table:
    since = pc.field("landed_at") >= pc.min(pushes["landed_at"]).as_py() - LOOK_BACK
    views, below = needed([VIEW])
    same = " AND ".join(f'n."{name}" IS NOT DISTINCT FROM e."{name}"' for name in IDENTITY)
    columns = ", ".join(f'e."{name}"' for name in CLIENT_EVENTS.schema.names)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("new_pushes", pushes)
        for name in below:
            uri = f"{lake.rstrip('/')}/{name}"
            if not DeltaTable.is_deltatable(uri):
                connection.register(name, CATALOG[name].empty_table())
                continue
            rows = DeltaTable(uri).to_pyarrow_dataset()
            connection.register(name, rows.filter(since) if name in (PUSHES.name, PUSH_OUTCOMES.name) else rows)
        for view in views:
            connection.execute(f'CREATE TEMP VIEW "{view.name}" AS {view.duckdb}')
        sql = f'SELECT {columns} FROM "{VIEW}" AS e SEMI JOIN new_pushes AS n ON {same} ORDER BY ALL'
        return connection.sql(sql).to_arrow_table().cast(CLIENT_EVENTS.schema)
