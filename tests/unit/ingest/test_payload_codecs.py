"""Landing records whose payloads the receiver compressed, beside those that earlier receivers landed plain."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from random import Random
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


def with_other_dictionary(raw: bytes) -> bytes:
    samples: list[bytes | bytearray | memoryview[int]] = [Random(seed).randbytes(400) for seed in range(50)]
    return zstandard.ZstdCompressor(dict_data=zstandard.train_dictionary(2000, samples)).compress(raw)


def test_each_codec_beside_payloads_that_are_not_what_they_claim(tmp_path: Path) -> None:
    good = [landed(n, pack(total(n + 1)), codec) for n, (codec, pack) in enumerate(CODECS.items())]
    raw, noise = total(6), Random(1).randbytes(300)
    bad = {
        5: ("zstd", raw, "INVALID_RECORD", "not decompressible as zstd"),
        6: ("zstd", noise, "INVALID_RECORD", "not decompressible as zstd"),
        7: ("zstd", zstandard.compress(raw)[:-3], "INVALID_RECORD", "not decompressible as zstd"),
        8: ("zstd", with_other_dictionary(raw), "INVALID_RECORD", "Dictionary mismatch"),
        9: ("zstd", zstandard.compress(zstandard.compress(raw)), "INVALID_RECORD", ""),
        10: ("none", zstandard.compress(raw), "INVALID_RECORD", ""),
        11: ("lz4", zstandard.compress(raw), "INVALID_RECORD", "not decompressible as lz4"),
        12: ("zstd-dictionary", zstandard.compress(raw), "UNSUPPORTED_COMPRESSION_TYPE", "'zstd-dictionary'"),
        13: ("", raw, "UNSUPPORTED_COMPRESSION_TYPE", "compression type ''"),
    }
    stream = LocalStream(tmp_path)
    stream.batch([*good, *(landed(n, value, codec) for n, (codec, value, *_) in bad.items())])

    assert [(row["offset"], row["value"], row["delta"]) for row in points(stream)] == [
        (0, 10.0, 10.0), (1, 20.0, 10.0), (2, 30.0, 10.0), (3, 40.0, 10.0), (4, 50.0, 10.0),
    ]  # fmt: skip
    refused = {row["offset"]: row for row in table(stream.lake, "quarantine").to_pylist()}
    assert {n: row["reason"] for n, row in refused.items()} == {n: reason for n, (_, _, reason, _) in bad.items()}
    for n, (_, value, _, detail) in bad.items():
        assert detail in refused[n]["detail"]
        assert refused[n]["payload"] == value
    outcomes = table(stream.lake, "push_outcomes")
    assert sorted(outcomes["offset"].to_pylist()) == list(range(14))


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
