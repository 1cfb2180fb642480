"""Rows of table `client_changes`, from which view `clients` takes the newest of each client instance."""

from __future__ import annotations

import pyarrow as pa

from udfs.rows import PUSH_KEY, TEXT_LIST, TEXT_MAP, TIMESTAMP


def _field(name: str, kind: pa.DataType, meaning: str) -> pa.Field:
    return pa.field(name, kind, metadata={"comment": meaning})


ACTIVE, TERMINATED, SILENT, UNSUBSCRIBED = range(4)
STATES = pa.array(["active", "terminated", "silent", "unsubscribed"])

# What a client is known by; the newest push that says it counts.
TEXTS = (
    "client_id",
    "client_software_name",
    "client_software_version",
    "principal",
    "client_address",
)

CLIENT_CHANGES = pa.schema(
    [
        *PUSH_KEY,  # of the client's last push
        _field("client_instance_id", pa.string(), "KIP-714 client instance id"),
        _field("client_id", pa.string(), "client.id of the requests"),
        _field("client_software_name", pa.string(), "ApiVersionsRequest.ClientSoftwareName"),
        _field("client_software_version", pa.string(), "ApiVersionsRequest.ClientSoftwareVersion"),
        _field("principal", pa.string(), "authenticated principal"),
        _field("client_address", pa.string(), "source address"),
        _field("client_port", pa.int32(), "source port of the last push"),
        _field("labels", TEXT_MAP, "resource attributes of the last push that had any, normalised"),
        _field("group_member_ids", TEXT_LIST, "member ids of a consumer, oldest first, the last ten"),
        _field("push_interval_ms", pa.int32(), "push interval of the client's last push, ms; NULL: not told"),
        _field("first_seen", TIMESTAMP, "when its first push landed"),
        _field("last_seen", TIMESTAMP, "when its last push landed"),
        _field("state", pa.string(), "active, terminated, silent, unsubscribed"),
        _field("terminated_at", TIMESTAMP, "when its last terminating push landed; NULL: none, or it has resumed"),
        _field("silent_at", TIMESTAMP, "when it fell silent: last landing + threshold; NULL: it hasn't"),
        _field("pushes", pa.int64(), "landed pushes, whatever became of them"),
        _field(
            "missed_pushes",
            pa.int64(),
            "pushes that should have landed between those that did, at least; late ones taken off",
        ),
        _field("coverage", pa.float64(), "0 to 1: share of the time from first to last push that pushes cover"),
        _field("broker_id", pa.int32(), "broker that took the last push"),
        _field("brokers", pa.list_(pa.int32()), "brokers that took pushes, ascending"),
        _field("resumptions", pa.int32(), "how often it came back"),
        _field("deadline", TIMESTAMP, "when it counts as silent, unless it pushes before; NULL: no longer awaited"),
        _field("missed_ms", pa.int64(), "time that the missed pushes would have covered, ms"),
        _field("gap_ms", pa.int64(), "between its last two pushes, ms"),
        _field("connection", pa.int64(), "hash of the last push's client id, software, address, port and broker"),
        _field("origin", pa.int64(), "hash of the last push's client id, software, principal and address"),
        _field("connection_before", pa.int64(), "the same of the push before"),
        _field("duplicated", pa.bool_(), "two instances push under this id, as far as seen since it resumed"),
        _field("step", pa.int64(), "the lifecycle step that wrote the row; the newest counts"),
    ]
)
