"""What the rounds of `benchmarks.end_to_end` say: figures by load shape and size, and tables for the documents.

python -m benchmarks.comparison     writes the tables of benchmarks/README.md, and prints the range for README
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.figures import HERE
from benchmarks.shapes import SHAPES, SIZES, STOCK

PEERS = {
    "collector": "Collector",
    "collector_tuned": "tuned Collector",
    "rust": "Rust pipeline",
    "naive_spark": "plain Spark job",
}
LARGE = [size for size, points in SIZES.items() if points >= 2_000_000]
LARGEST = max(SIZES, key=SIZES.__getitem__)
PAGE = HERE / "README.md"
BEGIN, END = "<!-- python -m benchmarks.comparison -->", "<!-- end of the tables -->"


@dataclass(frozen=True)
class Round:
    """One side's run over the waiting pushes of a shape; `points` is what it read."""

    shape: str
    size: str
    side: str
    points: int
    cpu_s: float
    seconds: float
    peak_rss_bytes: int

    def __str__(self) -> str:
        return f"{self.size}, {self.side}: {self.points} points, {self.cpu_s:.2f} CPU-s, {self.seconds:.1f} s"


class Comparison:
    """The medians of each side's rounds."""

    def __init__(self, rounds: Iterable[Round]) -> None:
        self._rounds: dict[tuple[str, str], dict[str, list[Round]]] = {}
        for each in rounds:
            self._rounds.setdefault((each.shape, each.side), {}).setdefault(each.size, []).append(each)

    def sizes(self, shape: str, side: str) -> Sequence[str]:
        """Those at which a side was measured."""
        return list(self._rounds.get((shape, side), ()))

    def points_per_cpu_s(self, shape: str, size: str, side: str) -> float:
        return statistics.median(each.points / each.cpu_s for each in self._rounds[shape, side][size])

    def cpu_s(self, shape: str, size: str, side: str) -> float:
        return statistics.median(each.cpu_s for each in self._rounds[shape, side][size])

    def peak_rss_mb(self, shape: str, size: str, side: str) -> float:
        return max(each.peak_rss_bytes for each in self._rounds[shape, side][size]) / 2**20

    def ratio(self, shape: str, size: str, peer: str) -> float:
        """How many times the job's CPU the peer needs for a point."""
        return self.points_per_cpu_s(shape, size, "job") / self.points_per_cpu_s(shape, size, peer)

    def ratios(self, peer: str, sizes: Iterable[str]) -> list[float]:
        """Those of all shapes that were measured."""
        return [
            self.ratio(shape, size, peer)
            for shape, side in self._rounds
            if side == peer
            for size in sizes
            if size in self.sizes(shape, peer)
        ]

    def fixed_and_per_point(self, shape: str, side: str) -> tuple[float, float] | None:
        """CPU-seconds of a round and microseconds of a point: the least squares line through all its rounds."""
        rounds = [each for of_size in self._rounds.get((shape, side), {}).values() for each in of_size]
        if len({each.size for each in rounds}) < 2:
            return None
        slope, fixed = np.polyfit([each.points for each in rounds], [each.cpu_s for each in rounds], 1)
        return float(fixed), float(slope * 1e6)

    def is_whole(self) -> bool:
        """Whether the Collector was measured with every shape at every large size."""
        return all(set(LARGE) <= set(self.sizes(shape.name, "collector")) for shape in SHAPES)


