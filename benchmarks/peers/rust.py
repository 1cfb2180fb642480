"""A pipeline in Rust, of crates that do this work: Kafka -> otlp2records -> Parquet files, a row per data point.

`otlp_to_parquet/` is the little code between rskafka and otlp2records. It does less than the job and the Collector: it
converts no cumulative points, remembers nothing, drops points without a finite value and doesn't compress its files.
"""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.peers import PeerError, PeerResult
from benchmarks.peers.build import BUILT, built
from benchmarks.peers.cpu import TreeCpu
from kafka_telemetry_lake.sandbox.cluster.process import Process

SOURCES = Path(__file__).parent / "otlp_to_parquet"
LIMIT_S = 300.0


def build_rust() -> Path:
    """The pipeline's program. Raises `PeerError`."""
    target = BUILT / SOURCES.name
    command = ["cargo", "build", "--quiet", "--release", "--locked", "--target-dir", str(target)]
    return built(SOURCES, ["Cargo.*", "src/*.rs"], command, target / "release" / "otlp-to-parquet")


def run_rust(bootstrap_servers: str, topic: str, points: int, folder: Path) -> PeerResult:
    """Run it until it has read the topic and exits. CPU time is of its whole life. Raises `PeerError`."""
    output, log = folder / "points", folder / "rust.log"
    output.mkdir(parents=True)
    before = time.monotonic()
    process = Process([build_rust(), bootstrap_servers, topic, output], log)
    try:
        with TreeCpu(process.pid) as tree:
            cpu_s = tree.cpu_s_at_end(LIMIT_S)
            seconds = time.monotonic() - before
    finally:
        process.stop()
    files = list(output.iterdir())
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    said = log.read_text(encoding="utf-8")
    read = rows + int(said.removeprefix("skipped: ")) if process.returncode == 0 else 0
    if read != points:
        raise PeerError(f"exit status {process.returncode}, {rows} rows of {points} points\n{said}")
    return PeerResult(
        name="rust",
        points=rows,
        points_read=read,
        cpu_s=cpu_s,
        startup_cpu_s=0.0,
        seconds=seconds,
        peak_rss_bytes=tree.peak_rss_bytes,
        output_bytes=sum(file.stat().st_size for file in files),
    )
