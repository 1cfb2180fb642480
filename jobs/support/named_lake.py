"""What the commands on a lake of tables by name share: its lock, and the session whose catalog has the tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.support.locks import TakenOverError, only_job
from kafka_telemetry_lake.pipelines.lake.errors import CatalogError
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.runtime.session import spark_session
from kafka_telemetry_lake.pipelines.tables.names import Names


def alone(
    names: Names, checkpoints: str, command: str, lost: Callable[[TakenOverError], object] | None = None
) -> AbstractContextManager[Fence | None]:
    """The lock of the lake's job, below its checkpoints.

    Databricks has none, since a volume has no hard links: two queries of one checkpoint exclude each other there by
    Spark's own log of batches, and its commits are the catalog's.

    Args:
        command: that asks for it.
        lost: called as soon as another process has taken over.
    """
    if "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return nullcontext()
    busy = f"another job is writing {names} ({checkpoints} is locked): run one job at a time"
    return only_job(checkpoints, command, busy, lost=lost)


@contextmanager
def session_of(
    names: Names, command: str, master: str, driver_memory: str, checkpoints: str | None = None
) -> Iterator[SparkSession]:
    """The session of a command; one that this process has started ends with the block, unless that fails.

    Raises:
        CatalogError: the catalog would end with it, and forget its tables.
    """
    spark = spark_session(f"telemetry-lake {command}", master, driver_memory, checkpoints=checkpoints)
    if names.catalog == "spark_catalog" and spark.conf.get("spark.sql.catalogImplementation") == "in-memory":
        raise CatalogError(
            "catalog: spark_catalog is in this session's memory only: set spark.sql.catalogImplementation to hive, or "
            "name a catalog that the session has (spark.sql.catalog.NAME); docs/engines.md shows both"
        )
    yield spark
    if "DATABRICKS_RUNTIME_VERSION" not in os.environ:
        spark.stop()
