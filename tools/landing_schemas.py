"""Writes the landing record's published schemas: ``python -m tools.landing_schemas``.

``landing-record.schema.json`` (JSON Schema 2020-12) is about a record as a line of JSON, with its value in base64;
``landing-record.avsc`` (Avro) about the same record in a file of Avro. In a topic, headers are Kafka's headers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kafka_telemetry_lake.udfs.landing.contract import HEADERS, INSTANCE_ID, VERSION, Header

FOLDER = Path(__file__).resolve().parents[1] / "pipelines" / "landing"
JSON_SCHEMA, AVRO_SCHEMA = FOLDER / "landing-record.schema.json", FOLDER / "landing-record.avsc"
KEY = "client instance id, as in the header: pushes of a client are in one partition, in order"
VALUE = "the metrics: an OTLP MetricsData message, compressed as compression_type says; empty: no metrics"
TIMESTAMP = "Kafka's record time, ms since 1970: when the push landed"


def json_schema() -> dict[str, Any]:
    """The schema of a record as a line of JSON."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:kafka-telemetry-lake:landing-record:{VERSION}",
        "title": "Landing record: one telemetry push of a Kafka client (KIP-714)",
        "type": "object",
        "properties": {
            "key": {"description": KEY, "type": ["string", "null"], "pattern": INSTANCE_ID},
            "value": {"description": f"{VALUE}; base64", "type": ["string", "null"], "contentEncoding": "base64"},
            "headers": {
                "description": "Unknown headers are ignored.",
                "type": "object",
                "properties": {header.name: _json_type(header) for header in HEADERS.values()},
                "additionalProperties": {"type": "string"},
            },
            "topic": {"type": "string"},
            "partition": {"type": "integer", "minimum": 0},
            "offset": {"type": "integer", "minimum": 0},
            "timestamp": {"description": TIMESTAMP, "type": "integer", "minimum": 0},
        },
        "required": ["value", "headers", "timestamp"],
        "anyOf": [
            {"required": ["key"], "properties": {"key": {"type": "string"}}},
            {"properties": {"headers": {"required": ["client_instance_id"]}}},
        ],
        "if": {"properties": {"value": {"type": "null"}}},
        "then": {"properties": {"headers": {"required": ["dropped"]}}},
    }


def _json_type(header: Header) -> dict[str, Any]:
    described: dict[str, Any] = {"description": f"{header.meaning}. Without it: {header.without}.", "type": "string"}
    if header.kind == "integer":
        described["pattern"] = "^[+-]?[0-9]+$"
    elif header.kind == "boolean":
        described["enum"] = ["true", "false"]
    elif header.allowed:
        described["enum"] = list(header.allowed)
    elif header.pattern:
        described["pattern"] = header.pattern.replace("(?i)^(otlp|", "^([Oo][Tt][Ll][Pp]|")
    return described


def avro_schema() -> dict[str, Any]:
    """The schema of a record in an Avro file."""
    headers = "; ".join(f"{header.name}: {header.meaning}" for header in HEADERS.values())
    return {
        "type": "record",
        "name": "LandingRecord",
        "namespace": "io.github.kafkatelemetrylake",
        "doc": f"One telemetry push of a Kafka client (KIP-714). Contract version {VERSION}.",
        "fields": [
            {"name": "key", "type": ["null", "string"], "default": None, "doc": KEY},
            {"name": "value", "type": ["null", "bytes"], "default": None, "doc": VALUE},
            {"name": "headers", "type": {"type": "map", "values": "string"}, "doc": f"Text. {headers}."},
            {"name": "topic", "type": "string", "default": "client-telemetry"},
            {"name": "partition", "type": "int", "default": 0},
            {"name": "offset", "type": "long", "default": 0},
            {"name": "timestamp", "type": {"type": "long", "logicalType": "timestamp-millis"}, "doc": TIMESTAMP},
        ],
    }


def text_of(schema: dict[str, Any]) -> str:
    """The text of a schema's file."""
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    JSON_SCHEMA.write_text(text_of(json_schema()), "utf-8")
    AVRO_SCHEMA.write_text(text_of(avro_schema()), "utf-8")
