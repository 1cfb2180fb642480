"""Every codec and framing of real clients decompresses; what doesn't is rejected alone, within its bound."""

from __future__ import annotations

import gzip
import hashlib
import struct
from random import Random
from typing import Any

import cramjam
import lz4.frame
import pyarrow as pa
import pytest
import snappy
import zstandard

from kafka_telemetry_lake.udfs.conversion.compression import decompress
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS, Limits
from tests.support.landing_records import captured, captured_index

DATA = b"".join(b"metric.name.%d " % (number % 300) for number in range(20_000))


def xerial(data: bytes, block: int = 32 << 10) -> bytes:
    blocks = [snappy.compress(data[start : start + block]) for start in range(0, len(data), block)]
    header = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    return header + b"".join(struct.pack(">i", len(packed)) + packed for packed in blocks)


def zstd_stream(data: bytes, **options: Any) -> bytes:
    packer = zstandard.ZstdCompressor(write_content_size=False, **options).compressobj()
    return packer.compress(data) + packer.flush()


FRAMINGS = {
    "none": ("none", DATA),
    "none by id": ("0", DATA),
    "gzip": ("gzip", gzip.compress(DATA)),
    "gzip stored": ("1", gzip.compress(DATA, compresslevel=0)),
    "gzip members": ("gzip", gzip.compress(DATA[:999]) + gzip.compress(b"") + gzip.compress(DATA[999:])),
    "gzip padded": ("gzip", gzip.compress(DATA) + bytes(32)),
    "snappy block": ("snappy", snappy.compress(DATA)),
    "snappy stream": ("2", xerial(DATA)),
    "snappy streams": ("snappy", xerial(DATA[:70_000]) + xerial(DATA[70_000:])),
    "lz4": ("lz4", lz4.frame.compress(DATA)),
    "lz4 as franz-go": (
        "3",
        lz4.frame.compress(DATA, block_size=lz4.frame.BLOCKSIZE_MAX4MB, content_checksum=True, store_size=False),
    ),
    "lz4 of linked blocks": ("lz4", bytes(cramjam.lz4.compress(DATA))),  # Kafka's own reader refuses them
    "lz4 frames": ("lz4", lz4.frame.compress(DATA[:5]) + lz4.frame.compress(DATA[5:])),
    "zstd": ("zstd", zstandard.compress(DATA)),
    "zstd stream": ("4", zstd_stream(DATA)),
    "zstd with checksum": ("ZSTD", zstd_stream(DATA, write_checksum=True)),
    "zstd frames": ("zstd", zstandard.compress(DATA[:7]) + zstd_stream(DATA[7:])),
}


def one(
    payload: bytes | None, name: str | None, max_bytes: int = 16 << 20
) -> tuple[bytes | None, str | None, str | None]:
    limits = Limits(max_decompressed_bytes=max_bytes)
    found = decompress(pa.array([payload], pa.binary()), pa.array([name], pa.string()), limits)
    return found.data[0].as_py(), found.reason[0].as_py(), found.detail[0].as_py()


@pytest.mark.parametrize("framing", FRAMINGS)
def test_the_bound_is_exact(framing: str) -> None:
    name, payload = FRAMINGS[framing]
    assert one(payload, name, len(DATA)) == (DATA, None, None)
    data, reason, detail = one(payload, name, len(DATA) - 1)
    assert (data, reason) == (None, "TELEMETRY_TOO_LARGE")
    assert detail == f"more than {len(DATA) - 1} bytes decompressed"


