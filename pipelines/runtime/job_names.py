"""Names for Spark's jobs: its pages and its event log show what a job does, not a line of code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

_PROPERTY = "spark.job.description"


@contextmanager
def named(spark: SparkSession, name: str) -> Iterator[None]:
    """Name the jobs that this thread starts within the block; after it the name is what it was."""
    context = spark.sparkContext
    before = context.getLocalProperty(_PROPERTY)
    context.setLocalProperty(_PROPERTY, name)
    try:
        yield
    finally:
        context.setLocalProperty(_PROPERTY, before)  # type: ignore[arg-type]  # None: there was none
