"""Decoding speed in data points per CPU-second, compared with its peers in the same run.

Peers are Go's pdata Unmarshal (`go_pdata`, the OpenTelemetry Collector's decoder; needs `go`), which decodes to Go
structs, and a tuned Python loop over upb's messages. Ours decodes to plain columns: text, maps and lists of every row.
CPU time is that of the whole process. A figure is the median of all passes.

    python -m benchmarks.decode     prints each figure and stores it in benchmarks/results.json
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from benchmarks import corpora
from benchmarks.figures import store_figures
from kafka_telemetry_lake.udfs.otlp import decode as otlp
from kafka_telemetry_lake.udfs.otlp import kernel as otlp_kernel
from kafka_telemetry_lake.udfs.otlp.decoded import Decoded

HERE = Path(__file__).parent
ROUNDS, PASSES = 5, 5


def main() -> None:
    """Measure every corpus, and print and store the figures."""
    figures: dict[str, float] = {}
    captured = corpora.captured()
    otlp_kernel.load()  # the figures must not be the fallback's
    with tempfile.TemporaryDirectory() as directory:
        go = _build_go(Path(directory))
        for key, corpus in (
            ("decode_vs_go", captured),
            ("decode_vs_go_distinct", corpora.distinct()),
            ("decode_vs_go_histogram", corpora.histograms()),
            ("decode_vs_go_exponential_histogram", corpora.exponential_histograms()),
        ):
            ours, theirs = _against_go(go, corpus, Path(directory))
            print(f"{key}: {ours / theirs:.2f} ({ours / 1e6:.2f} against {theirs / 1e6:.2f} M points/CPU-s)")
            figures[key] = ours / theirs
            if corpus is captured:
                figures["decode_points_per_cpu_s"] = ours
                upb = _rate(lambda: tuned_upb_loop(captured), ROUNDS)
                figures["decode_vs_upb"] = ours / upb
                print(f"decode_vs_upb: {ours / upb:.1f} (against {upb / 1e6:.2f} M points/CPU-s)")
    odd = len(otlp_kernel.decode(captured).odd)
    figures["decode_fallback_share"] = odd / len(captured)
    print(f"decode_fallback_share: {odd / len(captured):.4f} ({odd} of {len(captured)} payloads went to upb)")
    figures["decode_peak_memory"] = peak_memory()
    print(f"decode_peak_memory: {figures['decode_peak_memory']:.2f} x the decoded batch")
    figures["decode_warm_start_cpu_s"] = warm_start()
    print(f"decode_warm_start_cpu_s: {figures['decode_warm_start_cpu_s']:.2f}")
    store_figures(figures)


def plain_columns(decoded: Decoded) -> pa.Table:
    """The decoded rows with text, maps and lists in place of indices."""
    points = decoded.points
    columns = {
        name: column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
        for name, column in zip(points.column_names, points.columns, strict=True)
    }
    columns["attributes"] = decoded.attribute_sets.take(points["attributes"])
    distribution = columns.pop("distribution")
    rows = decoded.distributions
    if 0 < rows.num_rows < len(distribution):
        rows = rows.take(pc.if_else(pc.less(distribution, 0), None, distribution))
    if rows.num_rows:
        columns |= dict(zip(rows.column_names, rows.columns, strict=True))
    return pa.table(columns)


def tuned_upb_loop(payloads: pa.LargeBinaryArray) -> int:
    """Decode gauges and sums as a careful Python user would: upb's parser, columns as lists, each text decoded once."""
    metric_names, values, starts, times, attributes = [], [], [], [], []
    kinds, monotonic, owners = [], [], []
    known: dict[tuple[tuple[str, str], ...], int] = {}
    for index, payload in enumerate(payloads.to_pylist()):
        for resource_metrics in MetricsData.FromString(payload).resource_metrics:
            for scope_metrics in resource_metrics.scope_metrics:
                for metric in scope_metrics.metrics:
                    kind = metric.WhichOneof("data")
                    assert kind is not None  # valid metrics only
                    data = getattr(metric, kind)
                    name = metric.name
                    is_monotonic = kind == "sum" and data.is_monotonic
                    for point in data.data_points:
                        pairs = tuple([(pair.key, pair.value.string_value) for pair in point.attributes])
                        metric_names.append(name)
                        attributes.append(known.setdefault(pairs, len(known)))
                        value = point.WhichOneof("value")
                        values.append(point.as_double if value == "as_double" else point.as_int)
                        starts.append(point.start_time_unix_nano)
                        times.append(point.time_unix_nano)
                        kinds.append(kind)
                        monotonic.append(is_monotonic)
                        owners.append(index)
    pa.table(
        {
            "payload": pa.array(owners, pa.int32()),
            "metric": pa.array(metric_names, pa.string()),
            "attributes": pa.array(attributes, pa.int32()),
            "value": pa.array(map(float, values), pa.float64()),
            "start_ns": pa.array(starts, pa.uint64()),
            "time_ns": pa.array(times, pa.uint64()),
            "kind": pa.array(kinds, pa.string()),
            "is_monotonic": pa.array(monotonic, pa.bool_()),
        }
    )
    return len(values)


