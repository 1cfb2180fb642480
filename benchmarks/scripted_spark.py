"""A Spark stream that reads a topic and drops its records, until standard input ends.

Run as ``python scripted_spark.py <properties file>``, which has ``driver.topic``, ``driver.trigger`` and
``bootstrap.servers``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from kafka_telemetry_lake.pipelines.runtime.session import spark_session


def main(file: str) -> None:
    settings = dict(line.split("=", 1) for line in Path(file).read_text("utf-8").splitlines())
    spark = spark_session("scripted", "local[1]", "1g")
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings["bootstrap.servers"])
        .option("subscribe", settings["driver.topic"])
        .load()
    )
    records.writeStream.format("noop").trigger(processingTime=settings["driver.trigger"]).start()
    print(json.dumps({"event": "started"}), flush=True)
    sys.stdin.buffer.read()
    print(json.dumps({"event": "closed"}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
