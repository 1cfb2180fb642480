"""What clients themselves report about quotas (Q11): bytes to and from each broker, and delays.

A Java client counts bytes per node. Java and librdkafka producers and Java consumers report the longest delay that a
response asked for. The two libraries agree only on whether it is above 0: librdkafka skips responses without a delay.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.rows import METRIC_POINTS, PUSH_KEY, TIMESTAMP, column

PREFIX = "org.apache.kafka."
# Metric to quota type.
BYTES = {f"{PREFIX}producer.node.outgoing.byte.total": "produce", f"{PREFIX}consumer.node.incoming.byte.total": "fetch"}
DELAYS = {
    f"{PREFIX}producer.produce.throttle.time.max": "produce",
    f"{PREFIX}consumer.fetch.manager.fetch.throttle.time.max": "fetch",
    f"{PREFIX}consumer.share.fetch.manager.fetch.throttle.time.max": "fetch",
}
METRICS = (*BYTES, *DELAYS)

POINTS_IN = pa.schema(
    [
        *PUSH_KEY,
        *(
            METRIC_POINTS.field(name)
            for name in (
                "client_instance_id", "client_id", "metric", "attributes", "delta_start", "time", "value", "delta",
            )
        ),
    ]
)  # fmt: skip


REPORTS = pa.schema(
    [
        *PUSH_KEY,
        column("client_instance_id", pa.string(), "KIP-714 client instance id"),
        column("client_id", pa.string(), "client.id of the request"),
        column("user", pa.string(), "name of the principal; NULL: the push has none"),
        column("broker_id", pa.int32(), "broker that the bytes went to or came from; NULL for a delay"),
        column("quota_type", pa.string(), "produce, fetch"),
        column("delta_start", TIMESTAMP, "the bytes moved in (delta_start, time]"),
        column("time", TIMESTAMP, "when the client reported"),
        column("bytes", pa.float64(), "bytes moved; NULL for a delay"),
        column("throttle_ms", pa.float64(), "longest delay that a response asked for, above 0; NULL for bytes"),
    ]
)


def quota_reports(points: pa.Table, principals: pa.ChunkedArray) -> pa.Table:
    """The points (`POINTS_IN`) about quotas, as rows of `REPORTS`: byte increments and delays, each above 0.

    Bytes to bootstrap nodes or to a group's coordinator aren't produce or fetch bytes, and are left out.

    Args:
        principals: of each point's push, as Kafka prints them: ``User:alice``.
    """
    node, role = (pc.map_lookup(points["attributes"], name, "first") for name in ("node_id", "node_role"))
    is_broker = pc.and_(pc.equal(role, "broker"), pc.match_substring_regex(node, r"^[0-9]{1,9}$"))
    moves = pc.and_(pc.is_in(points["metric"], pa.array(BYTES)), pc.greater(points["delta"], 0))
    moves = pc.fill_null(pc.and_(moves, is_broker), False)
    delays = pc.and_(pc.is_in(points["metric"], pa.array(DELAYS)), pc.greater(points["value"], 0))
    delays = pc.fill_null(delays, False)
    types = BYTES | DELAYS
    rows = pa.table(
        {
            **{field.name: points[field.name] for field in PUSH_KEY},
            "client_instance_id": points["client_instance_id"],
            "client_id": points["client_id"],
            "user": pc.replace_substring_regex(principals, r"^[^:]*:", "", max_replacements=1),
            "broker_id": pc.cast(pc.if_else(moves, node, None), pa.int32()),
            "quota_type": pc.take(pa.array(types.values()), pc.index_in(points["metric"], pa.array(types))),
            "delta_start": pc.if_else(moves, points["delta_start"], None),
            "time": points["time"],
            "bytes": pc.if_else(moves, points["delta"], None),
            "throttle_ms": pc.if_else(delays, points["value"], None),
        }
    )
    return rows.filter(pc.or_(moves, delays)).select(REPORTS.names).cast(REPORTS)
