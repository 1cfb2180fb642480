"""The code of both engines, without Spark, gives the same tables from the same pushes."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from kafka_telemetry_lake.pipelines.spark_engine import shard_processor
from kafka_telemetry_lake.udfs.conversion import payloads
from tests.support import poison
from tests.support.landing_records import captured, record
from tests.support.local_spark_engine import LocalSparkEngine
from tests.support.local_stream import LocalStream
from tests.support.two_engines import Record, compare, made_up, rounds, stored

pytestmark = pytest.mark.lake

SLOW, SOAK = [pytest.mark.slow], [pytest.mark.slow, pytest.mark.soak]
SEEDS = [1, *(pytest.param(seed, marks=SLOW if seed < 5 else SOAK) for seed in range(2, 23))]
SCENARIOS = int(os.environ.get("ENGINE_SCENARIOS", "20"))


def pushes(seed: int) -> list[list[Record]]:
    """Four rounds; statuses and quota samples are left out: Spark makes rows of them."""
    random = Random(seed)
    records = [each for each in made_up(random, SCENARIOS) if each["topic"] == "client-telemetry"]
    return rounds(random, records, 4)


@pytest.mark.parametrize("seed", SEEDS)
def test_whole_tables_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Cut, shuffled and redelivered; the Spark engine's third batch is cut off, and runs again."""
    monkeypatch.setattr(shard_processor, "ROWS_PER_BLOB", 50)
    fast, spark = LocalStream(tmp_path), LocalSparkEngine()
    for number, part in enumerate(pushes(seed)):
        fast.batch(part)
        if number == 2:
            spark.batch(part, counts=False)
        spark.batch(part)
    compared = compare(stored(fast.lake), spark.rows())
    print(f"seed {seed}: {sum(compared.rows.values()):,} rows are the same: {compared.rows}")
    assert compared.differences == {}
    assert min(compared.rows[name] for name in ("metric_points", "quarantine", "push_outcomes")) > 50


@pytest.mark.slow
def test_captured_pushes_give_the_same_tables(tmp_path: Path) -> None:
    random = Random(7)
    fast, spark = LocalStream(tmp_path), LocalSparkEngine()
    for part in rounds(random, captured().to_pylist(), 4):
        fast.batch(part)
        spark.batch(part)
    compared = compare(stored(fast.lake), spark.rows())
    print(f"captured: {sum(compared.rows.values()):,} rows are the same: {compared.rows}")
    assert compared.differences == {}
    assert compared.rows["metric_points"] == 157_260


@pytest.mark.slow
def test_a_push_that_fails_is_set_aside_by_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "decode", poison.decode)
    part = [*pushes(1)[0], record(5000, poison.payload("value_error"), compression_type="none")]
    fast, spark = LocalStream(tmp_path), LocalSparkEngine()
    fast.batch(part)
    spark.batch(part)
    assert compare(stored(fast.lake), spark.rows()).differences == {}
    reasons = spark.rows()["quarantine"]["reason"].to_pylist()
    assert (reasons.count("PROCESSING_FAILED"), spark.counts["set_aside"]) == (1, 1)
    assert spark.set_aside == fast.set_aside


def test_a_batch_that_ended_the_run_before_is_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that dies leaves no error: Spark's next attempt, or the next run, tries each push in a child."""
    monkeypatch.setattr(payloads, "decode", poison.decode)
    monkeypatch.setattr(shard_processor, "_batch", lambda: 0)
    spark = LocalSparkEngine()
    spark.batch([*pushes(1)[0][:20], record(5000, poison.payload("exit"), compression_type="none")], guarded=True)
    assert spark.counts["set_aside"] == 1
