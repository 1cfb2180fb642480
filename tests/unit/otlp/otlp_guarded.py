"""Mutated payloads through both decoders: same verdicts, same rows, and no read outside.

Each payload lies between pages that nobody may touch: a read one byte too far ends the process.

    python -m tests.unit.otlp.otlp_guarded <count> <seed>
"""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.otlp import decode as otlp_decode
from kafka_telemetry_lake.udfs.otlp import kernel as otlp_kernel
from kafka_telemetry_lake.udfs.otlp import reference as otlp_reference
from tests.unit.otlp.otlp_comparison import assert_same
from tests.unit.otlp.otlp_mutations import mutated_payloads

PAGE = mmap.PAGESIZE
PROT_NONE = 0
BATCH = 5_000
libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def guarded(payloads: list[bytes], at_end: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Data, starts and ends; each payload touches a forbidden page with its end, or else with its start."""
    pages = [len(payload) // PAGE + 1 for payload in payloads]
    memory = mmap.mmap(-1, (sum(pages) + len(pages) + 1) * PAGE)
    data = np.frombuffer(memory, np.uint8)
    starts = np.empty(len(payloads), np.int64)
    forbidden = [0]
    for index, payload in enumerate(payloads):
        first = forbidden[-1] + PAGE
        forbidden.append(first + pages[index] * PAGE)
        starts[index] = forbidden[-1] - len(payload) if at_end else first
        data[starts[index] : starts[index] + len(payload)] = np.frombuffer(payload, np.uint8)
    for page in forbidden:
        if libc.mprotect(data.ctypes.data + page, PAGE, PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
    ends = starts + np.array([len(payload) for payload in payloads])
    for array in (data, starts, ends):
        array.flags.writeable = False
    return data, starts, ends


def main(count: int, seed: int) -> None:
    """Check so many payloads in batches of 5,000."""
    otlp_kernel.load()
    rejected = left_to_reference = 0
    for first in range(0, count, BATCH):
        payloads = mutated_payloads(min(BATCH, count - first), seed * 1_000_000 + first)
        array = pa.array(payloads, pa.large_binary())
        expected = otlp_reference.decode(array)
        for at_end in (True, False):
            result = otlp_kernel.decode_slices(*guarded(payloads, at_end))
            odd = otlp_reference.decode(array.take(pa.array(result.odd)))
            assert_same(otlp_decode.merged(result.decoded, odd, result.odd), expected)
        rejected += len(array) - expected.payloads["error"].null_count
        left_to_reference += len(result.odd)
    print(f"{count} payloads, {rejected} rejected, {left_to_reference} left to the reference decoder")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
