"""``telemetry-lake maintain`` on a lake of tables by name: retention, OPTIMIZE and VACUUM by SQL."""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime, timedelta

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafka_telemetry_lake.jobs.settings.base import UsageError
from kafka_telemetry_lake.jobs.settings.maintain import MaintainSettings
from kafka_telemetry_lake.jobs.support.named_lake import alone, session_of
from kafka_telemetry_lake.jobs.support.running import JobFailedError
from kafka_telemetry_lake.pipelines.maintain import BY_DAY
from kafka_telemetry_lake.pipelines.runtime.causes import cause
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.names import Names
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE

log = logging.getLogger("telemetry-lake")


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
