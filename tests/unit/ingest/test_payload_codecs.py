"""Landing records whose payloads the receiver compressed, beside those that earlier receivers landed plain."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lz4.frame
import pyarrow.compute as pc
import snappy
import zstandard

from tests.support.lake_tables import table
from tests.support.landing_records import record
from tests.support.local_stream import LocalStream
from tests.support.otlp_builder import at, counter, payload

CODECS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip.compress,
    "snappy": snappy.compress,
    "lz4": lz4.frame.compress,
    "zstd": zstandard.compress,
}
POINT = ("offset", "metric", "value", "delta", "delta_status", "start_time", "time")


def total(pushes: int) -> bytes:
    """The push number `pushes` of a client: a counter that grows by 10 a minute, and a long attribute."""
    return payload(counter(10.0 * pushes, 0, 60.0 * pushes, attributes={"topic": "orders" * 20}))


def landed(offset: int, value: bytes, codec: str) -> dict[str, Any]:
    return record(offset, value, compression_type=codec) | {"timestamp": at(60.0 * (offset + 1))}


def points(stream: LocalStream) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table(stream.lake, "metric_points").select(POINT).sort_by("offset").to_pylist()
    return rows


def test_each_codec_beside_payloads_that_are_not_what_they_claim(tmp_path: Path) -> None:
    good = [landed(n, pack(total(n + 1)), codec) for n, (codec, pack) in enumerate(CODECS.items())]
    raw = zstandard.compress(total(6))
    bad = {5: ("zstd", raw[:-3]), 6: ("none", raw), 7: ("zstd", zstandard.compress(raw)), 8: ("zstd-dictionary", raw)}
    stream = LocalStream(tmp_path)
    stream.batch([*good, *(landed(n, value, codec) for n, (codec, value) in bad.items())])
    assert [(row["offset"], row["value"], row["delta"]) for row in points(stream)] == [
        (n, 10.0 * (n + 1), 10.0) for n in range(5)
    ]
    refused = {row["offset"]: (row["reason"], row["payload"]) for row in table(stream.lake, "quarantine").to_pylist()}
    reasons = [*["INVALID_RECORD"] * 3, "UNSUPPORTED_COMPRESSION_TYPE"]
    assert refused == {n: (reason, value) for (n, (_, value)), reason in zip(bad.items(), reasons, strict=True)}
    outcomes = table(stream.lake, "push_outcomes")
    assert sorted(outcomes["offset"].to_pylist()) == list(range(9))


def test_a_lake_of_plain_payloads_continues_with_compressed_ones(tmp_path: Path) -> None:
    """As after an update of the brokers, and back again."""
    lakes = {"plain": LocalStream(tmp_path / "plain"), "updated": LocalStream(tmp_path / "updated")}
    for name, stream in lakes.items():
        for batch in range(3):
            codec = "zstd" if name == "updated" and batch == 1 else "none"
            stream.batch(landed(n, CODECS[codec](total(n + 1)), codec) for n in (2 * batch, 2 * batch + 1))
    assert points(lakes["updated"]) == points(lakes["plain"])
    assert [row["delta"] for row in points(lakes["updated"])] == [10.0] * 6
    assert table(lakes["updated"].lake, "quarantine").num_rows == 0
    stored = table(lakes["updated"].lake, "pushes").sort_by("offset")
    assert stored["compression_type"].to_pylist() == ["none", "none", "zstd", "zstd", "none", "none"]
    assert pc.binary_length(stored["payload"]).to_pylist()[2] < len(total(3))  # as landed
