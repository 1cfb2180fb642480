"""Hostile pushes as genomes: trees over OTLP's wire format, small enough for JSON, that become up to 16 MiB of bytes.

A genome's ``tree`` is a list of nodes, the fields of MetricsData. A node has a field number ``f`` and one of

    c     a submessage: its nodes; with ``deep``, that many levels of ``f { 1 { ... } }`` around it
    g     a group: its nodes; ``deep`` groups in each other
    t     [size, style]: text, bytes or packed numbers, see `STYLES`
    v     an integer, with the wire type ``w``: 0, 1 or 5
    raw   bytes in hex, in place of all else

``n`` repeats it; `FILL` stands for as often as there is room. ``pad`` writes tag and length, or the varint, so many
bytes longer than need be. The rest of a genome is listed by `random_genome`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import fields as dataclass_fields
from random import Random
from typing import Any

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS
from tests.support.otlp_builder import T0_NS

Node = dict[str, Any]
Genome = dict[str, Any]

FILL = -1
MARKER = b"@#@#@#@"  # becomes a number of its own wherever it stands in a push
ROOT: Descriptor = pb.MetricsData.DESCRIPTOR
MOST_FRAMES = getattr(DEFAULT_LIMITS, "max_frames", 1000)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

# One below, at and one above each bound; of sizes and of counts.
LIMITS = [value for each in dataclass_fields(DEFAULT_LIMITS) if (value := getattr(DEFAULT_LIMITS, each.name)) < 1 << 24]
BOUNDS = sorted({max(0, limit + by) for limit in LIMITS for by in (-1, 0, 1)})
COUNTS = (0, 1, 1, 1, 2, 3, 8, 64, 65, 1000, 10_000, FILL, FILL, *BOUNDS)
SIZES = (0, 1, 7, 8, 20, 64, 127, 128, 1023, 1024, 1025, 4000, 60_000, 1 << 20, *BOUNDS)
TIMES = (*[T0_NS + 50 * 10**9] * 12, 0, 1, T0_NS + 23 * 3600 * 10**9, T0_NS - 3600 * 10**9, 2**63 - 1, 2**64 - 1)
VALUES = (0, 1, 2, 3, 127, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1)
DOUBLES = (0, 0x3FF0000000000000, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000, 1, 0x7FEFFFFFFFFFFFFF)
STYLES: dict[str, bytes] = {
    "x": b"x",
    "zeros": b"\0",  # packed numbers, too
    "ones": b"\1",
    "number": MARKER,  # each text another one
    "control": b"\x1b",  # six characters in JSON
    "quote": b'"',
    "bird": "🦜".encode(),
    "accent": "é".encode(),
    "not utf-8": b"\xff",
    "random": b"",
    ".total": b".total",
    "kgo": b"kgo",
    "member_id": b"member_id",
    "node_id": b"node_id",
    "node-7": b"node-7",
    "NaN": b"\0\0\0\0\0\0\xf8\x7f",
}
WORDS = (".total", "kgo", "member_id", "node_id", "node-7")  # these as they are, whatever the size
# How often a message has a field; others have one in eight.
LIKELY = {
    "resource_metrics": 1.0, "scope_metrics": 0.95, "metrics": 0.95, "resource": 0.3, "scope": 0.3, "name": 0.8,
    "data_points": 0.97, "aggregation_temporality": 0.8, "time_unix_nano": 0.8, "start_time_unix_nano": 0.6,
    "attributes": 0.4, "key": 0.8, "value": 0.8, "is_monotonic": 0.5, "bucket_counts": 0.7, "explicit_bounds": 0.6,
    "quantile_values": 0.8, "quantile": 0.5, "positive": 0.7, "count": 0.6, "as_double": 0.6, "as_int": 0.6,
}  # fmt: skip
REPEATED = {"data_points": COUNTS, "attributes": COUNTS, "metrics": COUNTS, "quantile_values": COUNTS}


# --- bytes ---


def varint(value: int, pad: int = 0) -> bytes:
    """A varint, `pad` bytes longer than need be."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    if pad:
        out[-1] |= 128
        out += b"\x80" * (pad - 1) + b"\0"
    return bytes(out)


def payload(genome: Genome, first: int = 0) -> bytes:
    """The uncompressed bytes; numbered texts count from `first`."""
    return _numbered(_messages(genome["tree"], genome["bytes"]), first)


def _messages(nodes: list[Node], room: int) -> bytes:
    parts: list[bytes] = []
    fills = sum(node.get("n") == FILL for node in nodes)
    for node in nodes:
        share = room // fills if node.get("n") == FILL else room
        fills -= node.get("n") == FILL
        parts.append(wire(node, share))
        room -= len(parts[-1])
    return b"".join(parts)


