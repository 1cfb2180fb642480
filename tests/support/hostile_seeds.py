"""Genomes that the search starts from: what was once found to be hostile, and plain pushes of each kind."""

from __future__ import annotations

from typing import Any

from tests.support.hostile_genomes import FILL, Genome, Node
from tests.support.otlp_builder import T0_NS

PLAIN: Genome = {
    "tree": [], "bytes": 16 << 20, "codec": "zstd", "frames": 1, "empties": 0, "skippable": 0, "tail": "", "copies": 1,
    "clients": 1, "distinct": True, "interval": 1000, "terminating": False, "header": 0,
}  # fmt: skip
START: Node = {"f": 2, "w": 1, "v": T0_NS}
TIME: Node = {"f": 3, "w": 1, "v": T0_NS + 50 * 10**9}
ONE: Node = {"f": 6, "w": 1, "v": 1}  # as_int
CUMULATIVE: Node = {"f": 2, "w": 0, "v": 2}
MONOTONIC: Node = {"f": 3, "w": 0, "v": 1}
EMPTY_GROUP: Node = {"f": 15, "g": []}


def text(field: int, size: int, style: str = "x", **options: Any) -> Node:
    return {"f": field, "t": [size, style], **options}


def inside(field: int, *nodes: Node, **options: Any) -> Node:
    return {"f": field, "c": list(nodes), **options}


def pair(key: int, value: int, *, field: int = 7, style: str = "number", **options: Any) -> Node:
    """A KeyValue of two texts of these sizes."""
    return inside(field, text(1, key), inside(2, text(1, value, style)), **options)


def of_metrics(*metrics: Node, resource: tuple[Node, ...] = ()) -> list[Node]:
    return [inside(1, *([inside(1, *resource)] if resource else []), inside(2, *metrics))]


def genome(*tree: Node, **options: Any) -> Genome:
    return PLAIN | {"tree": list(tree)} | options


def gauge(*points: Node, name: int = 8, style: str = "x", **options: Any) -> Node:
    return inside(2, text(1, name, style), inside(5, *points), **options)


def counter(*points: Node, name: int = 8, style: str = "x", **options: Any) -> Node:
    return inside(2, text(1, name, style), inside(7, *points, CUMULATIVE, MONOTONIC), **options)


