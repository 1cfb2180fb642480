"""Tables of subscriptions: their history, and caches of the clients that match them."""

from __future__ import annotations

import pyarrow as pa

from kafka_telemetry_lake.pipelines.tables.table import Table, history_table
from kafka_telemetry_lake.udfs.rows import TEXT_LIST, TEXT_MAP, column
from kafka_telemetry_lake.udfs.subscriptions.as_of import ANNOUNCED_SUBSCRIPTIONS
from kafka_telemetry_lake.udfs.subscriptions.history import CLIENT_MATCHES
from kafka_telemetry_lake.udfs.subscriptions.matching import ATTRIBUTES

SUBSCRIPTIONS = history_table(
    "subscriptions",
    "One version of a client metrics subscription, for as long as it was in force.",
    keys=(column("name", pa.string(), "name of the client-metrics resource"),),
    values=(
        column("metrics", TEXT_LIST, "requested prefixes of metric names, as configured; empty: none; `*`: all"),
        column("interval_ms", pa.int32(), "requested push interval, ms; more than five minutes has no effect"),
        column("match", TEXT_MAP, "Java regular expression per client attribute, all must match; empty: all clients"),
        column(
            "problem",
            pa.string(),
            "why its configuration can't be read here, such as a key of a newer release: which clients it matches is "
            "unknown; NULL: it was read",
        ),
    ),
)

ATTRIBUTES_ID = pa.field("client_attributes_id", pa.int64(), metadata={"comment": "stable hash of the rest"})
CLIENT_ATTRIBUTES = Table(
    "client_attributes",
    "Distinct attributes of clients that pushed, for matching with subscriptions.",
    pa.schema([ATTRIBUTES_ID, *ATTRIBUTES]),
    by_day=False,
)
MATCHES = Table(
    "client_matches",
    "Cache: which version of a subscription matches which client; pairs that don't match have no row.",
    CLIENT_MATCHES,
    by_day=False,
)
ANNOUNCED = Table(
    "announced_subscriptions",
    "Cache: the time as of which a push with a SubscriptionId is matched, by its landing time.",
    ANNOUNCED_SUBSCRIPTIONS,
    by_day=False,
)
CACHE_TABLES = (CLIENT_ATTRIBUTES, MATCHES, ANNOUNCED)
