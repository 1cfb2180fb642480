"""Whatever the compressed bytes are: a payload or a reason, in bounded memory and linear time."""

from __future__ import annotations

import gzip
from functools import partial
from random import Random
from typing import Any

import lz4.frame
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_telemetry_lake.udfs.conversion.compression import decompress
from kafka_telemetry_lake.udfs.conversion.shard import process_parts
from kafka_telemetry_lake.udfs.conversion.state import ShardState
from kafka_telemetry_lake.udfs.limits import BUDGET, DEFAULT_LIMITS
from kafka_telemetry_lake.udfs.rows import PUSHES_IN
from tests.support.hostile_batches import EMPTY, SKIPPABLE, XERIAL_HEADER, framed
from tests.support.hostile_cost import in_child, measured
from tests.support.hostile_genomes import CODECS
from tests.support.otlp_builder import push
from tests.unit.otlp.otlp_mutations import damaged

MOST = 16 << 20
# The payload, its copy in an Arrow column, zstd's largest window, and what the allocators round up.
MOST_MEMORY = 2 * MOST + (32 << 20) + (24 << 20)
MOST_S = 1.0  # of CPU, for 16 MiB; what isn't linear takes minutes


def one(payload: bytes, codec: str) -> tuple[bytes | None, str | None]:
    found = decompress(pa.array([payload], pa.binary()), pa.array([codec], pa.string()))
    return found.data[0].as_py(), found.reason[0].as_py()


def reason_of(payload: bytes, codec: str) -> str | None:
    return one(payload, codec)[1]


def framing(codec: str, **changes: Any) -> dict[str, Any]:
    return {"codec": codec, "frames": 1, "empties": 0, "skippable": 0, "tail": ""} | changes


PIECES = st.one_of(
    st.binary(max_size=200), st.builds(lambda unit, n: unit * n, st.binary(max_size=4), st.integers(0, 9999))
)


@settings(max_examples=300, deadline=None)
@given(PIECES, st.sampled_from(CODECS), st.integers(1, 9), st.integers(0, 3))
def test_any_framing_of_any_payload_comes_back(raw: bytes, codec: str, frames: int, empties: int) -> None:
    assert one(framed(raw, framing(codec, frames=frames, empties=empties)), codec) == (raw, None)


@pytest.mark.parametrize("number", [3000, pytest.param(30_000, marks=pytest.mark.slow)])
def test_damaged_frames_are_a_payload_or_a_reason(number: int) -> None:
    """In a child: a library that crashes, or takes what a header states, would be seen."""

    def all_of_them() -> list[Any]:
        random, worst, reasons = Random(1), [0, 0.0, 0], set()
        raws = [random.randbytes(50), b"abc" * 3000, bytes(200_000), b""]
        packed = [
            (codec, framed(raw, framing(codec, frames=frames, empties=empties, skippable=empties)))
            for codec in CODECS
            for raw in raws
            for frames, empties in ((1, 0), (3, 0), (1, 2))
        ]
        for _ in range(number):
            codec, data = random.choice(packed)
            data = damaged(data, random.choice(packed)[1], random)
            (raw, reason), cpu_s, memory = measured(partial(one, data, codec))
            worst = [max(worst[0], memory), max(worst[1], cpu_s), max(worst[2], len(raw or b""))]
            reasons.add(reason)
            assert (raw is None) == (reason is not None)
        return [*worst, sorted(map(str, reasons))]

    result, failure = in_child(all_of_them)
    assert failure == ""
    memory, cpu_s, largest, reasons = result
    assert memory <= MOST_MEMORY
    assert cpu_s <= MOST_S
    assert largest <= MOST
    assert reasons == ["INVALID_RECORD", "None", "TELEMETRY_TOO_LARGE"]


def lies(size: int) -> dict[str, tuple[str, bytes]]:
    """Frames whose headers state so many bytes; there is almost nothing behind them."""
    block = b"".join(bytes([size >> shift & 127 | 128]) for shift in (0, 7, 14, 21)) + bytes([size >> 28])
    zstd = zstandard.FRAME_HEADER + bytes([0b11100000]) + size.to_bytes(8, "little") + b"\1\0\0"
    return {
        "snappy": ("snappy", block + b"\0a"),
        "snappy stream": ("snappy", XERIAL_HEADER + (len(block) + 2).to_bytes(4, "big") + block + b"\0a"),
        "snappy stream of one large block": ("snappy", XERIAL_HEADER + size.to_bytes(4, "big") + b"a"),
        "zstd": ("zstd", zstd),
        "lz4": ("lz4", lz4.frame.compress(b"a", content_size=size) if size == 1 else _lz4_of(size)),
    }


def _lz4_of(size: int) -> bytes:
    frame = bytearray(lz4.frame.compress(b"a" * 9, store_size=True))
    frame[6:14] = size.to_bytes(8, "little")
    return bytes(frame)


@pytest.mark.parametrize("size", [MOST, MOST + 1, 1 << 31, (1 << 32) - 1])
@pytest.mark.parametrize("name", list(lies(9)))
def test_a_stated_size_is_not_allocated(name: str, size: int) -> None:
    codec, data = lies(size)[name]
    result, failure = in_child(lambda: [measured(lambda: one(data, codec)[1]) for _ in range(2)][1])
    assert failure == ""
    reason, _, memory = result
    assert reason in {"INVALID_RECORD", "TELEMETRY_TOO_LARGE"}
    assert memory <= MOST_MEMORY


