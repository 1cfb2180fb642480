"""Decompress and decode the captured pushes, every codec and framing, next to upb's loop without decompression.

    python -m benchmarks.decompress     prints each figure and keeps it in benchmarks/results.json

CPU time of the whole process, the two in turn, median of the rounds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.corpora import captured
from benchmarks.decode import tuned_upb_loop
from benchmarks.figures import tell
from tests.landing_records import CAPTURED, captured_index
from udfs import otlp, otlp_kernel
from udfs.compression import decompress

ROUNDS = 7


def main() -> None:
    otlp_kernel.load()
    landed = pq.read_table(CAPTURED / "landed.parquet", columns=["value"])["value"].combine_chunks()
    codecs = pa.array([truth["compression_type"] for truth in captured_index()])
    points = sum(truth["points"] for truth in captured_index())
    plain = captured()
    plain_points = otlp.decode(plain).points.num_rows
    ours, decompression, upb = [], [], []
    for _ in range(ROUNDS):
        ours.append(points / _cpu_s(lambda: otlp.decode(decompress(landed, codecs).data)))
        decompression.append(points / _cpu_s(lambda: decompress(landed, codecs)))
        upb.append(plain_points / _cpu_s(lambda: tuned_upb_loop(plain)))
    figures = {
        "decompress_points_per_cpu_s": statistics.median(decompression),
        "decompress_decode_points_per_cpu_s": statistics.median(ours),
        "decompress_decode_vs_upb": statistics.median(a / b for a, b in zip(ours, upb, strict=True)),
    }
    tell(figures)


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


if __name__ == "__main__":
    main()
