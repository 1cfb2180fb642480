"""Decompresses pushes: Kafka's five compression types, in the framings that real clients use, with a strict size limit.

Framings: gzip (one or more members), snappy (snappy-java's stream with its ``\\x82SNAPPY\\0`` header, or one raw block
as librdkafka and franz-go send), lz4 (frames), zstd (frames, mostly without content size).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import lz4.frame
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import snappy
import zstandard

from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS, Limits

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
ZSTD_HEADER_BYTES = 18  # RFC 8878: at most, with the magic number
# gzip and lz4 are read in slices of this size: what follows a member is copied no further.
SLICE_BYTES = 64 << 10


class _TooLargeError(Exception):
    pass


class _MalformedError(Exception):
    pass


class _Meter:
    """Counts what one payload is decompressed to, whether it is accepted or not."""

    def __init__(self, max_bytes: int) -> None:
        self.used = 0
        self._max_bytes = max_bytes

    @property
    def room(self) -> int:
        return self._max_bytes - self.used

    def add(self, size: int) -> None:
        self.used += size
        if self.room < 0:
            raise _TooLargeError


class _Shared(NamedTuple):
    """What the payloads of a call share. A context costs more than a payload, but it remembers the largest window."""

    limits: Limits
    zstd: zstandard.ZstdDecompressor


@dataclass(frozen=True)
class Decompressed:
    """One row per payload: `data` (large_binary; NULL where rejected), `reason` (Kafka's error name) and `detail`."""

    data: pa.LargeBinaryArray
    reason: pa.StringArray
    detail: pa.StringArray


def decompress(
    payloads: pa.Array, compression_types: pa.Array, limits: Limits = DEFAULT_LIMITS, budget_bytes: int | None = None
) -> Decompressed:
    """Decompress each payload by its compression type; a bad one is rejected alone.

    Args:
        payloads: binary; NULL stays NULL without a reason, empty stays empty whatever its compression type.
        compression_types: string, ``none|gzip|snappy|lz4|zstd`` or Kafka's ids ``0`` to ``4``; NULL reads as none.
        limits: of one payload: beyond its decompressed bytes the reason is TELEMETRY_TOO_LARGE, beyond its frames and
            blocks INVALID_RECORD.
        budget_bytes: stop once this much has been decompressed in all, rejected payloads included; the result then
            covers the payloads up to there (at least one), so that a caller can process a batch in limited
            memory and time.

    >>> payloads = pa.array([b"plain", zlib.compress(b"push", wbits=31), b"?"])
    >>> result = decompress(payloads, pa.array([None, "gzip", "zstd"]))
    >>> result.data.to_pylist()
    [b'plain', b'push', None]
    >>> result.reason.to_pylist()
    [None, None, 'INVALID_RECORD']
    """
    plain = _uncompressed(payloads, compression_types, limits.max_decompressed_bytes, budget_bytes)
    if plain is not None:
        nothing = pa.nulls(len(plain), pa.string())
        return Decompressed(plain, nothing, nothing)
    data: list[bytes | None] = []
    reasons: list[str | None] = []
    details: list[str | None] = []
    total = 0
    shared = _Shared(limits, zstandard.ZstdDecompressor(max_window_size=ZSTD_MAX_WINDOW_BYTES))
    for payload, name in zip(payloads, compression_types.to_pylist(), strict=True):
        reason = detail = None
        raw: bytes | None = None
        if payload.is_valid:
            meter = _Meter(limits.max_decompressed_bytes)
            raw, reason, detail = _decompress_one(payload.as_buffer(), name, meter, shared)
            total += meter.used
        data.append(raw)
        reasons.append(reason)
        details.append(detail)
        if budget_bytes is not None and total >= budget_bytes:
            break
    text = pa.string()
    return Decompressed(_joined(data), pa.array(reasons, text), pa.array(details, text))


def _joined(data: list[bytes | None]) -> pa.LargeBinaryArray:
    """The payloads as an array, in memory from Arrow's pool, which a builder would copy several times as it grows."""
    offsets = np.zeros(len(data) + 1, np.int64)
    np.cumsum([len(raw or b"") for raw in data], out=offsets[1:])
    buffer = pa.allocate_buffer(int(offsets[-1]))
    content = memoryview(buffer).cast("B")
    for raw, start, end in zip(data, offsets.tolist(), offsets[1:].tolist(), strict=False):
        if raw:
            content[start:end] = raw
    validity = pa.py_buffer(np.packbits([raw is not None for raw in data], bitorder="little"))
    return pa.Array.from_buffers(pa.large_binary(), len(data), [validity, pa.py_buffer(offsets), buffer])


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
    payload: pa.Buffer, name: str | None, meter: _Meter, shared: _Shared
) -> tuple[bytes | None, str | None, str | None]:
    codec = CODECS.get(name.strip().lower() if name is not None else "none")
    if codec is None:
        return None, UNSUPPORTED_COMPRESSION_TYPE, f"compression type {name[:100]!r}" if name else "compression type ''"
    if payload.size == 0:
        return b"", None, None
    try:
        raw = codec(payload.to_pybytes(), meter, shared)
    except _TooLargeError:
        return None, TELEMETRY_TOO_LARGE, f"more than {shared.limits.max_decompressed_bytes} bytes decompressed"
    except (_MalformedError, zlib.error, RuntimeError, zstandard.ZstdError, snappy.UncompressError) as error:
        return None, INVALID_RECORD, f"not decompressible as {name}: {error}"
    return raw, None, None


