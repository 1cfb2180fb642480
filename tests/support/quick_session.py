"""A Spark session for plans that run once and over few rows: to compile them would take most of the time."""

from __future__ import annotations

from pyspark.sql import SparkSession

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
}


def quick_session(spark: SparkSession) -> SparkSession:
    """A new session of this one's context, with temporary views of its own, whose plans are interpreted."""
    session = spark.newSession()
    for key, value in INTERPRETED.items():
        session.conf.set(key, value)
    return session
