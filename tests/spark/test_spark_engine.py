"""The Spark engine and the fast one give the same tables, however pushes come, and whatever ends a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafka_telemetry_lake.jobs.running import StreamFailedError
from kafka_telemetry_lake.pipelines.spark_engine import output
from kafka_telemetry_lake.pipelines.spark_engine.output import WRITTEN
from tests.conftest import Ingest
from tests.support.two_engines import Record, compare, land, made_up, rounds, stored

SPARK = ("--engine", "spark", "--shards", "3")
FAST = ("--shards", "3")


class CutOffError(Exception):
    """The job ends here."""


def run_both(ingest: Ingest, folder: Path, parts: list[list[Record]], ending: Callable[[int], None]) -> None:
    """Let both engines read each round; `ending` runs the Spark engine's after its number."""
    for number, part in enumerate(parts):
        land(folder / "source", number, part)
        ingest(folder / "source", folder / "fast", *FAST)
        ending(number)


def report(seed: int, rows: dict[str, int]) -> None:
    print(f"seed {seed}: {sum(rows.values()):,} rows of both engines are the same: {rows}")


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 5))])
def test_whole_tables_are_the_same(ingest: Ingest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Three rounds of pushes, shuffled and redelivered. The second one is cut off after some of its commits."""
    random = Random(seed)
    parts = rounds(random, made_up(random, int(os.environ.get("ENGINE_SCENARIOS", "12"))), 3)
    place, rows_of = random.randrange(len(WRITTEN)), output.rows_of

    def cut_off(batch: Any, table: Any, found: Any) -> Any:
        if WRITTEN.index(table) >= place:
            raise CutOffError("cut off here")
        return rows_of(batch, table, found)

    def spark_engine(number: int) -> None:
        if number == 1:
            with monkeypatch.context() as patch:
                patch.setattr(output, "rows_of", cut_off)
                with pytest.raises(StreamFailedError, match="cut off here"):
                    ingest(tmp_path / "source", tmp_path / "spark", *SPARK)
        ingest(tmp_path / "source", tmp_path / "spark", *SPARK)

    run_both(ingest, tmp_path, parts, spark_engine)
    compared = compare(stored(tmp_path / "fast"), stored(tmp_path / "spark"))
    report(seed, compared.rows)
    assert compared.differences == {}
    assert compared.rows["metric_points"] > 100
    assert min(compared.rows[name] for name in ("quarantine", "client_events", "receiver_health")) > 0
