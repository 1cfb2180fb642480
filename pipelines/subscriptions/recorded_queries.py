"""Questions to a lake about the pushes of its client instances, and the points and payloads of these.

Their places: ``days`` and ``between`` (conditions on landed dates and times), ``cluster`` (its id as a literal),
``keys``, ``library``, ``epochs`` (rows of when each state of the subscriptions began, and its number).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import sqlglot

from kafka_telemetry_lake.pipelines.libraries.views import library_columns
from kafka_telemetry_lake.pipelines.query.lake_query import run_query

KEYS = 'source, topic, "partition", "offset", landed_at'
LIBRARY = sqlglot.transpile(
    library_columns("client_software_name", "client_software_version")["library"][0], read="spark", write="duckdb"
)[0]
# Each push of a client instance, with what its client is matched by, and as of which epoch of the subscriptions.
PUSHED = """
    WITH epochs(starts, epoch) AS (VALUES {epochs}), pushed AS (
        SELECT {keys}, o.client_instance_id, o.client_attributes_id, t.subscription_at, t.subscription_uncertain,
            p.client_id, p.client_software_name, p.client_software_version, p.client_address, p.client_port,
            p.push_interval_ms, p.payload_bytes, o.decompressed_bytes
        FROM push_outcomes AS o JOIN pushes AS p USING ({keys}) JOIN push_subscription_times AS t USING ({keys})
        WHERE o.landed_date {days} AND p.landed_date {days} AND t.landed_date {days} AND o.landed_at {between}
            AND o.cluster_id = {cluster} AND o.client_instance_id IS NOT NULL AND o.outcome <> 'duplicate'
    ), dated AS (
        SELECT * FROM pushed ASOF JOIN epochs ON pushed.subscription_at >= epochs.starts
    )"""
PUSHES_OF = """
    SELECT client_instance_id, client_attributes_id, epoch, subscription_uncertain AS uncertain,
        coalesce(push_interval_ms, 0) AS interval_ms, count(*) AS pushes,
        sum(coalesce(payload_bytes, 0))::DOUBLE AS payload, sum(coalesce(decompressed_bytes, 0))::DOUBLE AS size,
        max(landed_at) AS last, any_value(client_id) AS client_id,
        any_value(client_software_name) AS client_software_name,
        any_value(client_software_version) AS client_software_version, any_value(client_address) AS client_address,
        any_value(client_port) AS client_port, any_value({library}) AS library
    FROM dated GROUP BY ALL ORDER BY ALL"""
POINTS_OF = """
    SELECT d.client_instance_id, d.client_attributes_id, d.epoch, d.subscription_uncertain AS uncertain, m.metric,
        count(*)::DOUBLE AS points,
        sum(strlen(m.metric) + coalesce(strlen(array_to_string(map_keys(m.attributes), ''))
            + strlen(array_to_string(map_values(m.attributes), '')) + 8 * cardinality(m.attributes), 0)
        )::DOUBLE AS text
    FROM dated AS d JOIN metric_points AS m USING ({keys})
    WHERE m.landed_date {days}
    GROUP BY ALL"""
GAPS = """
    SELECT client_instance_id, median(gap_ms)::DOUBLE AS gap_ms FROM (
        SELECT client_instance_id,
            epoch_ms(landed_at) - lag(epoch_ms(landed_at)) OVER (PARTITION BY client_instance_id ORDER BY landed_at)
            AS gap_ms
        FROM dated
    ) WHERE gap_ms > 0 GROUP BY client_instance_id"""
# The push of each of these instances that has the most points.
SAMPLES = """
    SELECT o.client_instance_id, arg_max(p.payload, o.points) AS payload,
        arg_max(coalesce(p.compression_type, 'none'), o.points) AS codec
    FROM push_outcomes AS o JOIN pushes AS p USING ({keys})
    WHERE o.landed_date {days} AND p.landed_date {days} AND o.landed_at {between} AND o.points > 0
        AND p.payload IS NOT NULL AND o.cluster_id = {cluster} AND o.client_instance_id IN ({instances})
    GROUP BY o.client_instance_id"""
SLOTS = """
    SELECT DISTINCT floor((epoch(landed_at) - epoch(TIMESTAMPTZ '{start}')) / {slot})::BIGINT AS slot
    FROM push_outcomes WHERE landed_date {days} AND landed_at {between} AND cluster_id = {cluster}"""
NEWEST = "SELECT max(landed_at) AS landed_at FROM push_outcomes WHERE cluster_id = {cluster}"


def ask(lake: str, sql: str, parts: dict[str, Any]) -> pa.Table:
    """The answer to one of these questions."""
    return run_query(lake, sql.format(**parts)).read_all()
