"""Load shapes of `benchmarks.end_to_end`: which pushes wait in the topic when a round starts.

Each is derived from the captured pushes of real clients, and the histograms from `benchmarks.corpora`. A shape's fleet
pushes on from round to round, so the job's state of a client is as old as the shape.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from benchmarks.fleet import COMPRESS, INSTANCES, Fleet, Template, captured_templates, histogram_templates

INTERVAL_S = 300
SIZES = {"500k": 500_000, "2m": 2_000_000, "5m": 5_000_000}  # waiting points


@dataclass(frozen=True)
class Shape:
    """A fleet and what it pushes.

    Attributes:
        name: part of the names of its figures.
        meaning: one line for readers of the output.
        clients: of the fleet; None is as many as it pushes in the whole run, so that each pushes once.
        cumulative: share of clients that send totals, not deltas.
        codecs: of the payloads. The peers get the same pushes decompressed, as they read no others.
        instances: of an application; the fewer, the more different captured clients a small fleet has.
        number: by which the clients of two shapes differ.
    """

    name: str
    meaning: str
    number: int
    clients: int | None
    cumulative: float = 0.2
    codecs: Sequence[str] = ("none",)
    instances: int = INSTANCES
    templates: Callable[[], Sequence[Template]] = captured_templates

    @cached_property
    def points_per_push(self) -> float:
        templates = self.templates()
        return sum(template.points for template in templates) / len(templates)

    def pushes(self, points: int) -> int:
        """Pushes that have about this many points."""
        return round(points / self.points_per_push)

    def fleets(self, pushes: int) -> tuple[Fleet, Fleet]:
        """The fleet as the job gets it, and as the peers get it: `pushes` of them end about now."""
        clients = self.clients or pushes
        first_ms = time.time_ns() // 1_000_000 - pushes * INTERVAL_S * 1000 // clients
        job, peers = (
            Fleet(
                clients,
                first_ms,
                INTERVAL_S,
                self.cumulative,
                codecs=codecs,
                templates=self.templates(),
                instances=self.instances,
                first_client=self.number * 10_000_000,
            )
            for codecs in (self.codecs, ("none",))
        )
        return job, peers


STOCK = Shape("stock", "200,000 clients, 20 % of them cumulative, the rest DELTA", 0, 200_000)
SHAPES = (
    STOCK,
    Shape("cumulative", "400 cumulative clients, a backlog of hours", 1, 400, cumulative=1, instances=2),
    Shape(
        "codecs",
        "10,000 clients that compress with zstd, lz4, gzip, snappy or not at all; the peers get the same pushes "
        "decompressed, as they read no others",
        2,
        10_000,
        codecs=tuple(COMPRESS),
        instances=50,
    ),
    Shape("once", "each client pushes once", 3, None),
    Shape(
        "histograms",
        "2,000 cumulative clients with histograms of 16 buckets and exponential histograms of 40",
        4,
        2_000,
        cumulative=1,
        instances=50,
        templates=histogram_templates,
    ),
)
