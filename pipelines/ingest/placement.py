"""Where the shards of a batch are processed: on the machines that have their state files already."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

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