POINT = inside(1, TIME, ONE)
BUCKETS = inside(1, TIME, {"f": 4, "w": 1, "v": 0}, text(6, 16 << 20, "zeros"), text(7, 16 << 20, "zeros"))
EXPONENTIAL = inside(
    1, TIME, {"f": 4, "w": 1, "v": 0}, inside(8, text(2, 16 << 20, "zeros")), inside(9, text(2, 8 << 20, "zeros"))
)
HISTOGRAM_1024 = inside(1, TIME, START, text(6, 8 * 1024, "zeros"), text(7, 8 * 1023, "zeros"), n=512)
SEEDS: dict[str, Genome] = {
    # A name is repeated for each rejected point.
    "60,000 bytes of name, 100,000 empty points": genome(
        *of_metrics(gauge(inside(1, n=100_000), name=60_000)), bytes=1 << 20
    ),
    "16,000 bytes of name, 100,000 points, twice": genome(
        *of_metrics(gauge({**POINT, "n": 100_000}, name=16_000), gauge({**POINT, "n": 100_000}, name=16_001)), copies=2
    ),
    "empty KeyValues": genome(*of_metrics(gauge(inside(1, TIME, ONE, inside(7, n=FILL))))),
    "empty KeyValues of a resource": genome(*of_metrics(gauge(POINT), resource=(inside(1, n=FILL),))),
    "a group, then points": genome(EMPTY_GROUP, *of_metrics(gauge(inside(1, n=FILL)))),
    "a group, then points with values": genome(EMPTY_GROUP, *of_metrics(gauge({**POINT, "n": FILL}))),
    "buckets": genome(*of_metrics(inside(2, text(1, 8), inside(9, BUCKETS, CUMULATIVE)))),
    "exponential buckets": genome(*of_metrics(inside(2, text(1, 8), inside(10, EXPONENTIAL, CUMULATIVE)))),
    "quantiles": genome(*of_metrics(inside(2, text(1, 8), inside(11, inside(1, TIME, inside(6, n=FILL)))))),
    "empty gzip members": genome(*of_metrics(gauge(POINT)), codec="gzip", empties=50_000),
    "empty lz4 frames": genome(*of_metrics(gauge(POINT)), codec="lz4", empties=60_000),
    "empty zstd frames": genome(*of_metrics(gauge(POINT)), codec="zstd", empties=60_000),
    "empty snappy blocks": genome(*of_metrics(gauge(POINT)), codec="snappy", empties=150_000),
    "made-up names": genome(*of_metrics(counter(POINT, style="number", n=FILL)), copies=4, clients=20),
    "made-up attributes": genome(*of_metrics(counter(inside(1, TIME, START, ONE, pair(3, 8), n=FILL)))),
    "long attributes": genome(*of_metrics(gauge(inside(1, TIME, ONE, pair(3, 16_000), n=FILL)))),
    "points at the cap": genome(*of_metrics(counter({**POINT, "n": 100_000})), copies=20, clients=20),
    "empty points": genome(*of_metrics(gauge(inside(1, n=FILL)))),
    "empty metrics": genome(*of_metrics(inside(2, n=FILL))),
    "empty scopes": genome(inside(1, inside(2, n=FILL))),
    "scopes with names": genome(
        inside(1, inside(2, inside(1, text(1, 8, "number")), gauge(POINT, style="number"), n=FILL))
    ),
    "resources with labels": genome(inside(1, inside(1, pair(8, 8, field=1)), inside(2, gauge(POINT)), n=FILL)),
    "labels": genome(*of_metrics(gauge(POINT), resource=(pair(7, 0, field=1, n=1500),))),
    "exemplars": genome(*of_metrics(gauge(inside(1, TIME, ONE, inside(5, n=FILL))))),
    "nested arrays": genome(
        *of_metrics(gauge(inside(1, TIME, ONE, inside(7, inside(2, {"f": 5, "c": [], "deep": 48}), n=FILL))))
    ),
    "summaries": genome(
        *of_metrics(inside(2, text(1, 8, "number"), inside(11, inside(1, TIME, inside(6), n=8)), n=FILL))
    ),
    "histograms": genome(
        *of_metrics(
            inside(2, text(1, 8), inside(9, inside(1, TIME, text(6, 8, "zeros"), pair(3, 8), n=FILL), CUMULATIVE))
        )
    ),
    # At the bounds, and two bounds at a time.
    "five attributes for each of 100,000 points": genome(
        *of_metrics(counter(inside(1, TIME, START, ONE, pair(1, 7, n=5), n=100_000)))
    ),
    "128 attributes for each of 4,000 points": genome(
        *of_metrics(gauge(inside(1, TIME, ONE, pair(7, 7, n=128), n=4000)))
    ),
    "16 KB of distinct attributes for each point": genome(
        *of_metrics(gauge(inside(1, TIME, ONE, pair(7, 100, n=120), n=FILL)))
    ),
    "1,024 buckets for each of 512 points": genome(
        *of_metrics(inside(2, text(1, 8), inside(9, HISTOGRAM_1024, CUMULATIVE)))
    ),
    "1,024 exponential buckets": genome(
        *of_metrics(
            inside(2, text(1, 8), inside(10, inside(1, TIME, inside(8, text(2, 1024, "zeros")), n=FILL), CUMULATIVE))
        )
    ),
    "names of 16,000 bytes for 4,000 points": genome(
        *of_metrics(counter({**POINT, "n": 4000}, name=16_000, style="number"))
    ),
    "names of 1,000 bytes for 60,000 metrics": genome(
        *of_metrics(counter(inside(1), name=200, style="number", n=60_000))
    ),
    "a group, then 30,000 fields": genome(EMPTY_GROUP, *of_metrics(gauge(inside(1, TIME, ONE, pair(3, 7), n=30_000)))),
    "a group, then JSON": genome(
        *of_metrics(
            gauge(inside(1, TIME, ONE, inside(7, inside(2, {"f": 5, "c": [text(1, 7, "control", n=60)]})), n=FILL))
        )
    ),
    "all at once": genome(
        *of_metrics(
            counter(inside(1, TIME, START, ONE, pair(7, 100, n=4), n=20_000), name=1000, style="number"),
            inside(2, text(1, 900, "number"), inside(9, {**HISTOGRAM_1024, "n": 200}, CUMULATIVE)),
            inside(2, text(1, 900, "number"), inside(11, inside(1, TIME, inside(6, n=100), n=1000))),
            gauge(inside(1, n=60_000), name=16_000),
        ),
        copies=4,
        clients=20,
        header=100_000,
    ),
}
