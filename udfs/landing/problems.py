"""What is wrong with a landing record. The job rejects or misreads an error; it reads a warning, but with a loss.

Pure functions over one record; a record's value is given decompressed and decoded, so that many are read at once.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from kafka_telemetry_lake.udfs.landing.contract import (
    COMPRESSION_TYPES,
    HEADERS,
    INSTANCE_ID,
    LATEST_MS,
    MAX_HEADER,
    ZERO_UUID,
    Header,
)
from kafka_telemetry_lake.udfs.nearest import nearest

Severity = Literal["error", "warning", "note"]
SECONDS = 100_000_000_000  # a time in ms below this is before March 1973: it is in seconds
DAY_MS = 86_400_000
SHOWN = 60  # characters of untrusted text in a message
MAGIC = {"gzip": b"\x1f\x8b", "snappy": b"\x82SNAPPY\0", "lz4": b"\x04\x22\x4d\x18", "zstd": b"\x28\xb5\x2f\xfd"}
LEAST_INTERVAL_MS = 100  # that brokers allow


@dataclass(frozen=True)
class LandingRecord:
    """A record as a topic has it. Headers may repeat; `timestamp_ms` is Kafka's record time, None: there is none."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int | None = None


@dataclass(frozen=True)
class Content:
    """What the job reads from a record's value: why it can't, or its decompressed size and number of points."""

    reason: str | None
    detail: str | None
    size: int
    points: int


@dataclass(frozen=True)
class Problem:
    """A problem of a record; `kind` is the same for all records that have it, `message` has the values."""

    severity: Severity
    field: str
    kind: str
    message: str


def texts_of(record: LandingRecord) -> dict[str, str]:
    """The value of each header; the last of repeated ones counts, bytes that aren't UTF-8 are replaced."""
    return {name: value.decode("utf-8", "replace") for name, value in record.headers if value is not None}


def problems(record: LandingRecord, content: Content) -> list[Problem]:
    """All problems of a record, those of its identity first."""
    texts = texts_of(record)
    return [
        *_of_identity(record, texts),
        *_of_names(record),
        *(problem for name, text in texts.items() if name in HEADERS for problem in _of_text(HEADERS[name], text)),
        *_of_times(record, texts),
        *_of_value(record, texts, content),
    ]


def _of_identity(record: LandingRecord, texts: dict[str, str]) -> Iterator[Problem]:
    key = None if record.key is None else record.key.decode("utf-8", "replace")
    header = texts.get("client_instance_id")
    instance = header if header is not None else key
    if instance is None:
        yield Problem(
            "error", "client_instance_id", "missing", "neither the header nor the key names the client instance"
        )
        return
    if key is None:
        yield Problem("warning", "key", "missing", "no key: pushes of a client spread over partitions, out of order")
    elif header is not None and key != header:
        yield Problem(
            "error", "client_instance_id", "differs from the key", f"header {_shown(header)}, key {_shown(key)}"
        )
    if instance == ZERO_UUID:
        yield Problem("error", "client_instance_id", "zero UUID", "the zero UUID names no client")
    elif not re.match(INSTANCE_ID, instance):
        yield Problem(
            "error", "client_instance_id", "not 22 base64 characters", f"got {_shown(instance)}{_as_base64(instance)}"
        )
    elif _canonical(instance) != instance:
        yield Problem(
            "warning", "client_instance_id", "not as Kafka prints it", f"got {instance}, Kafka: {_canonical(instance)}"
        )


def _of_names(record: LandingRecord) -> Iterator[Problem]:
    seen: set[str] = set()
    for name, value in record.headers:
        if name in seen and name in HEADERS:
            yield Problem("warning", name, "repeated", "the header is repeated: the last one counts")
        seen.add(name)
        if name in HEADERS:
            if value is None:
                yield Problem("warning", name, "null", "the header's value is null: leave the header out")
            elif not _is_utf8(value):
                yield Problem("warning", name, "not UTF-8", f"not text in UTF-8: {value[:20].hex()}")
            continue
        plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().replace("-", "_").replace(".", "_")
        meant = [plain] if plain in HEADERS else nearest(plain, HEADERS, 1) if len(plain) > 5 else []
        if meant and meant[0] not in {other for other, _ in record.headers}:
            yield Problem(
                "warning", name[:SHOWN], f"unknown, like {meant[0]}", f"unknown header, ignored; is it {meant[0]}?"
            )
    if "record_version" not in seen:
        yield Problem("warning", "record_version", "missing", "no record_version: a later version can't be told apart")


def _of_text(header: Header, text: str) -> Iterator[Problem]:
    severity: Severity = "error" if header.rejects else "warning"
    effect = "the push is rejected" if header.rejects else "read as missing"
    if header.kind == "integer":
        yield from _of_number(header, text)
    elif header.kind == "boolean" and text.lower() not in ("true", "false"):
        yield Problem("error", header.name, "not true or false", f"got {_shown(text)}, read as false")
    elif header.name == "compression_type" and text.strip().lower() not in header.allowed:
        yield Problem(
            severity, header.name, "unknown", f"got {_shown(text)}, allowed: {', '.join(COMPRESSION_TYPES)} or 0 to 4"
        )
    elif header.allowed and header.name != "compression_type" and text not in header.allowed:
        yield Problem(severity, header.name, "unknown", f"got {_shown(text)}, allowed: {', '.join(header.allowed)}")
    elif header.pattern and header.name != "client_instance_id" and not re.match(header.pattern, text):
        yield Problem(severity, header.name, "not known", f"got {_shown(text)}: {effect}")
    if len(text) > MAX_HEADER:
        yield Problem("warning", header.name, "too long", f"{len(text):,} characters, stored: {MAX_HEADER:,}")
    elif header.kind == "text" and text == "":
        yield Problem("warning", header.name, "empty", "empty: leave the header out if its value is unknown")


