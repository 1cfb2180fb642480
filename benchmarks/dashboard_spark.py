"""The dashboard's questions in Spark, for comparison."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.dashboard import METRICS
from dashboards.metrics import PREFIX
from dashboards.questions import FOLDER, names
from pipelines.session import spark_session
from pipelines.views import create_views


def ask_in_spark(lake: Path, parameters: dict[str, Any]) -> dict[str, float]:
    """Seconds of each question in a local session, the second of two runs."""
    spark = spark_session("benchmarks.dashboard", master="local[2]")
    create_views(spark, str(lake))
    seconds = {}

    def ask(name: str, metrics: list[str]) -> Any:
        text = (FOLDER / f"{name}.sql").read_text("utf-8")
        values = parameters | {"metrics": metrics}
        return spark.sql(text, args={key: value for key, value in values.items() if f":{key}" in text})

    ask("instances", []).createOrReplaceTempView("chosen")
    spark.table("chosen").cache().count()
    ask("_rollups_minutes", []).createOrReplaceTempView("rollups")
    for name in names():
        metrics = [f"{PREFIX}{metric}" for metric in METRICS.get(name, ())]
        for _ in range(2):
            began = time.perf_counter()
            ask(name, metrics).collect()
            seconds[name] = time.perf_counter() - began
        print(f"Spark {name}: {seconds[name]:.2f} s", flush=True)
    spark.stop()
    return seconds