def wire(node: Node, room: int) -> bytes:
    """A node's bytes, at most `room`; what can't be repeated often enough is repeated less."""
    field, pad = node.get("f", 0), node.get("pad", 0)
    if "raw" in node:
        one = bytes.fromhex(node["raw"])
    elif "g" in node:
        depth = node.get("deep", 1)
        one = varint(field << 3 | 3) * depth + _messages(node["g"], room - 10 * depth) + varint(field << 3 | 4) * depth
    elif "v" in node:
        one = varint(field << 3 | node["w"]) + _number(node["v"], node["w"], pad)
    else:
        content = _text(node["t"][0], node["t"][1], room - 20) if "t" in node else _messages(node["c"], room - 20)
        for _ in range(min(node.get("deep", 0), 1000)):
            content = b"\x0a" + varint(len(content)) + content
            content = varint(field << 3 | 2) + varint(len(content)) + content
        one = varint(field << 3 | 2, node.get("tag", 0)) + varint(len(content), pad) + content
    times = node.get("n", 1)
    fits = max(0, room) // max(1, len(one))
    return one * (fits if times == FILL else min(times, fits))


def _number(value: int, wire_type: int, pad: int) -> bytes:
    if wire_type == 0:
        return varint(value, pad)
    return (value & (2**64 - 1 if wire_type == 1 else 2**32 - 1)).to_bytes(8 if wire_type == 1 else 4, "little")


