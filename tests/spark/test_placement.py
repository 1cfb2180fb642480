"""Spark is asked to run a shard where it ran last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from kafka_telemetry_lake.pipelines.ingest.placement import Placement


def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([batch["id"].cast(pa.int32())], ["shard"])


def partitions(shards: DataFrame) -> list[list[int]]:
    rows = shards.selectExpr("id", "spark_partition_id() AS part").collect()
    return [[row["id"] for row in rows if row["part"] == part] for part in sorted({row["part"] for row in rows})]


def preferred(spark: SparkSession, shards: DataFrame) -> list[list[str]]:
    """The machines that Spark's scheduler prefers for each task over these shards."""
    work: Any = shards.mapInArrow(task, "shard int")._jdf.queryExecution().toRdd()
    context: Any = spark.sparkContext._jsc.sc()
    places = [context.getPreferredLocs(work, each) for each in range(work.getNumPartitions())]
    return [[each.apply(number).host() for number in range(each.size())] for each in places]


@pytest.fixture
def placement(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Placement:
    """As in a session on a cluster."""
    monkeypatch.setattr(spark.sparkContext, "master", "spark://of-many:7077")
    return Placement(spark)


@pytest.mark.parametrize("hosts", [{}, {0: "a"}])
def test_a_task_has_the_shards_of_one_remainder(
    spark: SparkSession, placement: Placement, hosts: dict[int, str]
) -> None:
    """So have the pushes of a landing partition, and a task reads fewer files."""
    placement._hosts = hosts
    assert partitions(placement.shards(8, 3)) == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert partitions(placement.shards(3, 3)) == [[0], [1], [2]]
    assert partitions(placement.shards(3, 1)) == [[0, 1, 2]]


@pytest.mark.parametrize(("shards", "tasks"), [(10, 3), (3, 3), (7, 1)])
def test_the_next_batch_prefers_the_machines_of_the_last(
    spark: SparkSession, placement: Placement, shards: int, tasks: int
) -> None:
    first = placement.shards(shards, tasks)
    rows = placement.collect(first.mapInArrow(task, "shard int"), are_apart=True)
    hosts = {row["host"] for row in rows}
    assert sorted(row["shard"] for row in rows) == list(range(shards))
    jvm: Any = spark._jvm
    assert hosts == {jvm.org.apache.spark.util.Utils.localHostName()}
    assert preferred(spark, first) == [[]] * tasks
    again = placement.shards(shards, tasks)
    assert partitions(again) == partitions(first)
    assert preferred(spark, again) == [[hosts.pop()]] * tasks


def test_each_task_prefers_the_machine_of_its_own_shards(spark: SparkSession, placement: Placement) -> None:
    placement._hosts = {0: "a", 1: "b", 2: "a", 3: "b"}
    assert preferred(spark, placement.shards(4, 2)) == [["a"], ["b"]]
    assert preferred(spark, placement.shards(4, 4)) == [["a"], ["b"], ["a"], ["b"]]
    assert preferred(spark, placement.shards(8, 8))[4:] == [[]] * 4, "nobody has had the others"


def test_a_batch_of_a_single_task_gathers_nothing(spark: SparkSession, placement: Placement) -> None:
    placement.collect(placement.shards(4, 1).mapInArrow(task, "shard int"), are_apart=False)
    assert preferred(spark, placement.shards(4, 2)) == [[], []]


def test_one_machine_prefers_nothing(spark: SparkSession) -> None:
    placement = Placement(spark)
    (row, *_) = placement.collect(placement.shards(4, 2).mapInArrow(task, "shard int"), are_apart=True)
    assert row.asDict() == {"shard": 0}
    assert preferred(spark, placement.shards(4, 2)) == [[], []]
