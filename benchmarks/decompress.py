"""Decompression and decoding of the captured pushes, in every codec and framing, compared with upb's loop alone.

    python -m benchmarks.decompress     prints each figure and stores it in benchmarks/results.json

CPU time is that of the whole process. The sides alternate; a figure is the median of the rounds. upb's loop reads
payloads that are already decompressed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.corpora import captured
from benchmarks.decode import tuned_upb_loop
from benchmarks.figures import print_figures
from kafka_telemetry_lake.udfs.conversion.compression import decompress
from kafka_telemetry_lake.udfs.otlp import decode as otlp
from kafka_telemetry_lake.udfs.otlp import kernel as otlp_kernel
from tests.support.landing_records import CAPTURED, captured_index

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
    print_figures(figures)


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


if __name__ == "__main__":
    main()
