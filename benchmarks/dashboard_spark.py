"""The dashboard's queries in Spark, for comparison."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kafka_telemetry_lake.dashboards.questions import FOLDER, PREFIX, names
from kafka_telemetry_lake.pipelines.query.spark_catalog import create_views
from kafka_telemetry_lake.pipelines.runtime.session import spark_session


def ask_in_spark(
    lake: Path, parameters: dict[str, Any], metrics_of: Mapping[str, Sequence[str]]
) -> dict[str, tuple[float, float]]:
    """Seconds and CPU seconds of each question in a local session, of the second of two runs.

    Args:
        metrics_of: metrics by question.
    """
    spark = spark_session("benchmarks.dashboard", master="local[2]")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    create_views(spark, str(lake))
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    java = int(jvm.java.lang.ProcessHandle.current().pid())
    seconds = {}

    def ask(name: str, metrics: list[str]) -> Any:
        text = (FOLDER / f"{name}.sql").read_text("utf-8")
        values = parameters | {"metrics": metrics}
        return spark.sql(text, args={key: value for key, value in values.items() if f":{key}" in text})

    ask("instances", []).createOrReplaceTempView("chosen")
    spark.table("chosen").cache().count()
    ask("_rollups_minutes", []).createOrReplaceTempView("rollups")
    for name in names():
        metrics = [f"{PREFIX}{metric}" for metric in metrics_of.get(name, ())]
        for _ in range(2):
            began, cpu = time.perf_counter(), _cpu_s(java)
            ask(name, metrics).collect()
            seconds[name] = time.perf_counter() - began, _cpu_s(java) - cpu
        print("Spark {}: {:.2f} s ({:.2f} CPU-s)".format(name, *seconds[name]), flush=True)
    spark.stop()
    return seconds


def _cpu_s(process: int) -> float:
    """CPU seconds of a process so far, user and system."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
