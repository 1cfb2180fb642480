"""A lake belongs to the engine that wrote it first."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from kafka_telemetry_lake.pipelines.ingest.streams import Lake
from kafka_telemetry_lake.pipelines.lake.engine import PROPERTY, check_engine, claim_engine, engine_of, require_fast
from kafka_telemetry_lake.pipelines.lake.errors import OtherEngineError, ShardCountError, StateMissingError
from kafka_telemetry_lake.pipelines.spark_engine.query import shards_of
from kafka_telemetry_lake.pipelines.spark_engine.tables import TablesByPath
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES


def store_a_push(lake: Path) -> DeltaTable:
    rows = PUSHES.stored.empty_table().to_pylist() or [{"client_id": "orders"}]
    write_deltalake(PUSHES.uri(str(lake)), PUSHES.stored.empty_table().from_pylist(rows, PUSHES.stored), mode="append")
    return DeltaTable(lake / "pushes")


def test_an_empty_lake_takes_either_engine_and_keeps_it(tmp_path: Path) -> None:
    lake = str(tmp_path)
    check_engine(lake, "spark")  # there is none yet
    pushes = PUSHES.create(lake)
    assert engine_of(pushes) == "fast"
    claim_engine(lake, "fast", pushes)
    claim_engine(lake, "spark", pushes)
    again = DeltaTable(tmp_path / "pushes")
    assert (engine_of(again), again.metadata().configuration[PROPERTY]) == ("spark", "spark")
    check_engine(lake, "spark")
    with pytest.raises(OtherEngineError, match=r"is a lake of the Spark engine, which .* --engine spark, or write"):
        claim_engine(lake, "fast", again)
    with pytest.raises(OtherEngineError, match="`replay` can't change the state in Spark's checkpoint"):
        require_fast(lake, "replay")


def test_a_lake_with_pushes_of_the_fast_engine_is_not_the_spark_engines(tmp_path: Path) -> None:
    PUSHES.create(str(tmp_path))
    pushes = store_a_push(tmp_path)
    require_fast(str(tmp_path), "replay")
    refusal = r"is a lake of the fast engine, which .* --engine fast"
    with pytest.raises(OtherEngineError, match=refusal):
        check_engine(str(tmp_path), "spark")
    with pytest.raises(OtherEngineError, match=refusal):
        claim_engine(str(tmp_path), "spark", pushes)
    assert engine_of(DeltaTable(tmp_path / "pushes")) == "fast"


def test_the_number_of_shards_is_that_of_the_first_run(tmp_path: Path) -> None:
    PUSHES.create(str(tmp_path))
    lake, tables = Lake(str(tmp_path), str(tmp_path / "checkpoints")), TablesByPath(str(tmp_path))
    assert shards_of(lake, tables, None, 3) == 3
    assert shards_of(lake, tables, None, 8) == 3
    assert shards_of(lake, tables, 3, 8) == 3
    with pytest.raises(ShardCountError, match="in 3 shards, not 4, and the Spark engine can't change that"):
        shards_of(lake, tables, 4, 8)


def test_a_lake_without_its_state_is_refused(tmp_path: Path) -> None:
    PUSHES.create(str(tmp_path))
    store_a_push(tmp_path)
    lake, tables = Lake(str(tmp_path), str(tmp_path / "other")), TablesByPath(str(tmp_path))
    with pytest.raises(StateMissingError, match=r"the Spark engine's state of them is not below .*/other: name"):
        shards_of(lake, tables, None, 2)
    assert not (tmp_path / "other").exists()
