"""The number of shards of Spark's state is that of the lake's first run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_telemetry_lake.pipelines.ingest.streams import JobLake
from kafka_telemetry_lake.pipelines.lake.errors import ShardCountError, StateMissingError
from kafka_telemetry_lake.pipelines.spark_engine.query import shards_of


def tables(*, has_pushes: bool) -> Any:
    return SimpleNamespace(lake="main.telemetry", has_pushes=lambda: has_pushes)


def test_the_number_of_shards_is_that_of_the_first_run(tmp_path: Path) -> None:
    lake = JobLake("main.telemetry", str(tmp_path / "checkpoints"))
    assert shards_of(lake, tables(has_pushes=False), None, 3) == 3
    assert shards_of(lake, tables(has_pushes=True), None, 8) == 3
    assert shards_of(lake, tables(has_pushes=True), 3, 8) == 3
    with pytest.raises(ShardCountError, match="in 3 shards, not 4, and the Spark engine can't change that"):
        shards_of(lake, tables(has_pushes=True), 4, 8)


def test_a_lake_without_its_state_is_refused(tmp_path: Path) -> None:
    lake = JobLake("main.telemetry", str(tmp_path / "other"))
    with pytest.raises(StateMissingError, match=r"the Spark engine's state of them is not below .*/other: name"):
        shards_of(lake, tables(has_pushes=True), None, 2)
    assert not (tmp_path / "other").exists()