def xerial_block(raw: bytes) -> bytes:
    block: bytes = snappy.compress(raw)
    return len(block).to_bytes(4, "big") + block


BOMBS = {
    "gzip": ("gzip", gzip.compress(bytes(64 << 20), 9, mtime=0)),
    "gzip members": ("gzip", gzip.compress(bytes(1 << 20), 9, mtime=0) * 500),
    "snappy": ("snappy", snappy.compress(bytes(17 << 20))),
    "snappy blocks": (
        "snappy",
        XERIAL_HEADER + xerial_block(bytes(1 << 18)) * 80,
    ),
    "lz4": ("lz4", lz4.frame.compress(bytes(64 << 20))),
    "lz4 frames": ("lz4", lz4.frame.compress(bytes(1 << 20)) * 200),
    "zstd": ("zstd", zstandard.compress(bytes(64 << 20))),
    "zstd of unstated size": ("zstd", zstandard.ZstdCompressor(write_content_size=False).compress(bytes(64 << 20))),
    "zstd frames": ("zstd", zstandard.compress(bytes(1 << 20)) * 900),
}


@pytest.mark.parametrize("name", list(BOMBS))
def test_a_bomb_takes_no_more_than_the_largest_payload(name: str) -> None:
    codec, data = BOMBS[name]
    result, failure = in_child(lambda: measured(lambda: one(data, codec)))
    assert failure == ""
    found, cpu_s, memory = result
    assert found == [None, "TELEMETRY_TOO_LARGE"]
    assert cpu_s <= MOST_S
    assert memory <= MOST_MEMORY


@pytest.mark.parametrize("name", list(BOMBS))
def test_a_rejected_bomb_counts_toward_the_budget_of_a_part(name: str) -> None:
    codec, data = BOMBS[name]
    bombs = pa.array([data] * 40, pa.binary()), pa.array([codec] * 40)
    stated = name in ("snappy", "zstd")  # refused by its header: nothing is decompressed
    assert len(decompress(*bombs, budget_bytes=4 * MOST).data) == (40 if stated else 4)


def test_a_rejected_payload_counts_by_what_it_was_decompressed_to() -> None:
    truncated = zstandard.ZstdCompressor(write_content_size=False).compress(Random(1).randbytes(1000) * 400)[:-3]
    broken = pa.array([truncated] * 9, pa.binary()), pa.array(["zstd"] * 9)
    assert len(decompress(*broken, budget_bytes=500_000).data) == 2  # two blocks of 128 KiB each
    assert len(decompress(*broken, budget_bytes=1).data) == 1


ALIKE = 60  # nearly 1 GiB decompressed


@pytest.mark.parametrize("accepted", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_slice_of_bombs_takes_the_memory_of_a_part(accepted: bool) -> None:
    """600 bytes each; a part ends after two or three. Accepted: an unknown field of 16 MiB, which no decoder reads."""
    raw = b"\x7a" + b"\xf0\xff\xff\x07" + bytes(MOST - 16) if accepted else bytes(MOST + 1)
    data = zstandard.ZstdCompressor(write_content_size=False).compress(raw)
    rows = [each | {"payload": data, "compression_type": "zstd"} for each in map(push, range(ALIKE))]
    pushes = pa.Table.from_pylist(rows, PUSHES_IN)

    def outcomes() -> list[list[Any]]:
        parts = process_parts(pushes, ShardState.empty(), DEFAULT_LIMITS)
        return [pc.unique(part.push_outcomes["outcome"]).to_pylist() for part, *_ in parts]

    list(process_parts(PUSHES_IN.empty_table(), ShardState.empty()))  # compiles the kernels, which isn't measured
    result, failure = in_child(lambda: measured(outcomes))
    assert failure == ""
    parts, cpu_s, memory = result
    of_a_part = -(-BUDGET.bytes // len(raw))
    assert parts == [["heartbeat" if accepted else "quarantined"]] * (ALIKE // of_a_part)
    assert cpu_s <= ALIKE * MOST_S / 10
    assert memory <= 10 * BUDGET.bytes


@pytest.mark.parametrize(
    ("codec", "empty"), [*EMPTY.items(), ("lz4", SKIPPABLE), ("zstd", SKIPPABLE), ("snappy", b"\0\0\0\1\0")]
)
def test_frames_of_nothing_take_linear_time(codec: str, empty: bytes) -> None:
    """A mebibyte of them, and with a byte at the end that no frame begins with."""
    start = XERIAL_HEADER if codec == "snappy" else b""
    for tail in (b"", b"\xff"):
        data = start + empty * ((1 << 20) // len(empty)) + tail
        result, failure = in_child(partial(measured, partial(reason_of, data, codec)))
        assert failure == ""
        reason, cpu_s, memory = result
        assert reason in {None, "INVALID_RECORD"}
        assert cpu_s <= MOST_S
        assert memory <= MOST_MEMORY