def _build_go(directory: Path) -> Path:
    program = directory / "go_pdata"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=HERE / "go_pdata", check=True)
    return program


def _against_go(go: Path, payloads: pa.LargeBinaryArray, directory: Path) -> tuple[float, float]:
    """Data points per CPU-second of our decoder and of Go's, measured in turns."""
    file = directory / "payloads"
    file.write_bytes(b"".join(struct.pack("<I", len(payload)) + payload for payload in payloads.to_pylist()))
    points = otlp.decode(payloads).points.num_rows
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(ROUNDS):
        ours.append(_rate(lambda: plain_columns(otlp.decode(payloads)).num_rows, PASSES))
        environment = {**os.environ, "GOMAXPROCS": "1"}
        output = subprocess.run(
            [str(go), str(file), str(PASSES)], env=environment, check=True, stdout=subprocess.PIPE
        ).stdout
        measured = json.loads(output)
        if measured["points"] != points:
            raise ValueError(f"pdata counts {measured['points']} points, the kernel {points}")
        theirs.append(points / statistics.median(measured["seconds"]))
    return statistics.median(ours), statistics.median(theirs)


def _rate(decode: Callable[[], int], passes: int) -> float:
    decode()
    rates = []
    for _ in range(passes):
        before = time.process_time()
        points = decode()
        rates.append(points / (time.process_time() - before))
    return statistics.median(rates)


def peak_memory() -> float:
    """Growth of resident memory to its peak while decoding 1.1 M captured points, per byte of decoded columns."""
    return float(_in_new_process("measure_peak_memory")["output"])


def measure_peak_memory() -> None:
    """Runs in the new process of `peak_memory`."""
    otlp.decode(corpora.captured())
    print(measured_memory(pa.concat_arrays([corpora.captured()] * 7))[1])


def measured_memory(payloads: pa.LargeBinaryArray) -> tuple[Decoded, float]:
    """Decode, and measure the growth of resident memory to its peak, per byte of decoded columns; Linux only."""
    pa.default_memory_pool().release_unused()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak
    before = _status("VmRSS")
    decoded = otlp.decode(payloads)
    parts = (decoded.payloads, decoded.points, decoded.distributions, decoded.attribute_sets)
    return decoded, (_status("VmHWM") - before) / sum(part.nbytes for part in parts)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


def warm_start() -> float:
    """CPU-seconds until a new process, with the kernels in the cache, has decoded its first payload."""
    otlp.decode(pa.array([b""], pa.binary()))
    return float(statistics.median(_in_new_process("decode_nothing")["cpu_s"] for _ in range(3)))


def decode_nothing() -> None:
    """Runs in the new process of `warm_start`."""
    otlp.decode(pa.array([b""], pa.binary()))


def _in_new_process(function: str) -> dict[str, Any]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = subprocess.run(
        [sys.executable, "-c", f"from benchmarks import decode; decode.{function}()"],
        cwd=HERE.parent,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"output": output, "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


if __name__ == "__main__":
    main()
