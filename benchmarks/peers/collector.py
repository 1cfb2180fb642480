"""The OpenTelemetry Collector: Kafka -> cumulativetodelta -> batch -> file of protobuf messages.

`collector/` is what the Collector's builder generates from its builder.yaml. One setting is needed for right deltas:
the header with the client instance id becomes a resource attribute, else clients with equal labels are one series.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import shutil
import signal
import struct
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

import yaml
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from benchmarks.peers import PeerError, PeerResult
from benchmarks.peers.cpu import TreeCpu
from jobs.local_cluster.ports import ReservedPorts
from jobs.local_cluster.process import Process

SOURCES = Path(__file__).parent / "otelcol"
BUILT = Path(__file__).parent.parent / ".build"
POLL_S = 0.5
STANDSTILL_S = 60.0
_ACCEPTED = re.compile(r"^otelcol_receiver_accepted_metric_points\S* (\S+)$", re.MULTILINE)


def build_collector() -> Path:
    """The Collector's program, built once for each state of its sources; Go fetches the modules. Raises `PeerError`."""
    digest = hashlib.sha256()
    for source in sorted([*SOURCES.glob("*.go"), *SOURCES.glob("go.*")]):
        digest.update(source.read_bytes())
    program = BUILT / f"otelcol-{digest.hexdigest()[:12]}"
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise PeerError("no `go` on the PATH: the Collector is built from source, install Go 1.25 or newer")
    BUILT.mkdir(exist_ok=True)
    unfinished = program.with_name(f"{program.name}.{os.getpid()}")
    try:
        subprocess.run(
            ["go", "build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", str(unfinished), "."],
            cwd=SOURCES,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise PeerError(f"the Collector could not be built: {error}") from None
    return unfinished.rename(program)


def run_collector(bootstrap_servers: str, topic: str, points: int, folder: Path) -> PeerResult:
    """Let it read the topic until its receiver has accepted `points`, then end it; one core (GOMAXPROCS=1).

    CPU time and seconds are of the whole process from its start to its end. By its default (`initial_value: auto`) the
    first point of a running cumulative series is dropped, so its output has fewer points. Raises `PeerError`.
    """
    program = build_collector()
    folder.mkdir(parents=True, exist_ok=True)
    output, log, settings = folder / "metrics.binpb", folder / "collector.log", folder / "collector.yaml"
    ports = ReservedPorts(1)
    port = ports.numbers[0]
    settings.write_text(yaml.safe_dump(_configuration(bootstrap_servers, topic, output, port)), encoding="utf-8")
    before = time.monotonic()
    process = Process(["env", "GOMAXPROCS=1", program, "--config", settings], log)
    try:
        with TreeCpu(process.pid) as tree:
            startup_cpu_s, accepted = _follow(process, tree, port, points)
            process.signal(signal.SIGTERM)  # it writes what its batch processor holds and ends
            _wait_for_end(process.pid)
            seconds = time.monotonic() - before
            cpu_s = tree.cpu_s()
    except PeerError as error:
        raise PeerError(f"{error}\n{_tail(log)}") from None
    finally:
        process.stop()
        ports.release()
    if process.returncode != 0 or accepted != points:
        raise PeerError(f"exit status {process.returncode}, {accepted} of {points} points read\n{_tail(log)}")
    return PeerResult(
        name="collector",
        points=points_in(output),
        points_read=accepted,
        cpu_s=cpu_s,
        startup_cpu_s=startup_cpu_s,
        seconds=seconds,
        peak_rss_bytes=tree.peak_rss_bytes,
        output_bytes=output.stat().st_size,
    )


def points_in(file: Path) -> int:
    """Data points in a file of the exporter: MetricsData messages, 4 bytes of length before each, big-endian."""
    points = 0
    with file.open("rb") as messages:
        while prefix := messages.read(4):
            (length,) = struct.unpack(">I", prefix)
            message = messages.read(length)
            if len(message) != length:
                raise PeerError(f"{file} ends inside a message")
            for resource_metrics in MetricsData.FromString(message).resource_metrics:
                for scope_metrics in resource_metrics.scope_metrics:
                    for metric in scope_metrics.metrics:
                        kind = metric.WhichOneof("data")
                        points += len(getattr(metric, kind).data_points) if kind else 0
    return points


def _follow(process: Process, tree: TreeCpu, port: int, points: int) -> tuple[float, int]:
    """Waits for `points`; gives the CPU-seconds until the Collector first answered, and the points accepted."""
    startup_cpu_s: float | None = None
    accepted, changed = 0, time.monotonic()
    while accepted < points:
        time.sleep(POLL_S if startup_cpu_s is not None else 0.02)
        if not process.running:
            raise PeerError(f"the Collector ended after {accepted} of {points} points")
        told = _accepted(port)
        if told is not None and startup_cpu_s is None:
            startup_cpu_s = tree.cpu_s()
        if told is not None and told > accepted:
            accepted, changed = told, time.monotonic()
        elif time.monotonic() - changed > STANDSTILL_S:
            raise PeerError(f"the Collector stands still at {accepted} of {points} points")
    return startup_cpu_s or 0.0, accepted


def _wait_for_end(pid: int) -> None:
    """Leaves the ended process unreaped, so that its CPU time can still be read."""
    deadline = time.monotonic() + STANDSTILL_S
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() > deadline:
            raise PeerError(f"the Collector still runs {STANDSTILL_S:.0f} s after SIGTERM")
        time.sleep(0.02)


def _accepted(port: int) -> int | None:
    """Points that the receiver accepted, by the Collector's own metrics; None while it doesn't answer yet."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    except OSError:
        return None
    finally:
        connection.close()
    return sum(int(float(value)) for value in _ACCEPTED.findall(text))


def _configuration(bootstrap_servers: str, topic: str, output: Path, port: int) -> dict[str, Any]:
    prometheus = {"host": "127.0.0.1", "port": port}
    return {
        "receivers": {
            "kafka": {
                "brokers": bootstrap_servers.split(","),
                "group_id": f"collector-{uuid.uuid4()}",
                "initial_offset": "earliest",
                "metrics": {"topics": [topic], "encoding": "otlp_proto"},
                "header_extraction": {"extract_headers": True, "headers": ["client_instance_id"]},
            }
        },
        "processors": {"cumulativetodelta": {}, "batch": {}},
        "exporters": {"file": {"path": str(output), "format": "proto"}},
        "service": {
            "pipelines": {
                "metrics": {
                    "receivers": ["kafka"],
                    "processors": ["cumulativetodelta", "batch"],
                    "exporters": ["file"],
                }
            },
            "telemetry": {"metrics": {"readers": [{"pull": {"exporter": {"prometheus": prometheus}}}]}},
        },
    }


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