@pytest.mark.parametrize("framing", [name for name in FRAMINGS if not name.startswith("none")])
def test_truncated_anywhere_is_an_invalid_record(framing: str) -> None:
    name, payload = FRAMINGS[framing]
    trailer = 32 if framing == "gzip padded" else 0
    for keep in (1, 3, len(payload) // 3, len(payload) - 1 - trailer):
        data, reason, detail = one(payload[:keep], name)
        assert (data, reason) == (None, "INVALID_RECORD"), keep
        assert detail is not None
        assert "not decompressible as" in detail


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_another_codecs_bytes_are_an_invalid_record(name: str) -> None:
    for other, payload in FRAMINGS.values():
        if other.lower() not in (name, str(["none", "gzip", "snappy", "lz4", "zstd"].index(name))):
            assert one(payload, name)[1] == "INVALID_RECORD", other


def test_unknown_types_empty_and_null_payloads() -> None:
    assert one(DATA, "brotli")[1:] == ("UNSUPPORTED_COMPRESSION_TYPE", "compression type 'brotli'")
    assert one(DATA, "")[1] == "UNSUPPORTED_COMPRESSION_TYPE"
    assert one(DATA, "5")[1] == "UNSUPPORTED_COMPRESSION_TYPE"
    assert one(DATA, None) == (DATA, None, None)
    assert one(b"", "zstd") == (b"", None, None)
    assert one(None, "gzip") == (None, None, None)
    samples: list[bytes | bytearray | memoryview[int]] = [Random(seed).randbytes(400) for seed in range(50)]
    packer = zstandard.ZstdCompressor(dict_data=zstandard.train_dictionary(2000, samples))
    _, reason, detail = one(packer.compress(DATA), "zstd")
    assert (reason, "Dictionary mismatch" in str(detail)) == ("INVALID_RECORD", True)


def test_captured_pushes_of_every_client_and_framing() -> None:
    index = captured_index()
    names = pa.array([truth["compression_type"] for truth in index])
    found = decompress(captured()["value"].combine_chunks(), names)
    assert found.reason.null_count == len(index)
    digests = [hashlib.sha256(data).hexdigest() for data in found.data.to_pylist()]
    assert digests == [truth["sha256"] for truth in index]


def test_a_budget_ends_the_work_early() -> None:
    payloads = pa.array([gzip.compress(bytes(1000))] * 10)
    found = decompress(payloads, pa.array(["gzip"] * 10), budget_bytes=2500)
    assert found.data.to_pylist() == [bytes(1000)] * 3
    assert len(decompress(payloads, pa.array(["gzip"] * 10), budget_bytes=1).data) == 1


SKIPPABLE = b"\x50\x2a\x4d\x18" + struct.pack("<I", 0)
MOST = DEFAULT_LIMITS.max_frames
EMPTY = {
    "gzip": gzip.compress(b""),
    "lz4": lz4.frame.compress(b""),
    "zstd": zstandard.compress(b""),
    "zstd skippable": SKIPPABLE,
    "lz4 skippable": SKIPPABLE,
}


@pytest.mark.parametrize("frame", EMPTY)
def test_frames_are_bounded(frame: str) -> None:
    name = frame.partition(" ")[0]
    assert one(EMPTY[frame] * MOST, name) == (b"", None, None)
    data, reason, detail = one(EMPTY[frame] * (MOST + 1), name)
    assert (data, reason) == (None, "INVALID_RECORD")
    assert f"more than {MOST} times a {name}" in str(detail)


def test_what_follows_an_empty_frame_is_read() -> None:
    assert one(EMPTY["zstd"] + zstandard.compress(DATA), "zstd") == (DATA, None, None)
    assert one(EMPTY["zstd"] + b"garbage", "zstd")[1] == "INVALID_RECORD"
    assert one(SKIPPABLE + zstandard.compress(DATA), "zstd") == (DATA, None, None)


def test_snappy_blocks_are_bounded() -> None:
    most = DEFAULT_LIMITS.max_snappy_blocks
    header, empty = xerial(b""), b"\0\0\0\1\0"
    assert one(header + empty * (most - 1), "snappy") == (b"", None, None)
    assert one(header + empty * most, "snappy")[1] == "INVALID_RECORD"
    assert one(header * (most + 1), "snappy")[1] == "INVALID_RECORD"


@pytest.mark.parametrize("name", ["gzip", "lz4"])
def test_members_across_slices(name: str) -> None:
    compress = gzip.compress if name == "gzip" else lz4.frame.compress
    noise = b"".join(hashlib.sha256(bytes([n])).digest() * 9 + bytes(n) for n in range(250)) * 5
    payload = b"".join(compress(noise[at : at + 100_001]) for at in range(0, len(noise), 100_001))
    assert one(payload, name) == (noise, None, None)