def _of_number(header: Header, text: str) -> Iterator[Problem]:
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,30}\s*", text):
        yield Problem("error", header.name, "not a whole number", f"got {_shown(text)}, read as missing")
        return
    number = int(text)
    if header.name == "received_at_ms" and 0 <= number < SECONDS:
        yield Problem("error", header.name, "in seconds", f"got {number}: milliseconds since 1970 are needed")
    elif header.name == "received_at_ms" and number >= LATEST_MS:
        yield Problem("error", header.name, "not in milliseconds", f"got {number}: milliseconds since 1970 are needed")
    elif not header.least <= number <= header.most:
        allowed = f"{header.least} to {header.most}"
        yield Problem("error", header.name, "out of range", f"got {number}, read as missing; allowed: {allowed}")
    elif header.name == "push_interval_ms" and number < LEAST_INTERVAL_MS:
        yield Problem(
            "warning", header.name, "in seconds", f"got {number}: brokers allow 100 ms at least, is it in seconds?"
        )


def _of_times(record: LandingRecord, texts: dict[str, str]) -> Iterator[Problem]:
    """The record's own time orders pushes, and decides about silence: a wrong one is worse than a missing header."""
    time = record.timestamp_ms
    if time is None or time < 0:
        yield Problem("error", "timestamp", "missing", "the record has no time: received_at_ms is taken, else 1970")
    elif time < SECONDS:
        yield Problem(
            "error", "timestamp", "in seconds", f"got {time}: Kafka's record time is in milliseconds since 1970"
        )
    elif time >= LATEST_MS:
        yield Problem("error", "timestamp", "not in milliseconds", f"got {time}: later than the year 2100")
    else:
        received = texts.get("received_at_ms", "")
        if received.isdecimal() and SECONDS <= int(received[:20]) < LATEST_MS and abs(int(received) - time) > DAY_MS:
            days = abs(int(received) - time) / DAY_MS
            yield Problem(
                "warning", "received_at_ms", "far from the record's time", f"{days:.1f} days apart: check both clocks"
            )


def _of_value(record: LandingRecord, texts: dict[str, str], content: Content) -> Iterator[Problem]:
    value, codec = record.value, texts.get("compression_type", "none").strip().lower()
    codec = COMPRESSION_TYPES[int(codec)] if codec in map(str, range(len(COMPRESSION_TYPES))) else codec
    if "dropped" in texts:
        if value:
            yield Problem(
                "warning", "dropped", "with a value", f"the value of {len(value):,} bytes isn't read: leave it out"
            )
        return
    if value is None:
        yield Problem(
            "error", "value", "null", "null: a tombstone is not a push; an empty value is a push without metrics"
        )
        return
    if not value:
        yield Problem("note", "value", "empty", "empty: a push without metrics. Apache Kafka calls no plugin for these")
        return
    if content.reason is not None:
        kind = {"UNSUPPORTED_COMPRESSION_TYPE": "unreadable codec", "TELEMETRY_TOO_LARGE": "too large"}.get(
            content.reason, "unreadable"
        )
        if kind != "unreadable codec":  # the header's own problem says it
            yield Problem("error", "value", kind, f"{content.detail or content.reason}{_what_it_is(value, codec)}")
        return
    if content.points == 0:
        yield Problem("note", "value", "no points", "OTLP without data points: nothing matched the subscription")
    stated = texts.get("payload_bytes", "")
    if stated.isdecimal() and int(stated[:20]) not in (len(value), content.size):
        sizes = f"the value has {len(value):,} bytes, decompressed {content.size:,}"
        yield Problem("warning", "payload_bytes", "not the value's size", f"got {stated[:20]}; {sizes}")


def _what_it_is(value: bytes, codec: str) -> str:
    """What a value that can't be read looks like."""
    for name, magic in MAGIC.items():
        if name != codec and value.startswith(magic):
            return f"; it begins like {name}"
    if value[:1] in (b"{", b"["):
        return "; it looks like JSON: OTLP's protobuf form is needed"
    if value[:1] == b"\0" and len(value) > 5:
        return "; it begins with a zero byte, as a schema registry's serializer writes"
    if re.fullmatch(rb"[A-Za-z0-9+/=\s]+", value[:1000]) and len(value) > 20:
        return "; it looks like base64: the bytes themselves are needed"
    return ""


def _as_base64(instance: str) -> str:
    """Kafka's text of a UUID that is written in another form."""
    try:
        plain = uuid.UUID(instance)
    except ValueError:
        return ""
    return f"; Kafka's text of this UUID is {base64.urlsafe_b64encode(plain.bytes).decode().rstrip('=')}"


def _canonical(instance: str) -> str:
    """The text that Kafka prints for the same 16 bytes: other texts differ in unused bits."""
    return base64.urlsafe_b64encode(base64.urlsafe_b64decode(f"{instance}==")).decode().rstrip("=")


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")
