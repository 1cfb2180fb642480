"""A genetic search for the costliest push: ``python -m benchmarks.push_search --minutes 20``, stored in soak.json.

Each genome of a hostile push (`tests.support.hostile_genomes`) is measured in its own process
(`tests.support.hostile_cost`). The costliest by each of `OBJECTIVES` are mutated and combined. `--seed` is that of the
random numbers; the choice of parents depends on measured times, so two runs differ in detail. Genomes that make a batch
fail are collected separately.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.support.hostile_cost import FLOOR_BYTES, Cost, cost, expected_good
from tests.support.hostile_genomes import Genome, mutated, random_genome
from tests.support.hostile_seeds import SEEDS

RESULTS = Path(__file__).parent / "soak.json"
BEST = 6  # genomes of each objective that may be parents
MOST_US_PER_BYTE, MOST_MEMORY_PER_BYTE = 60.0, 64.0
OBJECTIVES: dict[str, Callable[[Cost], float]] = {
    "us_per_byte": lambda it: it.us_per_byte,
    "memory_per_byte": lambda it: it.memory_per_byte,
    "us_per_landed_byte": lambda it: it.us_per_landed_byte,
    "memory_per_landed_byte": lambda it: it.memory_per_landed_byte,
    "stored_per_landed_byte": lambda it: it.stored_per_landed_byte,
    "retained_mb": lambda it: it.retained_beyond_series / 1e6,
    "cpu_s": lambda it: it.cpu_s,
    "peak_mb": lambda it: max(0, it.peak_bytes - FLOOR_BYTES) / 1e6,
}


@dataclass(frozen=True)
class Measured:
    """A genome and its cost."""

    name: str
    genome: Genome
    cost: Cost


@dataclass
class Search:
    """The costliest genomes so far, by objective, and all that failed."""

    seed: int = 1
    tried: int = 0
    best: dict[str, list[Measured]] = field(default_factory=lambda: {name: [] for name in OBJECTIVES})
    failed: list[Measured] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = Random(self.seed)
        self._good = expected_good()

    def run(self, seconds: float) -> Iterator[Measured]:
        """Measure all seeds, however long they take, then new genomes until the time is over; yields each."""
        until = time.monotonic() + seconds
        seeds = list(SEEDS.items())
        while seeds or time.monotonic() < until:
            name, genome = seeds.pop(0) if seeds else self._next()
            measured = Measured(name, genome, cost(genome, self._good))
            self._add(measured)
            yield measured

    def worst(self) -> dict[str, float]:
        """The largest value of each objective."""
        return {name: round(OBJECTIVES[name](best[0].cost), 3) if best else 0.0 for name, best in self.best.items()}

    def problems(self) -> list[str]:
        """A line for each failure and for each cost above `LIMITS`."""
        problems = [f"{each.cost.failure}: {json.dumps(each.genome)}" for each in self.failed]
        for name, most in LIMITS.items():
            problems += [
                f"{name} {OBJECTIVES[name](each.cost):.1f}, more than {most}: {json.dumps(each.genome)}"
                for each in self.best[name]
                if OBJECTIVES[name](each.cost) > most
            ]
        return problems

    def _next(self) -> tuple[str, Genome]:
        chance = self._chance
        if chance.random() < 0.15:
            return f"random {self.tried}", random_genome(chance)
        parents = self.best[chance.choice(list(OBJECTIVES))] or [Measured("", random_genome(chance), Cost())]
        parent, other = chance.choice(parents), chance.choice(self.best[chance.choice(list(OBJECTIVES))] or parents)
        return f"{parent.name.partition(' + ')[0]} + {self.tried}", mutated(parent.genome, other.genome, chance)

    def _add(self, measured: Measured) -> None:
        self.tried += 1
        if measured.cost.failure:
            self.failed.append(measured)
            return
        for name, objective in OBJECTIVES.items():
            best = [*self.best[name], measured]
            best.sort(key=lambda each: -objective(each.cost))
            self.best[name] = _diverse(best)


LIMITS = {"us_per_byte": MOST_US_PER_BYTE, "memory_per_byte": MOST_MEMORY_PER_BYTE, "retained_mb": 0.0}


def _diverse(ranked: list[Measured]) -> list[Measured]:
    """The first `BEST`, with at most two of each family (descendants of one seed)."""
    families: dict[str, int] = {}
    result = []
    for each in ranked:
        family = each.name.partition(" + ")[0]
        families[family] = families.get(family, 0) + 1
        if families[family] <= 2:
            result.append(each)
    return result[:BEST]


def _flat(search: Search, seconds: float) -> dict[str, Any]:
    return {
        "minutes": round(seconds / 60, 1),
        "seed": search.seed,
        "pushes": search.tried,
        "failures": len(search.failed),
        "problems": len(search.problems()),
        **search.worst(),
    }


def search_row(minutes: float, seed: int, genomes: Path | None = None) -> dict[str, Any]:
    """Search, and return the row of soak.json. Prints each new worst genome, and at the end the problems.

    Args:
        minutes: how long to search.
        seed: of the random numbers.
        genomes: a file for the worst and the failed genomes, as JSON.
    """
    began, search, worst = time.monotonic(), Search(seed), dict[str, float]()
    for measured in search.run(minutes * 60):
        raised = {name: value for name, value in search.worst().items() if value > 1.2 * worst.get(name, 0.0)}
        worst |= raised
        if raised or measured.cost.failure:
            problem = measured.cost.failure or raised
            print(f"{search.tried} {measured.name}: {problem} {_shown(measured.cost)}", flush=True)
    if genomes:
        genomes.write_text(json.dumps(_genomes(search), indent=1) + "\n", encoding="utf-8")
    for problem in search.problems():
        print(f"search: {problem}", file=sys.stderr)
    return _flat(search, time.monotonic() - began)


def _shown(cost_of: Cost) -> str:
    return (
        f"[{cost_of.raw_bytes} bytes, {cost_of.wire_bytes} landed, {cost_of.cpu_s} s, {cost_of.peak_bytes >> 20} MiB, "
        f"{cost_of.retained_bytes >> 20} MiB retained, {cost_of.stored_bytes} stored]"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--genomes", type=Path, help="write the worst and the failed genomes to this file, as JSON")
    parser.add_argument("--replay", type=Path, help="only measure the genomes of this file")
    args = parser.parse_args()
    if args.replay:
        return replay(args.replay)
    row = search_row(args.minutes, args.seed, args.genomes)
    results = json.loads(RESULTS.read_text(encoding="utf-8")) | {"search": row}
    RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(row, indent=2))
    return int(bool(row["problems"]))


def replay(file: Path) -> int:
    """Measure the genomes of a file and print their present costs."""
    good, failed = expected_good(), 0
    for each in json.loads(file.read_text(encoding="utf-8")):
        now = cost(each["genome"], good)
        failed += bool(now.failure)
        values = {name: round(objective(now), 3) for name, objective in OBJECTIVES.items()}
        print(f"{each['name']}: {now.failure or values} {_shown(now)}", flush=True)
    return int(bool(failed))


def _genomes(search: Search) -> list[Mapping[str, Any]]:
    chosen = {id(each): each for best in search.best.values() for each in best[:3]} | {
        id(each): each for each in search.failed
    }
    return [{"name": each.name, "genome": each.genome, "cost": vars(each.cost)} for each in chosen.values()]


if __name__ == "__main__":
    sys.exit(main())