def _text(size: int, style: str, room: int) -> bytes:
    size = max(0, min(size, room))
    if style in WORDS:
        return STYLES[style]
    if style == "random":
        return Random(size).randbytes(size // 2 + 1).hex().encode()[:size]
    if style == "number":
        return (MARKER + b"x" * size)[: max(size, len(MARKER))]
    unit = STYLES[style]
    return unit * (size // len(unit))


def _numbered(data: bytes, first: int) -> bytes:
    """Every `MARKER` replaced by a number, counted from `first`."""
    if MARKER not in data:
        return data
    pieces = data.split(MARKER)
    at = np.cumsum([len(piece) + len(MARKER) for piece in pieces[:-1]]) - len(MARKER)
    numbers = first + np.arange(len(at))
    result = np.frombuffer(data, np.uint8).copy()
    for digit in range(len(MARKER)):
        result[at + len(MARKER) - 1 - digit] = ord("0") + numbers // 10**digit % 10
    return result.tobytes()


# --- chance ---


def random_genome(chance: Random) -> Genome:
    """Any genome: what is in the payload, how it is compressed and framed, what lands beside it."""
    return {
        "tree": random_nodes(chance, ROOT),
        "bytes": chance.choice((4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20)),
        "codec": chance.choice(CODECS),
        "frames": chance.choice((1, 1, 1, 2, MOST_FRAMES, MOST_FRAMES + 1)),  # of content
        "empties": chance.choice((0, 0, 0, 1, MOST_FRAMES - 1, 30_000)),  # frames of nothing before them
        "skippable": chance.choice((0, 0, 0, 1, 30_000)),
        "tail": chance.choice(("", "", "", "00" * 9, "ff")),  # behind the last frame, in hex
        "copies": chance.choice((1, 1, 1, 2, 20)),  # pushes
        "clients": chance.choice((1, 1, 20)),
        "distinct": chance.choice((True, True, False)),  # numbers go on from push to push
        "interval": chance.choice((1000, 0, -1, 2**31 - 1, None)),
        "terminating": chance.random() < 0.1,
        "header": chance.choice((0, 0, 0, 100_000)),  # bytes of client_id
    }


def random_nodes(chance: Random, message: Descriptor, depth: int = 0) -> list[Node]:
    """Fields of a message, any of its definition and some of none."""
    nodes = []
    if message.full_name.endswith(".Metric"):
        data = chance.choice(message.oneofs_by_name["data"].fields)
        rare = [message.fields_by_name[name] for name in ("description", "unit", "metadata") if chance.random() < 0.06]
        chosen = [*rare, *([message.fields_by_name["name"]] if chance.random() < 0.9 else []), data]
    elif message.full_name.endswith(".AnyValue"):
        chosen = [chance.choice(message.fields)]
    else:
        chosen = [field for field in message.fields if chance.random() < LIKELY.get(field.name, 0.125)]
    if depth < 12:
        nodes = [random_node(chance, field, depth + 1) for field in chosen]
    if chance.random() < 0.06:
        nodes.insert(chance.randrange(len(nodes) + 1), unknown(chance))
    if chance.random() < 0.1:
        chance.shuffle(nodes)
    return nodes


def random_node(chance: Random, field: FieldDescriptor, depth: int) -> Node:
    """One field of a message, repeated as its definition lets it be, or seldom as it doesn't."""
    node: Node = {"f": field.number}
    if field.is_repeated or chance.random() < 0.03:
        node["n"] = chance.choice(REPEATED.get(field.name, COUNTS[:8]))
    if chance.random() < 0.02:
        node["pad"] = chance.choice((1, 4, 9))
    if field.message_type is not None:
        node["c"] = random_nodes(chance, field.message_type, depth)
        if field.name == "array_value" and chance.random() < 0.3:
            node["deep"] = chance.choice((1, 48, 49, 50, 1000))
    elif field.type in (field.TYPE_STRING, field.TYPE_BYTES):
        node["t"] = [chance.choice(SIZES[:7] if chance.random() < 0.7 else SIZES), chance.choice(list(STYLES))]
    elif field.is_repeated and chance.random() < 0.8:
        node["t"] = [chance.choice((0, 8, 16, 80, 8000, 1 << 20)), chance.choice(("zeros", "ones", "NaN"))]
        node["n"] = chance.choice((1, 1, 1, 2))
    else:
        fixed64 = (field.TYPE_FIXED64, field.TYPE_SFIXED64, field.TYPE_DOUBLE)
        node["w"] = 1 if field.type in fixed64 else 5 if field.type == field.TYPE_FIXED32 else 0
        pool = TIMES if "time" in field.name else DOUBLES if field.type == field.TYPE_DOUBLE else VALUES
        pool = (1, 2, 2, 3) if field.name == "aggregation_temporality" else pool
        node["v"] = chance.choice(pool)
    return node


def unknown(chance: Random) -> Node:
    """What the definition doesn't know: fields, groups, damage."""
    return copy.deepcopy(
        chance.choice(
            (
                {"f": 16, "w": 0, "v": 5, "n": chance.choice(COUNTS)},
                {"f": 15, "g": [], "n": chance.choice(COUNTS)},
                {"f": 15, "g": [], "deep": chance.choice((1, 99, 100, 101, 100_000))},
                {"f": 536870911, "t": [chance.choice(SIZES), "x"]},
                {"f": 1, "w": 5, "v": 0, "n": chance.choice(COUNTS)},
                {"raw": "0a00", "n": chance.choice(COUNTS)},
                {"raw": chance.choice(("00", "0b", "0c", "ff", "0affffffff0f", "8a8000", "0a8080808080808080800000"))},
            )
        )
    )


# --- evolution ---


def places(nodes: list[Node], message: Descriptor | None = ROOT) -> Iterator[tuple[list[Node], int, Descriptor | None]]:
    """All nodes: the list that each is in, its index, and the message that it is a field of."""
    for index, node in enumerate(nodes):
        yield nodes, index, message
        field = message.fields_by_number.get(node.get("f", 0)) if message is not None else None
        yield from places(node.get("c") or node.get("g") or [], field.message_type if field is not None else None)


def mutated(genome: Genome, other: Genome, chance: Random) -> Genome:
    """The genome with one to four changes, or with a part of another one."""
    result = copy.deepcopy(genome)
    for _ in range(chance.choice((1, 1, 2, 4))):
        if chance.random() < 0.3:
            name = chance.choice([name for name in result if name != "tree"])
            result[name] = random_genome(chance)[name]
        elif all_places := list(places(result["tree"])):
            _mutate_node(*chance.choice(all_places), other, chance)
        else:
            result["tree"] = random_nodes(chance, ROOT)
    return result


def _mutate_node(nodes: list[Node], index: int, message: Descriptor | None, other: Genome, chance: Random) -> None:
    node, what = nodes[index], chance.randrange(8)
    field = message.fields_by_number.get(node.get("f", 0)) if message is not None else None
    if what == 0:
        del nodes[index]
    elif what == 1 and message is not None and message.fields:
        nodes.insert(index, random_node(chance, chance.choice(message.fields), 6))
    elif what == 2:
        nodes.insert(
            chance.randrange(len(nodes) + 1), unknown(chance) if chance.random() < 0.3 else copy.deepcopy(node)
        )
    elif what == 3 and field is not None:
        nodes[index] = random_node(chance, field, 6)
    elif what == 4:  # from the other genome, of the same message
        same = [each[index] for each, index, of in places(other["tree"]) if of is message]
        nodes[index] = copy.deepcopy(chance.choice(same)) if same else node
    elif "t" in node and what < 7:
        node["t"][chance.randrange(2)] = ""
        node["t"] = [
            chance.choice(SIZES) if node["t"][0] == "" else node["t"][0],
            chance.choice(list(STYLES)) if node["t"][1] == "" else node["t"][1],
        ]
    elif "v" in node and what < 7:
        node["v"] = chance.choice((*TIMES, *VALUES, *DOUBLES))
    else:
        node["n"] = chance.choice(COUNTS)
