"""Runs the lifecycle's work on shards of clients in tasks of Spark."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Row, SparkSession

from kafka_telemetry_lake.pipelines.ingest.placement import Placement
from kafka_telemetry_lake.pipelines.lifecycle.shard_task import TASK_RESULT, ShardsTask
from kafka_telemetry_lake.pipelines.runtime.job_names import named


class SparkTasks:
    """Runs a task for each shard, where the shard's clients are in files already; Spark's page shows which step it is.

    A task that a lost machine ran is run elsewhere, from the rows of table `client_changes`.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._placement = spark, Placement(spark)

    def __call__(self, task: ShardsTask) -> Sequence[Row]:
        tasks = min(task.shards, self._spark.sparkContext.defaultParallelism)
        with named(self._spark, f"lifecycle: step {task.step}"):
            results = self._placement.shards(task.shards, tasks).mapInArrow(task, TASK_RESULT)
            return self._placement.collect(results, are_apart=True)
