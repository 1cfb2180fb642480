"""The page about producers: throughput, latency, failures and batching."""

from __future__ import annotations

from kafka_telemetry_lake.dashboards.panels import ask_over_time, by_client, by_minute, largest, spread, total
from kafka_telemetry_lake.dashboards.questions import Producer
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.show import halves

JAVA_ONLY = "Sent by Java clients only."


def page(scene: Scene) -> None:
    rows = ask_over_time(scene, Producer.OVER_TIME)
    place = halves()
    with next(place):
        total(rows, scene, {Producer.SENT: "sent"}, "records per second", "Records sent", JAVA_ONLY)
    with next(place):
        total(rows, scene, {Producer.BYTES: "sent"}, "bytes per second", "Bytes sent", JAVA_ONLY)
    with next(place):
        spread(rows, scene, Producer.LATENCY, "ms", "Request latency, mean of each client")
    with next(place):
        largest(rows, scene, {Producer.LATENCY_MAX: "largest"}, "ms", "Request latency, maximum")
    with next(place):
        failing = {Producer.RETRIED: "retried", Producer.FAILED: "failed"}
        total(rows, scene, failing, "records per second", "Records retried and failed", JAVA_ONLY)
    with next(place):
        spread(rows, scene, Producer.QUEUE, "ms", "Time in the producer's queue, mean of each client", most=False)
    with next(place):
        spread(rows, scene, Producer.PER_REQUEST, "records", "Records per request", JAVA_ONLY, most=False)
    with next(place):
        spread(rows, scene, Producer.BATCH, "bytes", "Batch size", JAVA_ONLY, most=False)
    by_client(
        scene,
        {
            (Producer.SENT, "increase"): "records sent",
            (Producer.SENT, "rate"): "records/s",
            (Producer.RETRIED, "increase"): "retried",
            (Producer.FAILED, "increase"): "failed",
            (Producer.LATENCY, "mean"): "request latency, mean (ms)",
            (Producer.LATENCY_MAX, "most"): "request latency, max (ms)",
            (Producer.PER_REQUEST, "mean"): "records/request",
            (Producer.BATCH, "mean"): "batch size (bytes)",
            (Producer.COMPRESSION, "mean"): "compressed to (ratio)",
            (Producer.THROTTLE, "most"): "longest throttling (ms)",
        },
        "Producers by client id",
        note="Rates are per instance, over the time that its pushes cover.",
    )
    by_minute(scene, {"producer_pipeline": "From send() to the broker"})
