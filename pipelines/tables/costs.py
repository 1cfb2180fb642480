"""Tables for costs: the price list and the brokers' racks."""

from __future__ import annotations

import pyarrow as pa

from kafka_telemetry_lake.pipelines.tables.table import history_table
from kafka_telemetry_lake.udfs.rows import column

PRICES = history_table(
    "prices",
    "One version of an entry of a price list.",
    keys=(
        column("item", pa.string(), "bytes_in, bytes_out, storage, requests, cross_zone, or topic"),
        column(
            "subject", pa.string(), "cross_zone: the clients' zone, * for all; topic: a regular expression; else empty"
        ),
    ),
    values=(
        column("currency", pa.string(), "currency of the list"),
        column(
            "position", pa.int32(), "topic: index in the list, from 0: the first expression that fits a topic counts"
        ),
        column("price", pa.float64(), "per 10^9 bytes; storage: per 10^9 bytes and 720 hours; requests: per million"),
        column("retention_hours", pa.float64(), "topic: how long it keeps a record, h"),
        column("replication_factor", pa.int32(), "topic: number of its replicas"),
    ),
)

BROKERS = history_table(
    "brokers",
    "One version of a broker that is alive.",
    keys=(column("broker_id", pa.int32(), "its node.id"),),
    values=(column("rack", pa.string(), "its broker.rack, often a cloud's zone; NULL: it has none"),),
)
