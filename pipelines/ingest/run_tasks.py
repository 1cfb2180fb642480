"""Runs the tasks of a batch in Spark so that a push that kills its Python worker doesn't stop the job."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as pads
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from kafka_telemetry_lake.pipelines.ingest.operator_task import TASK_RESULT, ShardTask
from kafka_telemetry_lake.pipelines.ingest.poison_pushes import PushesFailedError, name_of
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.runtime.job_names import named
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES

log = logging.getLogger(__name__)

# Texts in Spark's errors when a task's process died, as opposed to raising an error.
DEATHS = ("Python worker exited unexpectedly", "ExecutorLostFailure")


# Columns of `pushes` that name a push; a file lacks one whose values are all NULL.
NAMED = pa.schema([PUSHES.schema.field(name) for name in ("client_instance_id", "topic", "partition", "offset")])


class ProcessedBatch(NamedTuple):
    """What a task has made of its pushes: rows of `TASK_RESULT`, one for each shard. It began at a monotonic time."""

    task: ShardTask
    rows: Sequence[Row]
    began: float


def run_tasks(
    spark: SparkSession, task: ShardTask, workers: int | None = None, placement: Placement | None = None
) -> list[Row]:
    """Run the task for each shard; returns rows of `TASK_RESULT`.

    Args:
        placement: where the shards were processed last; None: tasks run anywhere.
        workers: number of Python workers to use, at most; None: as many as the session has cores.

    Spark's own attempts after the first are guarded. If Spark makes only one attempt (``local[2]``), or all attempts
    died, the tasks run again, guarded from the start.

    Raises:
        PushesFailedError: a guarded task died too.
    """
    placement = placement or Placement(spark)
    cores = spark.sparkContext.defaultParallelism
    tasks = tasks_for(task.shards, cores, workers)
    are_apart = tasks == tasks_for(task.shards, cores)
    while True:
        how = ", each tried first" if task.guarded else ""
        try:
            with named(
                spark, f"points: batch {task.batch_id}: judge {len(task.paths)} files, {task.shards} shards{how}"
            ):
                results = placement.shards(task.shards, tasks).mapInArrow(task, TASK_RESULT)
                return placement.collect(results, are_apart=are_apart)
        except (Py4JJavaError, PySparkException) as error:
            if not is_death(error):
                raise
            if task.guarded:
                raise PushesFailedError(
                    f"{pushes_of(task)}: a task's process died although its pushes were tried first"
                ) from error
        log.warning("points: a task's process died, isolating the push that caused it: %s", pushes_of(task))
        task = replace(task, guarded=True)


def log_set_aside(batch: str, rows: Sequence[Row | dict[str, Any]]) -> None:
    """Log a line for each push that was set aside, up to `MOST_LINES` per task."""
    for row in rows:
        for line in row["set_aside"]:
            log.warning("%s: set aside in quarantine (PROCESSING_FAILED): %s", batch, line)


def pushes_of(task: ShardTask) -> str:
    """The name of a batch's first push, and how many more there are."""
    filesystem, root = filesystem_of(PUSHES.uri(task.lake))
    paths = [f"{root}/{path}" for path in task.paths]
    keys = pads.dataset(paths, schema=NAMED, filesystem=filesystem, format="parquet").to_table()
    return name_of(keys.sort_by([("partition", "ascending"), ("offset", "ascending")]))


def tasks_for(shards: int, cores: int, workers: int | None = None) -> int:
    """How many tasks judge the shards. Each writes files: there are no more of them than can run at once.

    A task has the shards of one remainder, and so have the landing partitions, which are files: by a divisor of the
    shards, a file is read by fewer tasks.

    Args:
        workers: what the batch is worth, by `store_task.workers_for`; None: a worker for each core.
    """
    most = min(shards, cores)
    if workers is None or workers >= most:
        return most
    divisor = max(number for number in range(1, workers + 1) if shards % number == 0)
    return divisor if 2 * divisor > workers else workers


def is_death(error: Exception) -> bool:
    """Whether a task failed because its process died."""
    return any(text in str(error) for text in DEATHS)


# The name by which Spark's scheduler knows an executor's machine.
_HOST = "java_method('org.apache.spark.util.Utils', 'localHostName') AS host"


class Placement:
    """The machines that processed the shards last: their state files are cached there (`state.node_files`).

    It is a preference. Spark waits for a busy machine as long as ``spark.locality.wait`` says (3 s by default), not
    for a lost one, and takes another. That one is preferred from then on.

    Args:
        spark: in a session of a single machine nothing is noted or preferred.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._hosts: dict[int, str] = {}

    def shards(self, shards: int, tasks: int) -> DataFrame:
        """Numbers of shards, as column `id`, in as many partitions as tasks.

        Those of a task have one remainder by the number of tasks: a file, whose pushes are of one landing partition,
        has pushes of fewer tasks then (both are remainders of one hash of the client).
        """
        if tasks in (1, shards) and not self._hosts:
            return self._spark.range(0, shards, 1, tasks)
        own = f"explode(sequence(BIGINT(task), {shards - 1}L, {tasks}L)) AS id"
        if not self._hosts:
            return self._spark.range(0, tasks, 1, tasks).selectExpr("id AS task").selectExpr(own)
        jvm = self._spark.sparkContext._jvm  # Python's RDDs and data frames have no preferences
        context, session = self._spark.sparkContext._jsc.sc(), self._spark._jsparkSession
        assert jvm is not None
        places = []
        for task in range(tasks):
            host = self._hosts.get(task)
            places.append(jvm.scala.Tuple2(task, _sequence(jvm, [] if host is None else [host])))
        integers = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("java.lang.Integer"))
        rows = context.makeRDD(_sequence(jvm, places), integers)
        numbers = session.createDataset(rows, jvm.org.apache.spark.sql.Encoders.INT()).toDF()
        return DataFrame(numbers, self._spark).selectExpr("value AS task").selectExpr(own)

    def collect(self, results: DataFrame, *, are_apart: bool) -> list[Row]:
        """The rows of `shards` after a task; column `shard` says of which shard they are.

        Args:
            are_apart: the shards are in as many tasks as run at once, so their machines are noted.
        """
        if str(self._spark.sparkContext.master).startswith("local["):
            return results.collect()
        rows = results.selectExpr("*", _HOST).collect()
        if are_apart:  # fewer tasks would gather them on their machines
            self._hosts.update((row["shard"], row["host"]) for row in rows)
        return rows


def _sequence(jvm: Any, items: Iterable[Any]) -> Any:
    """A Scala `Seq`."""
    filled = jvm.java.util.ArrayList()
    for item in items:
        filled.add(item)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(filled).toSeq()
