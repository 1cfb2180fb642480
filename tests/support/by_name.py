"""Lakes of tables by name in a session's own catalog, and one beside a lake by path, of the same pushes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.support.running import StreamFailedError
from kafka_telemetry_lake.pipelines.spark_engine import lifecycle, output
from kafka_telemetry_lake.pipelines.spark_engine.output import WRITTEN
from kafka_telemetry_lake.pipelines.tables.names import Names
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS
from tests.support.spark_run import ingest_by_name
from tests.support.two_engines import land, made_up, rounds

SHARDS = ("--shards", "3")


@contextmanager
def schema(spark: SparkSession, name: str, folder: Path) -> Iterator[Names]:
    """A schema whose tables are below a folder, so that a test can also read them by path."""
    names = Names("spark_catalog", name)
    spark.sql(f"CREATE SCHEMA {names.quoted} LOCATION '{folder}'")
    yield names
    spark.catalog.setCurrentDatabase("default")
    spark.sql(f"DROP SCHEMA {names.quoted} CASCADE")


class Both(NamedTuple):
    """A lake by path and one of tables by name, of the same pushes."""

    names: Names
    path: Path
    managed: Path
    source: Path
    checkpoints: Path


@contextmanager
def written_twice(spark: SparkSession, ingest: Callable[..., None], seed: int, folder: Path) -> Iterator[Both]:
    """Three rounds of made-up pushes. By name the second is cut off after some of its commits; each run starts anew."""
    random = Random(seed)
    parts = rounds(random, made_up(random, int(os.environ.get("ENGINE_SCENARIOS", "8"))), 3)
    place, rows_of = WRITTEN.index(METRIC_POINTS) if seed == 2 else random.randrange(len(WRITTEN)), output.rows_of

    def cut_off(batch: Any, table: Any, found: Any) -> Any:
        if WRITTEN.index(table) >= place:
            raise RuntimeError("cut off here")
        return rows_of(batch, table, found)

    with schema(spark, "by_name_too", folder / "managed") as names:
        both = Both(names, folder / "path", folder / "managed", folder / "source", folder / "checkpoints")
        for number, part in enumerate(parts):
            land(both.source, number, part)
            ingest(both.source, both.path, *SHARDS)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(lifecycle, "LEAST_CHANGES", 10)  # so that the clients' rows are merged
                if number == 1:
                    patch.setattr(output, "rows_of", cut_off)
                    with pytest.raises(StreamFailedError, match="cut off here"):
                        ingest_by_name(spark, both.source, names, both.checkpoints, *SHARDS)
                    patch.setattr(output, "rows_of", rows_of)
                ingest_by_name(spark, both.source, names, both.checkpoints, *SHARDS)
        yield both
