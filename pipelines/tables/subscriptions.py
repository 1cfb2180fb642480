"""Tables of subscriptions: their history, and caches of the clients that match them."""

from __future__ import annotations

import pyarrow as pa

from kafka_telemetry_lake.pipelines.tables.table import Table, defined_history
from kafka_telemetry_lake.udfs.rows import column
from kafka_telemetry_lake.udfs.subscriptions.as_of import ANNOUNCED_SUBSCRIPTIONS
from kafka_telemetry_lake.udfs.subscriptions.history import CLIENT_MATCHES
from kafka_telemetry_lake.udfs.subscriptions.matching import ATTRIBUTES

SUBSCRIPTIONS = defined_history("subscriptions")

ATTRIBUTES_ID = column("client_attributes_id", pa.int64(), "stable hash of the rest")
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
