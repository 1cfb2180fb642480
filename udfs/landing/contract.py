"""The landing record as a contract, version 1: its headers, with what each means and may be.

The job reads every header as text. What a header may not be reads as missing, unless it is one of the few by which the
job rejects a record (`rejects`): then the whole push goes to table `quarantine`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

VERSION = "1"
INSTANCE_ID = r"^[A-Za-z0-9_-]{22}$"  # Kafka's Uuid.toString: URL-safe base64 of 16 bytes, no padding
ZERO_UUID = "A" * 22
COMPRESSION_TYPES = ("none", "gzip", "snappy", "lz4", "zstd")  # as text, or Kafka's ids 0 to 4
CONTENT_TYPE = r"(?i)^(otlp|application/x-protobuf;\s*type=otlp\+metrics.*)$"
DROPPED = ("too_large",)
MAX_HEADER = 1024  # characters of a header that are stored; Kafka only limits the size of the record
LATEST_MS = 4_102_444_800_000  # year 2100: later times come from no real clock, and readers fail beyond year 9999
MAX_INTERVAL_MS = 86_400_000  # a day; brokers allow an hour
MAX_BYTES = 2**31 - 1  # of a value: Kafka's own limit
MAX_PORT = 65_535
INT32 = (-(2**31), 2**31 - 1)


@dataclass(frozen=True)
class Header:
    """A header: its value's kind and range (None: any text), what it means, and what is lost without it."""

    name: str
    kind: Literal["text", "integer", "boolean"]
    meaning: str
    without: str
    least: int = INT32[0]
    most: int = INT32[1]
    allowed: tuple[str, ...] = ()
    pattern: str | None = None
    rejects: bool = False


HEADERS = {
    header.name: header
    for header in (
        Header("record_version", "text", "version of this contract", "read as 1", allowed=(VERSION,), rejects=True),
        Header(
            "client_instance_id", "text", "id that the broker gave the client, 22 characters as Kafka prints it",
            "the key is taken", pattern=INSTANCE_ID, rejects=True,
        ),
        Header("client_id", "text", "client.id of the request", "rows and views by client id lack it"),
        Header("terminating", "boolean", "whether it is the client's last push", "read as false: its end is seen late"),
        Header("content_type", "text", "form of the value", "read as OTLP", pattern=CONTENT_TYPE, rejects=True),
        Header(
            "compression_type", "text", "codec of the value, or Kafka's id of it: 0 to 4", "read as none",
            allowed=(*COMPRESSION_TYPES, *map(str, range(len(COMPRESSION_TYPES)))), rejects=True,
        ),
        Header(
            "push_interval_ms", "integer", "push interval in force, ms",
            "missed pushes and silence are judged by the client's own rhythm", least=1, most=MAX_INTERVAL_MS,
        ),
        Header("subscription_id", "integer", "SubscriptionId of the request", "pushes are matched as of their time"),
        Header("principal", "text", "authenticated principal, such as User:orders", "no attribution by principal"),
        Header("listener", "text", "name of the listener", "unknown"),
        Header("security_protocol", "text", "such as SASL_SSL", "unknown"),
        Header(
            "client_address", "text", "IP address of the client",
            "whether subscriptions by address match is unknown; no `likely_cause` `process_gone`, no connectors and "
            "tasks in `connect_workers`, no rule of applications by address; two senders under one id may not be seen",
        ),
        Header(
            "client_port", "integer", "port of the client",
            "whether subscriptions by port match is unknown; fewer missed pushes are sure; two senders under one id, "
            "and rebootstraps of librdkafka between two pushes, may not be seen", 0, MAX_PORT,
        ),
        Header("client_software_name", "text", "such as apache-kafka-java", "rules by library don't apply"),
        Header("client_software_version", "text", "such as 4.3.1", "rules by version and known bugs don't apply"),
        Header(
            "broker_id", "integer", "broker that got the push",
            "no view by broker; a change of broker is not seen; two senders under one id may not be seen",
        ),
        Header("cluster_id", "text", "cluster of the broker", "that of ingest's --cluster-id, or none"),
        Header(
            "received_at_ms", "integer", "when the receiver got the push, ms since 1970",
            "the delay between receiver and topic is unknown", 0, LATEST_MS - 1,
        ),
        Header("correlation_id", "integer", "correlation id of the request", "unknown"),
        Header("dropped", "text", "why the value did not land; it is empty then", "the value landed", allowed=DROPPED),
        Header("payload_bytes", "integer", "bytes that the receiver was handed", "the value's length", 0, MAX_BYTES),
    )
}  # fmt: skip
