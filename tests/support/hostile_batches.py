"""Batches of hostile pushes from genomes (`hostile_genomes`), beside good ones: compressed, framed, landed."""

from __future__ import annotations

import gzip
from typing import Any

import lz4.frame
import pyarrow as pa
import snappy
import zstandard

from tests.support.hostile_genomes import Genome, payload
from tests.support.otlp_builder import at, counter, delta, gauge, histogram, push, table

CAP = (1 << 20) - 4096  # telemetry.max.bytes: no broker takes a larger push
GOOD_PUSHES = 20
GOOD_CLIENTS = [f"good{n:018d}" for n in range(4)]
FIRST_GOOD_OFFSET = 1_000_000
SKIPPABLE = bytes.fromhex("502a4d1800000000")
XERIAL_HEADER = b"\x82SNAPPY\x00" + bytes([0, 0, 0, 1, 0, 0, 0, 1])
EMPTY = {"gzip": gzip.compress(b"", mtime=0), "lz4": lz4.frame.compress(b""), "zstd": zstandard.compress(b"")}


def framed(raw: bytes, genome: Genome) -> bytes:
    """The payload as the genome has it compressed: maybe in many frames, with empty ones before and junk behind."""
    codec, frames = genome["codec"], max(1, genome["frames"])
    size = max(1, -(-len(raw) // frames))
    pieces = [raw[start : start + size] for start in range(0, len(raw), size)] or [b""]
    if codec == "none":
        return raw
    if codec == "snappy":
        blocks = [snappy.compress(piece) for piece in [b""] * genome["empties"] + pieces]
        data = blocks[0]
        if len(blocks) > 1:
            data = XERIAL_HEADER + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
        return bytes(data + bytes.fromhex(genome["tail"]))
    if codec == "gzip":
        packed = [gzip.compress(piece, 6, mtime=0) for piece in pieces]
    elif codec == "lz4":
        packed = [lz4.frame.compress(piece) for piece in pieces]
    else:
        packed = [zstandard.ZstdCompressor(level=3).compress(piece) for piece in pieces]
    skippable = SKIPPABLE * genome["skippable"] if codec in ("lz4", "zstd") else b""
    return bytes(EMPTY[codec] * genome["empties"] + skippable + b"".join(packed) + bytes.fromhex(genome["tail"]))


def landed(genome: Genome, first: int = 0) -> tuple[bytes, int]:
    """A push's bytes on the wire and the size of what they decompress to; a broker refuses none of them."""
    within = dict(genome)
    for _ in range(4):
        raw = payload(within, first)
        data = framed(raw, within)
        if len(data) <= CAP:
            return data, len(raw)
        within["bytes"] = min(len(raw), within["bytes"]) * (CAP - 200_000) // len(data)
        within |= {name: within[name] // 2 for name in ("empties", "skippable")}
    return raw[: CAP // 2], CAP // 2


def hostile_rows(genome: Genome) -> tuple[list[dict[str, Any]], int, int]:
    """Rows of PUSHES_IN, their landed bytes and their uncompressed bytes."""
    rows, wire_bytes, raw_bytes = [], 0, 0
    for copy in range(genome["copies"]):
        if copy == 0 or (genome["distinct"] and copy < 4):
            data, size = landed(genome, copy * 2_000_000)
        client_id = "h" * genome["header"] + "ostile"
        row = push(
            copy, landed=60, payload=data, compression_type=genome["codec"], client_id=client_id,
            client_instance_id=f"bad{copy % genome['clients']:019d}", push_interval_ms=genome["interval"],
            terminating=genome["terminating"],
        )  # fmt: skip
        rows.append(row)
        wire_bytes += len(data) + len(client_id)
        raw_bytes += max(size, len(data)) + len(client_id)
    return rows, wire_bytes, raw_bytes


def good_rows() -> list[dict[str, Any]]:
    """Pushes of good clients, of all that the tables have columns for."""
    rows = []
    for n in range(GOOD_PUSHES):
        turn = 1 + n // len(GOOD_CLIENTS)
        metrics = [
            counter(turn * 3, 0, turn * 10, attributes={"topic": "a"}),
            delta(turn, turn * 10 - 10, turn * 10, name="d"),
            gauge(turn / 2, turn * 10, attributes={"node_id": "node-1"}),
            histogram((turn, 2 * turn, 0), 0, turn * 10, total=1.5 * turn),
        ]
        row = push(
            FIRST_GOOD_OFFSET + n, *metrics, client_instance_id=GOOD_CLIENTS[n % len(GOOD_CLIENTS)],
            landed=60 + turn, resource={"group_id": "g"},
        )  # fmt: skip
        rows.append(row)
    return rows


def batch(rows: list[dict[str, Any]]) -> pa.Table:
    """The pushes as a task reads them, in one chunk."""
    assert all(row["landed_at"] >= at(0) for row in rows)
    return table(rows).combine_chunks()