def _none(payload: bytes, meter: _Meter, _shared: _Shared) -> bytes:
    meter.add(len(payload))
    return payload


def _gzip(payload: bytes, meter: _Meter, shared: _Shared) -> bytes:
    return _members(payload, meter, shared.limits.max_frames, "gzip member", lambda: zlib.decompressobj(GZIP_WRAPPER))


def _members(payload: bytes, meter: _Meter, most: int, what: str, start: Callable[[], Any]) -> bytes:
    """Successive gzip members or lz4 frames, read in slices so that the rest isn't copied for each."""
    parts: list[bytes] = []
    position = members = 0
    while position < len(payload):
        members += 1
        if members > most:
            raise _MalformedError(f"more than {most} times a {what}")
        member = start()
        while not member.eof:
            piece = payload[position : position + SLICE_BYTES]
            if not piece:
                raise _MalformedError(f"truncated {what}")
            parts.append(member.decompress(piece, meter.room + 1))
            position += len(piece)
            meter.add(len(parts[-1]))
        position -= len(member.unused_data or b"")
        if payload[position : position + 1] == b"\0" and not payload[position:].strip(b"\0"):
            break  # RFC 1952 lets tapes pad with zeros
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _snappy(payload: bytes, meter: _Meter, shared: _Shared) -> bytes:
    if not payload.startswith(XERIAL_MAGIC):
        return _snappy_block(payload, meter)
    parts: list[bytes] = []
    position = blocks = 0
    while position < len(payload):
        blocks += 1
        if blocks > shared.limits.max_snappy_blocks:
            raise _MalformedError(f"more than {shared.limits.max_snappy_blocks} snappy blocks")
        if payload.startswith(XERIAL_MAGIC, position):  # streams may be concatenated
            position += XERIAL_HEADER_BYTES
            continue
        start = position + 4
        position = start + int.from_bytes(payload[position:start], "big")
        if start > len(payload) or position > len(payload):
            raise _MalformedError("truncated snappy stream")
        parts.append(_snappy_block(payload[start:position], meter))
    if position > len(payload):
        raise _MalformedError("truncated snappy stream header")
    return b"".join(parts)


def _snappy_block(block: bytes, meter: _Meter) -> bytes:
    size = shift = 0  # the block starts with its size as a varint, which the library allocates unseen
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > meter.room:
        raise _TooLargeError
    meter.add(size)
    return bytes(snappy.uncompress(block))


def _lz4(payload: bytes, meter: _Meter, shared: _Shared) -> bytes:
    return _members(payload, meter, shared.limits.max_frames, "lz4 frame", lz4.frame.LZ4FrameDecompressor)


def _zstd(payload: bytes, meter: _Meter, shared: _Shared) -> bytes:
    decompressor, most = shared.zstd, shared.limits.max_frames
    stated = zstandard.frame_content_size(payload)  # -1 when the frame doesn't say
    if stated > meter.room:
        raise _TooLargeError
    if stated == 0:  # the single call would not look behind an empty frame
        return _zstd_frames(decompressor, payload, meter, most)
    try:
        raw: bytes = decompressor.decompress(payload, max_output_size=meter.room, allow_extra_data=False)
    except zstandard.ZstdError:
        return _zstd_frames(decompressor, payload, meter, most)
    meter.add(len(raw))
    return raw


def _zstd_frames(decompressor: zstandard.ZstdDecompressor, payload: bytes, meter: _Meter, most: int) -> bytes:
    """Several frames, or one that the single call refused, in slices of limited size.

    Each frame must have the size that it states.
    """
    parts: list[bytes] = []
    frame = decompressor.decompressobj()
    stated, before, frames = zstandard.frame_content_size(payload), 0, 1
    for start in range(0, len(payload), ZSTD_SLICE_BYTES):
        piece = payload[start : start + ZSTD_SLICE_BYTES]
        end = start + len(piece)
        while piece:
            if frame.eof:
                frames += 1
                if frames > most:
                    raise _MalformedError(f"more than {most} times a zstd frame")
                frame = decompressor.decompressobj()
                first, before = end - len(piece), meter.used
                stated = zstandard.frame_content_size(payload[first : first + ZSTD_HEADER_BYTES])
            part = frame.decompress(piece)
            piece = frame.unused_data if frame.eof else b""
            if part:
                parts.append(part)
            meter.add(len(part))
            # libzstd doesn't compare them where the last block is empty.
            if frame.eof and stated not in (-1, meter.used - before):
                raise _MalformedError(f"a zstd frame states {stated} bytes and has {meter.used - before}")
    if not frame.eof:
        raise _MalformedError("truncated zstd frame")
    return b"".join(parts)


CODECS: dict[str, Callable[[bytes, _Meter, _Shared], bytes]] = {
    **dict.fromkeys(("none", "0"), _none),
    **dict.fromkeys(("gzip", "1"), _gzip),
    **dict.fromkeys(("snappy", "2"), _snappy),
    **dict.fromkeys(("lz4", "3"), _lz4),
    **dict.fromkeys(("zstd", "4"), _zstd),
}
