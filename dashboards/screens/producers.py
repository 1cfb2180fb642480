"""The page about producers: throughput, latency, failures and batching."""

from __future__ import annotations

from kafka_telemetry_lake.dashboards.metrics import ask_over_time, by_client, by_minute, largest, spread, total
from kafka_telemetry_lake.dashboards.scene import PREFIX, ROLLED_UP, Scene
from kafka_telemetry_lake.dashboards.show import halves

SENT, RETRIED, FAILED = (f"producer.record.{what}.total" for what in ("send", "retry", "error"))
BYTES, LATENCY = "producer.topic.byte.total", "producer.request.latency.avg"
LATENCY_MAX, QUEUE = "producer.request.latency.max", "producer.record.queue.time.avg"
PER_REQUEST, BATCH, COMPRESSION = (
    "producer.records.per.request.avg",
    "producer.batch.size.avg",
    "producer.compression.rate.avg",
)
THROTTLE = "producer.produce.throttle.time.max"
OVER_TIME = (SENT, RETRIED, FAILED, BYTES, LATENCY, LATENCY_MAX, QUEUE, PER_REQUEST, BATCH)
JAVA_ONLY = "Sent by Java clients only."
ROLLED_UP.update(PREFIX + metric for metric in (*OVER_TIME, COMPRESSION, THROTTLE))


def page(scene: Scene) -> None:
    rows = ask_over_time(scene, OVER_TIME)
    place = halves()
    with next(place):
        total(rows, scene, {SENT: "sent"}, "records per second", "Records sent", JAVA_ONLY)
    with next(place):
        total(rows, scene, {BYTES: "sent"}, "bytes per second", "Bytes sent", JAVA_ONLY)
    with next(place):
        spread(rows, scene, LATENCY, "ms", "Request latency, mean of each client")
    with next(place):
        largest(rows, scene, {LATENCY_MAX: "largest"}, "ms", "Request latency, maximum")
    with next(place):
        failing = {RETRIED: "retried", FAILED: "failed"}
        total(rows, scene, failing, "records per second", "Records retried and failed", JAVA_ONLY)
    with next(place):
        spread(rows, scene, QUEUE, "ms", "Time in the producer's queue, mean of each client", most=False)
    with next(place):
        spread(rows, scene, PER_REQUEST, "records", "Records per request", JAVA_ONLY, most=False)
    with next(place):
        spread(rows, scene, BATCH, "bytes", "Batch size", JAVA_ONLY, most=False)
    by_client(
        scene,
        {
            (SENT, "increase"): "records sent",
            (SENT, "rate"): "records/s",
            (RETRIED, "increase"): "retried",
            (FAILED, "increase"): "failed",
            (LATENCY, "mean"): "request latency, mean (ms)",
            (LATENCY_MAX, "most"): "request latency, max (ms)",
            (PER_REQUEST, "mean"): "records/request",
            (BATCH, "mean"): "batch size (bytes)",
            (COMPRESSION, "mean"): "compressed to (ratio)",
            (THROTTLE, "most"): "longest throttling (ms)",
        },
        "Producers by client id",
        note="Rates are per instance, over the time that its pushes cover.",
    )
    by_minute(scene, {"producer_pipeline": "From send() to the broker"})