def figures(rounds: Iterable[Round]) -> dict[str, float]:
    """By name. Those without a shape in their names are of the stock fleet at the largest size."""
    compared = Comparison(rounds)
    named: dict[str, float] = {}
    for shape in (each.name for each in SHAPES):
        for size in compared.sizes(shape, "job"):
            own = f"end_to_end_{shape}_{size}"
            named[f"{own}_points_per_cpu_s"] = compared.points_per_cpu_s(shape, size, "job")
            for peer in PEERS:
                if size in compared.sizes(shape, peer):
                    named[f"{own}_vs_{peer}"] = compared.ratio(shape, size, peer)
        for side, prefix in (("job", ""), *((peer, f"{peer}_") for peer in PEERS)):
            if fit := compared.fixed_and_per_point(shape, side):
                named[f"end_to_end_{shape}_{prefix}fixed_cpu_s"], named[f"end_to_end_{shape}_{prefix}us_per_point"] = (
                    fit
                )
    if LARGEST in compared.sizes(STOCK.name, "job"):
        named["end_to_end_points_per_cpu_s"] = compared.points_per_cpu_s(STOCK.name, LARGEST, "job")
        named["end_to_end_peak_rss_mb"] = compared.peak_rss_mb(STOCK.name, LARGEST, "job")
        for peer in PEERS:
            if LARGEST in compared.sizes(STOCK.name, peer):
                named[f"end_to_end_{peer}_points_per_cpu_s"] = compared.points_per_cpu_s(STOCK.name, LARGEST, peer)
                named[f"end_to_end_vs_{peer}"] = compared.ratio(STOCK.name, LARGEST, peer)
    if compared.is_whole():
        named["end_to_end_vs_collector_worst"] = min(compared.ratios("collector", LARGE))
    return named


def table(rounds: Iterable[Round]) -> Iterator[str]:
    """Lines of Markdown: CPU-seconds of each side by shape and size, then a round's fixed cost and a point's."""
    compared = Comparison(rounds)
    shapes = [shape.name for shape in SHAPES if compared.sizes(shape.name, "job")]
    peers = [peer for peer in PEERS if any(compared.sizes(shape, peer) for shape in shapes)]
    names = [PEERS[peer] for peer in peers]
    yield _row("CPU-s of a round", "the job", *names, *(f"{name} / job" for name in names))
    yield _row(*["---"] * (2 + 2 * len(peers)))
    for shape in shapes:
        for size in compared.sizes(shape, "job"):
            there = [peer if size in compared.sizes(shape, peer) else None for peer in peers]
            yield _row(
                f"{shape}, {size}",
                f"{compared.cpu_s(shape, size, 'job'):.1f}",
                *(f"{compared.cpu_s(shape, size, peer):.1f}" if peer else "" for peer in there),
                *(f"{compared.ratio(shape, size, peer):.2f}" if peer else "" for peer in there),
            )
    yield ""
    yield _row("CPU-s that don't depend on points, and us a point", "the job", *names)
    yield _row(*["---"] * (2 + len(peers)))
    for shape in shapes:
        fits = [compared.fixed_and_per_point(shape, side) for side in ("job", *peers)]
        yield _row(shape, *(f"{fit[0]:.1f} + {fit[1]:.2f}" if fit else "" for fit in fits))


def ranges(rounds: Iterable[Round]) -> Iterator[str]:
    """One line for each peer: how many times the job's CPU it needs, from the worst shape to the best."""
    compared = Comparison(rounds)
    for peer, name in PEERS.items():
        if ratios := compared.ratios(peer, LARGE):
            times = f"{min(ratios):.1f} to {max(ratios):.1f} times the job's CPU"
            yield f"{name}: {times} at {LARGE[0]} waiting points and more"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def page(text: str, rounds: Sequence[Round]) -> str:
    """Text of benchmarks/README.md with the tables of these rounds between its two marks."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    tables = "\n".join(["", *table(rounds), ""]) if rounds else "\n"
    return f"{before}{BEGIN}{tables}{END}{after}"


def stored_rounds() -> list[Round]:
    """Those of the last whole run."""
    stored = json.loads((HERE / "runs" / "end_to_end.json").read_text(encoding="utf-8"))
    return [Round(**each) for each in stored.get("rounds", [])]


def main() -> None:
    rounds = stored_rounds()
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), rounds), encoding="utf-8")
    print("\n".join(ranges(rounds)))


if __name__ == "__main__":
    main()
