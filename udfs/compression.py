"""Decompression of pushes: Kafka's five compression types in the framings that real clients use, with a real bound.

Framings: gzip (one or more members), snappy (snappy-java's stream with its ``\\x82SNAPPY\\0`` header, or one raw block
as librdkafka and franz-go send), lz4 (frames), zstd (frames, mostly without content size).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import lz4.frame
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import snappy
import zstandard

UNSUPPORTED_COMPRESSION_TYPE = "UNSUPPORTED_COMPRESSION_TYPE"
INVALID_RECORD = "INVALID_RECORD"
TELEMETRY_TOO_LARGE = "TELEMETRY_TOO_LARGE"

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES = 16  # magic, int32 version, int32 lowest compatible version
GZIP_WRAPPER = 16 + zlib.MAX_WBITS
# A larger window than any level of zstd uses below 32 MiB of input; it bounds what a hostile frame makes us allocate.
ZSTD_MAX_WINDOW_BYTES = 32 << 20
# One zstd block states 128 KiB in 4 bytes, so a slice of this size yields at most about 2 MiB over the bound.
ZSTD_SLICE_BYTES = 64


class _TooLargeError(Exception):
    pass


class _MalformedError(Exception):
    pass


@dataclass(frozen=True)
class Decompressed:
    """One row per payload: `data` (large_binary; NULL where rejected), `reason` (Kafka's error name) and `detail`."""

    data: pa.LargeBinaryArray
    reason: pa.StringArray
    detail: pa.StringArray


def decompress(
    payloads: pa.Array, compression_types: pa.Array, max_bytes: int = 16 << 20, budget_bytes: int | None = None
) -> Decompressed:
    """Decompress each payload by its compression type; a bad one is rejected alone.

    Args:
        payloads: binary; NULL stays NULL without a reason, empty stays empty whatever its type.
        compression_types: string, ``none|gzip|snappy|lz4|zstd`` or Kafka's ids ``0`` to ``4``; NULL reads as none.
        max_bytes: bound of one decompressed payload; beyond it the reason is TELEMETRY_TOO_LARGE.
        budget_bytes: stop once this much has been decompressed in all; the result then covers the payloads up to
            there (at least one), so that a caller can work through a batch in bounded memory.
    """
    plain = _uncompressed(payloads, compression_types, max_bytes, budget_bytes)
    if plain is not None:
        nothing = pa.nulls(len(plain), pa.string())
        return Decompressed(plain, nothing, nothing)
    data: list[bytes | None] = []
    reasons: list[str | None] = []
    details: list[str | None] = []
    total = 0
    for payload, name in zip(payloads, compression_types.to_pylist(), strict=True):
        reason = detail = None
        raw: bytes | None = None
        if payload.is_valid:
            raw, reason, detail = _decompress_one(payload.as_buffer(), name, max_bytes)
            total += len(raw or b"")
        data.append(raw)
        reasons.append(reason)
        details.append(detail)
        if budget_bytes is not None and total >= budget_bytes:
            break
    text = pa.string()
    return Decompressed(pa.array(data, pa.large_binary()), pa.array(reasons, text), pa.array(details, text))


def _uncompressed(
    payloads: pa.Array, compression_types: pa.Array, max_bytes: int, budget_bytes: int | None
) -> pa.LargeBinaryArray | None:
    """The payloads up to the budget as they are, when all of them are uncompressed and within the bound."""
    distinct = pc.unique(compression_types).to_pylist()
    if not all(CODECS.get((name or "none").strip().lower()) is _none for name in distinct) or "" in distinct:
        return None
    sizes = pc.fill_null(pc.binary_length(payloads), 0).to_numpy(zero_copy_only=False)
    if (sizes > max_bytes).any():
        return None
    if budget_bytes is not None:
        payloads = payloads[: np.searchsorted(np.cumsum(sizes, dtype=np.int64), budget_bytes) + 1]
    return payloads.cast(pa.large_binary())


def _decompress_one(
    payload: pa.Buffer, name: str | None, max_bytes: int
) -> tuple[bytes | None, str | None, str | None]:
    codec = CODECS.get(name.strip().lower() if name is not None else "none")
    if codec is None:
        return None, UNSUPPORTED_COMPRESSION_TYPE, f"compression type {name[:100]!r}" if name else "compression type ''"
    if payload.size == 0:
        return b"", None, None
    try:
        raw = codec(payload.to_pybytes(), max_bytes)
    except _TooLargeError:
        return None, TELEMETRY_TOO_LARGE, f"more than {max_bytes} bytes decompressed"
    except (_MalformedError, zlib.error, RuntimeError, zstandard.ZstdError, snappy.UncompressError) as error:
        return None, INVALID_RECORD, f"not decompressible as {name}: {error}"
    return raw, None, None


def _none(payload: bytes, max_bytes: int) -> bytes:
    if len(payload) > max_bytes:
        raise _TooLargeError
    return payload


def _gzip(payload: bytes, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    room = max_bytes
    while payload:
        member = zlib.decompressobj(GZIP_WRAPPER)
        part = member.decompress(payload, room + 1)
        room -= len(part)
        if room < 0:
            raise _TooLargeError
        if not member.eof:
            raise _MalformedError("truncated gzip member")
        parts.append(part)
        payload = member.unused_data
        if not payload.strip(b"\0"):  # RFC 1952 lets tapes pad with zeros
            break
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _snappy(payload: bytes, max_bytes: int) -> bytes:
    if not payload.startswith(XERIAL_MAGIC):
        return _snappy_block(payload, max_bytes)
    parts: list[bytes] = []
    room = max_bytes
    position = 0
    while position < len(payload):
        if payload.startswith(XERIAL_MAGIC, position):  # streams may be concatenated
            position += XERIAL_HEADER_BYTES
            continue
        start = position + 4
        position = start + int.from_bytes(payload[position:start], "big")
        if start > len(payload) or position > len(payload):
            raise _MalformedError("truncated snappy stream")
        parts.append(_snappy_block(payload[start:position], room))
        room -= len(parts[-1])
    if position > len(payload):
        raise _MalformedError("truncated snappy stream header")
    return b"".join(parts)


def _snappy_block(block: bytes, max_bytes: int) -> bytes:
    size = shift = 0  # the block starts with its size as a varint, which the library allocates unseen
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > max_bytes:
        raise _TooLargeError
    return bytes(snappy.uncompress(block))


def _lz4(payload: bytes, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    room = max_bytes
    while payload:
        frame = lz4.frame.LZ4FrameDecompressor()
        part = frame.decompress(payload, room + 1)
        room -= len(part)
        if room < 0:
            raise _TooLargeError
        if not frame.eof:
            raise _MalformedError("truncated lz4 frame")
        parts.append(part)
        payload = frame.unused_data or b""
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _zstd(payload: bytes, max_bytes: int) -> bytes:
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_MAX_WINDOW_BYTES)
    stated = zstandard.frame_content_size(payload)  # -1 when the frame doesn't say
    if stated > max_bytes:
        raise _TooLargeError
    try:
        raw: bytes = decompressor.decompress(payload, max_output_size=max_bytes, allow_extra_data=False)
    except zstandard.ZstdError:
        return _zstd_frames(decompressor, payload, max_bytes)
    return raw


def _zstd_frames(decompressor: zstandard.ZstdDecompressor, payload: bytes, max_bytes: int) -> bytes:
    """Several frames, or one that the single call refused: told apart here, in bounded slices."""
    parts: list[bytes] = []
    room = max_bytes
    frame = decompressor.decompressobj()
    for start in range(0, len(payload), ZSTD_SLICE_BYTES):
        piece = payload[start : start + ZSTD_SLICE_BYTES]
        while piece:
            if frame.eof:
                frame = decompressor.decompressobj()
            parts.append(frame.decompress(piece))
            piece = frame.unused_data if frame.eof else b""
            room -= len(parts[-1])
            if room < 0:
                raise _TooLargeError
    if not frame.eof:
        raise _MalformedError("truncated zstd frame")
    return b"".join(parts)


CODECS: dict[str, Callable[[bytes, int], bytes]] = {
    **dict.fromkeys(("none", "0"), _none),
    **dict.fromkeys(("gzip", "1"), _gzip),
    **dict.fromkeys(("snappy", "2"), _snappy),
    **dict.fromkeys(("lz4", "3"), _lz4),
    **dict.fromkeys(("zstd", "4"), _zstd),
}
