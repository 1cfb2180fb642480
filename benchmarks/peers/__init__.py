"""Alternatives to the job: the OpenTelemetry Collector, a Rust pipeline, and a plain Spark job.

Each reads the landing topic from its beginning until it has read a known number of points, and writes to a folder.
"""

from __future__ import annotations

from dataclasses import dataclass


class PeerError(RuntimeError):
    """A peer could not be built, exited, made no progress, or read a wrong number of points."""


@dataclass(frozen=True)
class PeerResult:
    """One run of a peer over a topic.

    `points` is counted in its output; `points_read` is larger if a peer drops points by its own rules. CPU-seconds and
    peak memory are those of the whole process tree; shared pages count in each process. `startup_cpu_s` is included in
    the `cpu_s` of the Collector and the Rust pipeline (it is some hundredths of a second), but not in Spark's.
    """

    name: str
    points: int
    points_read: int
    cpu_s: float
    startup_cpu_s: float
    seconds: float
    peak_rss_bytes: int
    output_bytes: int
