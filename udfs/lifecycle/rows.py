"""Rows of table `client_changes`, from which view `clients` takes the newest of each client instance."""

from __future__ import annotations

import pyarrow as pa

from kafka_telemetry_lake.udfs.rows import PUSH_KEY, TEXT_LIST, TEXT_MAP, TIMESTAMP, column

ACTIVE, TERMINATED, SILENT, UNSUBSCRIBED = range(4)
STATES = pa.array(["active", "terminated", "silent", "unsubscribed"])

# Texts that describe a client; of each, the newest push that has one counts.
TEXTS = ("client_id", "client_software_name", "client_software_version", "principal", "client_address")

CLIENT_CHANGES = pa.schema(
    [
        *PUSH_KEY,  # of the client's last push
        column("client_instance_id", pa.string(), "KIP-714 client instance id"),
        column("client_id", pa.string(), "client.id of the requests"),
        column("client_software_name", pa.string(), "ApiVersionsRequest.ClientSoftwareName"),
        column("client_software_version", pa.string(), "ApiVersionsRequest.ClientSoftwareVersion"),
        column("principal", pa.string(), "authenticated principal"),
        column("client_address", pa.string(), "source address; NULL: unknown"),
        column("client_port", pa.int32(), "source port of the last push; NULL: unknown"),
        column("labels", TEXT_MAP, "resource attributes of the last push that had any, normalised"),
        column("group_member_ids", TEXT_LIST, "member ids of a consumer, oldest first, the last ten"),
        column("push_interval_ms", pa.int32(), "push interval of the client's last push, ms; NULL: unknown"),
        column("first_seen", TIMESTAMP, "when its first push landed"),
        column("last_seen", TIMESTAMP, "when its last push landed"),
        column("state", pa.string(), "active, terminated, silent, unsubscribed"),
        column("terminated_at", TIMESTAMP, "when its last terminating push landed; NULL: none, or it has resumed"),
        column("silent_at", TIMESTAMP, "when it fell silent: last landing + threshold; NULL: it hasn't"),
        column("pushes", pa.int64(), "landed pushes, whatever their outcome"),
        column(
            "missed_pushes",
            pa.int64(),
            "least number of pushes missing between those that landed, fewer where ports are unknown; late ones are "
            "subtracted",
        ),
        column("coverage", pa.float64(), "0 to 1: share of the time from first to last push that pushes cover"),
        column("broker_id", pa.int32(), "broker that took the last push; NULL: unknown"),
        column("brokers", pa.list_(pa.int32()), "brokers that took pushes, ascending; NULL: unknown"),
        column("resumptions", pa.int32(), "how often it came back"),
        column("deadline", TIMESTAMP, "when it counts as silent, unless it pushes before; NULL: no longer awaited"),
        column("missed_ms", pa.int64(), "time that the missed pushes would have covered, ms"),
        column("gap_ms", pa.int64(), "between its last two pushes, ms"),
        column("connection", pa.int64(), "hash of the last push's client id, software, address, port and broker"),
        column("origin", pa.int64(), "hash of the last push's client id, software, principal and address"),
        column("connection_before", pa.int64(), "`connection` of the push before"),
        column(
            "duplicated",
            pa.bool_(),
            "two instances push under this id, by its pushes since it last resumed; NULL: none was seen, and its "
            "address, port or broker is unknown",
        ),
        column(
            "signals_at", TIMESTAMP, "landing of its last push with connection metrics (udfs.lifecycle.rebootstrap)"
        ),
        column("signals_port", pa.int32(), "source port of that push; -1: unknown"),
        column("usual_bootstrap", pa.int64(), "bootstrap requests, or nodes, of its last quiet push; -1: none yet"),
        column("answered_at", TIMESTAMP, "landing of its last push with a response of a broker"),
        column("unheard_pushes", pa.int64(), "pushes since that had no response of a broker"),
        column("refused_pushes", pa.int64(), "those of them with connections that ended or failed"),
        column(
            "connection_state",
            pa.int64(),
            "bits: 1 connections changed, 2 in a rebootstrap, 4 to be confirmed, 8 unanswered, 16 dead data path",
        ),
        column("step", pa.int64(), "the lifecycle step that wrote the row; the newest counts"),
    ]
)
