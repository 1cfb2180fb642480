"""The files that a Delta table gets, followed by a streaming query."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def added_files(spark: SparkSession, table_uri: str, max_bytes: str) -> DataFrame:
    """A streaming column `file`: for each row that is added to the table, the URI of its file.

    Tasks read the files themselves, so that rows don't go through the JVM. Files that only replace others aren't among
    them.

    Args:
        max_bytes: bytes of files in a micro-batch, as Delta's option `maxBytesPerTrigger`.
    """
    return (
        spark.readStream.format("delta")
        .option("ignoreDeletes", "true")
        .option("skipChangeCommits", "true")
        .option("maxBytesPerTrigger", max_bytes)
        .load(table_uri)
        .select(F.input_file_name().alias("file"))
    )
