"""Settings of a Spark session for the job, and options of its JVM."""

from __future__ import annotations

from pyspark import __version__ as pyspark_version

Settings = dict[str, bool | float | int | str | None]

# Needed for correct results in any session.
SEMANTICS: Settings = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.ansi.enabled": "true",
    # Rows go to Python tasks in Arrow batches, whose columns can't exceed 2 GiB: by default a batch has 10,000 rows of
    # any size, and a payload may have a MiB. The number of rows bounds them where Spark doesn't know the other setting.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(32 << 20),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    # Printed plans and Spark's event log contain the options of a Kafka source. A value may contain any character, so
    # everything up to the source's columns is redacted, or else the rest of the plan.
    "spark.sql.redaction.string.regex": r"(?is)kafka\.(sasl|ssl)\..*?(?=, \[key#|\z)",
}
# Static settings and tuning of a session of the job alone, whoever starts it. Databricks has its own.
TUNING: Settings = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",
    # Milliseconds for which Arrow's allocator retains free pages for the next slice: returning them at once costs a
    # tenth of a task. At its end a task returns them all (`operator_task`); with -1 a worker would retain its peak.
    "spark.executorEnv.MIMALLOC_PURGE_DELAY": "100",
    "spark.scheduler.mode": "FAIR",
    # In local folders, Spark's default starts three processes (`chmod`, `readlink`) to rename a file of the checkpoint,
    # which takes 0.4 to 0.7 s of each batch on two busy cores.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming."
        + ("" if pyspark_version.startswith("4.0.") else "checkpointing.")  # where Spark 4.1 has moved it
        + "FileSystemBasedCheckpointFileManager"
    ),
    # Avoids sorting a batch by landed date, which would copy its payloads.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
    # For these columns, whose values rarely repeat, Parquet would build a dictionary and then discard it.
    **{
        f"spark.hadoop.parquet.enable.dictionary#{column}": "false"
        for column in ("payload", "offset", "landed_at", "received_at", "client_instance_id", "client_address")
    },
    # HotSpot doesn't compile methods of more than 8,000 bytes, so Spark must split longer generated loops.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # The loops that Spark generates, of all plans of a batch. With its 100, those of a batch of the Spark engine (eight
    # tables) push each other out, and are generated, and compiled by HotSpot, again in each batch.
    "spark.sql.codegen.cache.maxEntries": "1000",
    # The job's own queries read small tables.
    "spark.sql.shuffle.partitions": "4",
}
# Only for sessions that run in this process's JVM: on one machine, without pages.
LOCAL: Settings = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What Spark keeps for its own pages, which aren't served: updates with each event, and a thousand plans.
    "spark.ui.liveUpdate.period": "-1",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.sql.streaming.ui.enabled": "false",
    # A job of small batches rarely collects its whole heap, which grows by what is no longer needed. Spark asks for a
    # collection that often; `MaxHeapFreeRatio` returns what it frees.
    "spark.cleaner.periodicGC.interval": "2min",
}
# In one process, heartbeats say nothing about the executor. But when the machine has been suspended for two minutes
# (asleep, moved to another host), Spark drops its executor for missing heartbeats and ends the JVM minutes later.
ONE_PROCESS: Settings = {"spark.storage.blockManagerHeartbeatTimeoutMs": "7d"}
# Only for sessions that this process starts on a cluster: Spark takes pip's PySpark for a shell, which shows bars.
ON_A_CLUSTER: Settings = {"spark.ui.showConsoleProgress": "false"}

JAVA_OPTIONS = (
    # With short batches, the parallel collector uses a tenth of G1's CPU time.
    "-XX:+UseParallelGC",
    # Records pass through the heap and hardly any object stays, but the collector never gives a young generation back.
    "-XX:MaxNewSize=160m",
    "-XX:MaxHeapFreeRatio=50",
    # A heap begins with a 64th of the machine's memory otherwise, and never becomes smaller.
    "-Xms64m",
    # In the first minutes of a small fleet HotSpot's optimizing compiler is among the dearest threads, for code that
    # runs once a batch. Four times its default thresholds leave it the loops over records.
    "-XX:Tier4InvocationThreshold=20000",
    "-XX:Tier4MinInvocationThreshold=2400",
    "-XX:Tier4CompileThreshold=60000",
    "-XX:Tier4BackEdgeThreshold=160000",
)
# For a JVM that ends after little work: HotSpot's optimizing compiler, and the profiles that it needs, take 12 CPU-s
# more than they save. In a job of much input, or one that runs on, its loops would take twice as much without it.
BRIEF_JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1",)
