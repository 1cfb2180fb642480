"""What a user would run in place of the job: the OpenTelemetry Collector, and a Spark job without tricks.

Each reads the landing topic from its beginning, until it has read a known number of points, and writes to a folder.
"""

from __future__ import annotations

from dataclasses import dataclass


class PeerError(RuntimeError):
    """A peer could not be built, ended, stood still or read another number of points than the topic has."""


@dataclass(frozen=True)
class PeerResult:
    """One run of a peer over a topic.

    `points` is counted in its output; `points_read` is more where a peer drops points by its own rules. CPU-seconds
    and peak memory are of the whole process tree; pages that processes share count once for each. `startup_cpu_s` is
    part of the Collector's `cpu_s` (it is some hundredths of a second) and not of Spark's.
    """

    name: str
    points: int
    points_read: int
    cpu_s: float
    startup_cpu_s: float
    seconds: float
    peak_rss_bytes: int
    output_bytes: int
