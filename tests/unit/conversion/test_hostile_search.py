"""No push costs a task more than the bars, be it one that was found before or one that the search comes up with now."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks.push_search import MOST_MEMORY_PER_BYTE, MOST_US_PER_BYTE, Search
from tests.support.hostile_cost import Cost, cost, expected_good
from tests.support.hostile_genomes import MARKER, ROOT, payload, places, random_genome
from tests.support.hostile_seeds import PLAIN, POINT, SEEDS, gauge, genome, of_metrics
from tests.support.lane_costs import fixed_work_ms, slowness_of

KNOWN = json.loads((Path(__file__).parents[2] / "data" / "hostile_pushes.json").read_text(encoding="utf-8"))
SEARCH_S = 60


@pytest.fixture(scope="module")
def good() -> list[str]:
    return expected_good()


@pytest.mark.slow
@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known["name"])
def test_known_hostile_pushes_stay_cheap(known: dict[str, Any], good: list[str]) -> None:
    before = fixed_work_ms()
    found = cost(known["genome"], good)
    # The same instructions take more CPU seconds on a slower machine, as a piece of fixed work tells.
    slowness = slowness_of([before, fixed_work_ms()])
    assert found.failure == ""
    assert found.cpu_s <= known["most_s"] * slowness
    assert found.peak_bytes / 1e6 <= known["most_mb"]
    assert found.us_per_byte <= MOST_US_PER_BYTE
    assert found.memory_per_byte <= MOST_MEMORY_PER_BYTE
    assert found.retained_beyond_series == 0


@pytest.mark.slow
@pytest.mark.soak
def test_a_minute_of_search_finds_nothing_worse() -> None:
    search = Search(seed=1)
    for _ in search.run(SEARCH_S):
        pass
    assert search.problems() == []
    assert search.tried >= len(SEEDS)


def test_a_cost_is_what_the_push_did(good: list[str]) -> None:
    found = cost(genome(*of_metrics(gauge({**POINT, "n": 30})), codec="none"), good)
    assert found.failure == ""
    assert found.parts["metric_points"] == 30 + 80  # the good pushes have 80
    assert found.parts["push_outcomes"] == 21
    assert found.wire_bytes == found.raw_bytes == 30 * 20 + 4 * 3 + 10 + len("ostile")  # four levels, a name


def test_what_breaks_the_operator_is_a_result(good: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise MemoryError("no more")

    monkeypatch.setattr("tests.support.hostile_cost.run_task", fails)
    assert cost(PLAIN, good).failure.startswith("MemoryError: no more at test_hostile_search.py:")
    monkeypatch.setattr("tests.support.hostile_cost.run_task", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    assert cost(PLAIN, good).failure == "killed by SIGKILL"


def test_other_rows_of_the_good_clients_are_a_failure(good: list[str]) -> None:
    assert cost(PLAIN, good[1:]).failure == "the good clients' rows are others"


def test_costs_beyond_the_bars_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.push_search.expected_good", list)
    costs = iter([Cost(raw_bytes=1000, cpu_s=0.31 + 0.001), Cost(raw_bytes=1000, cpu_s=0.31), Cost(failure="killed")])
    monkeypatch.setattr("benchmarks.push_search.cost", lambda *_: next(costs))
    search = Search(seed=1)
    for _ in zip(range(3), search.run(60), strict=False):
        pass
    assert [text.partition(":")[0] for text in search.problems()] == ["killed", "us_per_byte 61.0, more than 60.0"]


def test_numbered_texts_differ() -> None:
    tree = of_metrics(*[gauge(POINT, style="number")] * 3)
    data = payload(genome(*tree), 5)
    assert MARKER not in data
    assert [number in data for number in (b"0000004", b"0000005", b"0000006", b"0000007", b"0000008")] == [
        False, True, True, True, False
    ]  # fmt: skip


def test_chance_reaches_the_whole_schema() -> None:
    """Every field of every message below MetricsData, but those deeper than values of values."""
    reached: set[str] = set()
    for seed in range(1500):
        for nodes, index, message in places(random_genome(Random(seed))["tree"]):
            field = message.fields_by_number.get(nodes[index].get("f", 0)) if message is not None else None
            if field is not None:
                reached.add(field.full_name)
    wanted, waiting = set(), [ROOT]
    while waiting:
        for field in waiting.pop().fields:
            if field.full_name not in wanted:
                wanted.add(field.full_name)
                waiting += [field.message_type] if field.message_type is not None else []
    assert wanted - reached == set()


def test_costs_are_beyond_the_floors() -> None:
    empty = Cost(raw_bytes=100, wire_bytes=10, cpu_s=0.2, peak_bytes=60 << 20, retained_bytes=10 << 20, series=8)
    assert (empty.us_per_byte, empty.memory_per_landed_byte, empty.retained_beyond_series) == (0, 0, 0)
    large = Cost(raw_bytes=100, wire_bytes=10, cpu_s=0.25 + 1e-3, peak_bytes=(128 << 20) + 6400)
    assert round(large.us_per_byte, 6) == 10
    assert large.memory_per_landed_byte == 640
