"""What `check-landing` says about a record: each mistake that another receiver can make, one by one."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
import zstandard

from kafka_telemetry_lake.pipelines.landing.check import Checked, check
from kafka_telemetry_lake.pipelines.landing.records import Placed
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.udfs.landing.contract import HEADERS, VERSION
from kafka_telemetry_lake.udfs.landing.problems import LandingRecord
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS, Limits
from tests.support.landing_records import GOOD_ID, LANDED_AT, captured, captured_index

NOW_MS = round(LANDED_AT.timestamp() * 1000)
INDEX = captured_index()
OTLP = next(
    row["value"]
    for row in captured().to_pylist()
    if {each["key"]: each["value"] for each in row["headers"]}["compression_type"] == b"none" and row["value"]
)
HEX = "8c779c1e-a2cf-423d-ab9d-a3fb411ceb9a"


def made(
    value: bytes | None = OTLP, key: str | None = GOOD_ID, time: int | None = NOW_MS,
    also: tuple[tuple[str, bytes | None], ...] = (), **headers: str | None,
) -> LandingRecord:  # fmt: skip
    """A sound record, with other headers; None leaves one out."""
    usual: dict[str, str | None] = {
        "record_version": VERSION, "client_instance_id": GOOD_ID, "client_id": "orders", "terminating": "false",
        "content_type": "OTLP", "compression_type": "none", "push_interval_ms": "60000", "broker_id": "1",
        "received_at_ms": str(NOW_MS - 5), "payload_bytes": str(len(value or b"")),
    }  # fmt: skip
    texts = [(name, text.encode()) for name, text in (usual | headers).items() if text is not None]
    return LandingRecord(None if key is None else key.encode(), value, [*texts, *also], time)


def found(record: LandingRecord, limits: Limits = DEFAULT_LIMITS) -> list[tuple[str, str, str]]:
    return [
        (problem.severity, problem.field, problem.message)
        for _, problem in check([Placed("here", "client-telemetry", record)], frozenset(), Checked(), limits)
    ]


ZSTD = zstandard.compress(OTLP)
SOUND: list[dict[str, Any]] = [
    {},
    {"value": ZSTD, "compression_type": "zstd"},
    {"value": ZSTD, "compression_type": "4", "payload_bytes": str(len(OTLP))},
    {"value": gzip.compress(OTLP), "compression_type": " GZIP "},
    {"compression_type": None, "content_type": None, "push_interval_ms": None, "payload_bytes": None},
    {"content_type": "application/x-protobuf; type=otlp+metrics0.19"},
    {"terminating": "TRUE"},
    {"value": None, "dropped": "too_large"},
    {"value": b"", "dropped": "too_large", "payload_bytes": "6000000"},
    {"subscription_id": "-7", "client_port": "0", "correlation_id": "0"},
    {"also": (("trace-id", b"\xff"), ("x-my-own-header", None))},
]


@pytest.mark.parametrize("changes", SOUND, ids=range(len(SOUND)))
def test_a_sound_record_has_no_problem(changes: dict[str, Any]) -> None:
    assert found(made(**changes)) == []


MISTAKES: list[tuple[dict[str, Any], str, str, str]] = [
    # who
    ({"key": None, "client_instance_id": None}, "error", "client_instance_id", "neither the header nor the key names"),
    ({"key": None}, "warning", "key", "pushes of a client spread over partitions"),
    (
        {"key": "AAAAAAAAAAAAAAAAAAAAAQ"},
        "error",
        "client_instance_id",
        f"header '{GOOD_ID}', key 'AAAAAAAAAAAAAAAAAAAAAQ'",
    ),
    ({"key": "A" * 22, "client_instance_id": "A" * 22}, "error", "client_instance_id", "the zero UUID names no client"),
    ({"key": HEX, "client_instance_id": HEX}, "error", "client_instance_id", f"Kafka's text of this UUID is {GOOD_ID}"),
    ({"key": "x", "client_instance_id": "x"}, "error", "client_instance_id", "got 'x'"),
    (
        {"key": GOOD_ID[:-1] + "h", "client_instance_id": GOOD_ID[:-1] + "h"},
        "warning",
        "client_instance_id",
        f"Kafka: {GOOD_ID}",
    ),
    ({"client_id": ""}, "warning", "client_id", "leave the header out"),
    ({"client_id": "x" * 1025}, "warning", "client_id", "1,025 characters, stored: 1,024"),
    ({"also": (("client_id", b"\xff\xfe"),), "client_id": None}, "warning", "client_id", "not text in UTF-8: fffe"),
    ({"also": (("client_id", None),), "client_id": None}, "warning", "client_id", "null: leave the header out"),
    ({"also": (("broker_id", b"2"),)}, "warning", "broker_id", "repeated: the last one counts"),
    # names
    ({"client_id": None, "also": (("clientId", b"a"),)}, "warning", "clientId", "is it client_id?"),
    ({"client_id": None, "also": (("client-id", b"a"),)}, "warning", "client-id", "is it client_id?"),
    (
        {"compression_type": None, "also": (("compression", b"zstd"),)},
        "warning",
        "compression",
        "is it compression_type?",
    ),
    ({"record_version": None}, "warning", "record_version", "a later version can't be told apart"),
    # what
    ({"record_version": "2"}, "error", "record_version", "got '2', allowed: 1"),
    ({"content_type": "application/json"}, "error", "content_type", "got 'application/json': the push is rejected"),
    (
        {"compression_type": "zstandard"},
        "error",
        "compression_type",
        "got 'zstandard', allowed: none, gzip, snappy, lz4, zstd or 0",
    ),
    ({"compression_type": "5"}, "error", "compression_type", "got '5'"),
    ({"terminating": "1"}, "error", "terminating", "got '1', read as false"),
    ({"dropped": "because", "value": b""}, "warning", "dropped", "got 'because', allowed: too_large"),
    ({"dropped": "too_large"}, "warning", "dropped", "isn't read: leave it out"),
    # numbers and times
    ({"push_interval_ms": "60"}, "warning", "push_interval_ms", "got 60: brokers allow 100 ms at least"),
    ({"push_interval_ms": "0"}, "error", "push_interval_ms", "got 0, read as missing; allowed: 1 to 86400000"),
    ({"push_interval_ms": "6e4"}, "error", "push_interval_ms", "got '6e4', read as missing"),
    ({"client_port": "70000"}, "error", "client_port", "allowed: 0 to 65535"),
    ({"broker_id": "broker-1"}, "error", "broker_id", "got 'broker-1', read as missing"),
    ({"broker_id": "2147483648"}, "error", "broker_id", "got 2147483648, read as missing"),
    ({"received_at_ms": str(NOW_MS // 1000)}, "error", "received_at_ms", "milliseconds since 1970 are needed"),
    ({"received_at_ms": str(NOW_MS * 1000)}, "error", "received_at_ms", "milliseconds since 1970 are needed"),
    ({"received_at_ms": "2026-11-21T12:00:00Z"}, "error", "received_at_ms", "read as missing"),
    (
        {"received_at_ms": str(NOW_MS - 3 * 86_400_000)},
        "warning",
        "received_at_ms",
        "3.0 days apart: check both clocks",
    ),
    ({"time": None}, "error", "timestamp", "the record has no time"),
    ({"time": -1}, "error", "timestamp", "the record has no time"),
    ({"time": NOW_MS // 1000}, "error", "timestamp", "Kafka's record time is in milliseconds since 1970"),
    ({"time": NOW_MS * 1000}, "error", "timestamp", "later than the year 2100"),
    ({"payload_bytes": "7"}, "warning", "payload_bytes", "got 7; the value has"),
    # the value
    ({"value": None}, "error", "value", "a tombstone is not a push"),
    ({"value": b""}, "note", "value", "a push without metrics"),
    ({"value": OTLP, "compression_type": "zstd"}, "error", "value", "not decompressible as zstd"),
    ({"value": ZSTD[:-3], "compression_type": "zstd"}, "error", "value", "not decompressible as zstd"),
    ({"value": ZSTD}, "error", "value", "; it begins like zstd"),
    ({"value": gzip.compress(OTLP), "compression_type": "lz4"}, "error", "value", "; it begins like gzip"),
    ({"value": b'{"resourceMetrics":[]}'}, "error", "value", "; it looks like JSON: OTLP's protobuf form is needed"),
    ({"value": b"\x00\x00\x00\x00\x07" + OTLP}, "error", "value", "as a schema registry's serializer writes"),
    ({"value": b"CpYBCgA" * 9}, "error", "value", "; it looks like base64"),
    ({"value": b"\x0a\x00"}, "note", "value", "OTLP without data points"),
]


@pytest.mark.parametrize(("changes", "severity", "field", "said"), MISTAKES, ids=[str(n) for n in range(len(MISTAKES))])
def test_a_mistake_is_the_only_problem_that_is_named(
    changes: dict[str, Any], severity: str, field: str, said: str
) -> None:
    (problem, *others) = found(made(**changes))
    assert problem[:2] == (severity, field)
    assert said in problem[2]
    # A header that isn't there, a value that can't be read: their other effects aren't problems of their own.
    assert {each[1] for each in others} <= {"value", "payload_bytes"}, others


def test_a_value_above_the_bound_is_too_large() -> None:
    said = found(made(zstandard.compress(b"a" * 100_000), compression_type="zstd"), Limits(max_decompressed_bytes=9999))
    assert said == [("error", "value", "more than 9999 bytes decompressed")]


def test_untrusted_text_is_quoted_in_part() -> None:
    ((_, _, message),) = found(made(compression_type="\x1b[2J" + "z" * 500))
    assert len(message) < 150
    assert "\x1b" not in message


def test_every_captured_push_is_sound() -> None:
    checked = Checked()
    placed = (
        Placed("", None, LandingRecord(row["key"], row["value"], headers, round(row["timestamp"].timestamp() * 1000)))
        for row in captured().to_pylist()
        for headers in [[(each["key"], each["value"]) for each in row["headers"]]]
    )
    said = [problem for _, problem in check(placed, frozenset(), checked)]
    assert (checked.records, checked.with_errors) == (1415, 0)
    assert {(each.severity, each.field) for each in said} == {("warning", "record_version"), ("note", "value")}
    assert checked.points == sum(row["points"] for row in INDEX)


def test_the_job_reads_by_the_same_contract() -> None:
    read = set(PUSHES.stored.names)
    named = {"received_at_ms": "received_at"}
    assert {named.get(name, name) for name in HEADERS} <= read
