"""What the commands on a lake of tables by name share: its lock, and the session whose catalog has the tables.

And what `maintain` does there by SQL, and how `views` makes its views in Spark, of a lake by name or by path.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, date, datetime, timedelta

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.settings.base import UsageError
from kafka_telemetry_lake.jobs.settings.maintain import MaintainSettings
from kafka_telemetry_lake.jobs.support.locks import TakenOverError, only_job
from kafka_telemetry_lake.jobs.support.running import JobFailedError
from kafka_telemetry_lake.pipelines.findings.model import Overrides
from kafka_telemetry_lake.pipelines.lake.errors import CatalogError
from kafka_telemetry_lake.pipelines.lake.fence import Fence
from kafka_telemetry_lake.pipelines.lake.place import no_lake
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake
from kafka_telemetry_lake.pipelines.query.spark_catalog import create_named_views, create_views, register_tables
from kafka_telemetry_lake.pipelines.runtime.causes import cause
from kafka_telemetry_lake.pipelines.runtime.session import spark_session
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.names import Names
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE
from kafka_telemetry_lake.pipelines.upkeep.maintenance import BY_DAY

log = logging.getLogger("telemetry-lake")


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


def maintain_by_name(settings: MaintainSettings, names: Names) -> None:
    """Maintain all tables of the schema that are the lake's."""
    with (
        alone(names, settings.checkpoints or "", "maintain"),
        session_of(names, "maintain", settings.master, settings.driver_memory, settings.checkpoints) as spark,
    ):
        maintain(spark, names, settings, datetime.now(UTC).date())


def maintain(spark: SparkSession, names: Names, settings: MaintainSettings, today: date) -> None:
    """Maintain them in a session.

    Args:
        today: UTC date from which ages are computed.
    """
    if not spark.catalog.tableExists(names.of(PUSHES.name)):
        raise UsageError(f"no lake in {names}: it has no table {PUSHES.name}")
    # VACUUM lists folders in tasks, by default in ten thousand of them.
    spark.conf.set(
        "spark.sql.sources.parallelPartitionDiscovery.parallelism", str(spark.sparkContext.defaultParallelism)
    )
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(settings.target_mb << 20))
    problems: list[str] = []
    for table in (name for name in CATALOG if spark.catalog.tableExists(names.of(name))):
        if spark.catalog.getTable(names.of(table)).tableType == "VIEW":  # in place of a table that the lake lacks
            continue
        before = len(problems)
        for statement in statements(names.of(table), table, settings, today):
            try:
                spark.sql(statement).collect()
            except (Py4JError, PySparkException) as error:
                problems.append(f"maintain: {names}.{table}: {cause(str(error))}")
        if len(problems) == before:
            log.info("maintain: %s.%s: done", names, table)
    if problems:
        raise JobFailedError("\n".join(problems))


def statements(name: str, table: str, settings: MaintainSettings, today: date) -> list[str]:
    """The statements that maintain a table, in this order: like `maintain` of a folder, it compacts past days."""
    days = settings.retention_days.get(table)
    oldest = None if days is None else today - timedelta(days=days - 1)
    retention = [] if oldest is None else [f"DELETE FROM {name} WHERE {LANDED_DATE.name} < DATE'{oldest}'"]
    past = f" WHERE {LANDED_DATE.name} < DATE'{today}'" if table in BY_DAY else ""
    return [*retention, f"OPTIMIZE {name}{past}", f"VACUUM {name} RETAIN {settings.vacuum_hours} HOURS"]


def make_views(lake: str, database: str, driver_memory: str, overrides: Overrides = ()) -> None:
    """Create tables and views of a lake, and print the views' names."""
    if not is_lake(lake):
        raise UsageError(no_lake(lake))
    try:
        spark = spark_session("telemetry-lake views", driver_memory=driver_memory, lake=lake)
        register_tables(spark, lake, database)
        for name in create_views(spark, lake, database, overrides):
            print(f"{database}.{name}")
    except (Py4JError, PySparkException) as error:
        raise JobFailedError(f"views: {cause(str(error))}") from error


def make_views_by_name(names: Names, driver_memory: str, overrides: Overrides = ()) -> None:
    """Create the views of a lake in its schema, and print their names."""
    with session_of(names, "views", "local[*]", driver_memory) as spark:
        try:
            if not spark.catalog.tableExists(names.of(PUSHES.name)):
                raise UsageError(f"no lake in {names}: it has no table {PUSHES.name}")
            for name in create_named_views(spark, names, overrides):
                print(f"{names}.{name}")
        except (Py4JError, PySparkException) as error:
            raise JobFailedError(f"views: {cause(str(error))}") from error
