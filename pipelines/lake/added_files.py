"""The files that a Delta table gets, followed by a streaming query."""

from __future__ import annotations

import json

import pyarrow.fs as pafs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of


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


def is_forgotten(table_uri: str, checkpoint: str) -> bool:
    """Whether the table's log no longer has the commit that a query of `added_files` would go on with."""
    filesystem, root = filesystem_of(checkpoint)
    entries = filesystem.get_file_info(pafs.FileSelector(f"{root}/offsets", allow_not_found=True))
    begun = max((int(entry.base_name) for entry in entries if entry.base_name.isdigit()), default=None)
    if begun is None:
        return False
    with filesystem.open_input_file(f"{root}/offsets/{begun}") as stream:
        version = int(json.loads(stream.read().splitlines()[-1])["reservoirVersion"])
    # Spark also looks at the commit before.
    filesystem, root = filesystem_of(f"{table_uri}/_delta_log/{max(version - 1, 0):020d}.json")
    return bool(filesystem.get_file_info(root).type != pafs.FileType.File)
