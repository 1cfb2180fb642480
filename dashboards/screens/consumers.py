"""The page about consumers and their groups: lag, rebalances and waiting times."""

from __future__ import annotations

from kafka_telemetry_lake.dashboards.panels import ask_over_time, by_client, by_minute, largest, spread, total
from kafka_telemetry_lake.dashboards.questions import PREFIX, Consumer
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.show import halves, table

GROUP_NAMES = [PREFIX + metric for metric in Consumer.OF_GROUPS]
GROUP_COLUMNS = {
    "group_id": "consumer group",
    "instances": "instances",
    "client_ids": "client ids",
    "lag_max": "lag, largest (records)",
    "rebalances": "rebalances",
    "failed_rebalances": "failed rebalances",
    "commit_latency_ms": "commit latency, mean (ms)",
    "poll_idle_ratio": "idle in poll (ratio)",
    "between_polls_max_ms": "longest between polls (ms)",
}


def page(scene: Scene) -> None:
    groups(scene)
    rows = ask_over_time(scene, Consumer.OVER_TIME)
    place = halves()
    with next(place):
        total(rows, scene, {Consumer.RECORDS: "consumed"}, "records per second", "Records consumed")
    with next(place):
        total(rows, scene, {Consumer.BYTES: "consumed"}, "bytes per second", "Bytes consumed")
    with next(place):
        largest(rows, scene, {Consumer.LAG: "lag"}, "records", "Lag of the partition furthest behind")
    with next(place):
        total(rows, scene, {Consumer.REBALANCES: "rebalances", Consumer.FAILED: "failed"}, "per second", "Rebalances")
    with next(place):
        spread(rows, scene, Consumer.FETCH, "ms", "Fetch latency, mean of each client")
    with next(place):
        note = "Near 0, processing is the bottleneck."
        spread(rows, scene, Consumer.IDLE, "ratio", "Share of the time that poll() waits", note, most=False)
    spread(rows, scene, Consumer.COMMIT, "ms", "Commit latency, mean of each client")
    by_client(
        scene,
        {
            (Consumer.RECORDS, "increase"): "records consumed",
            (Consumer.RECORDS, "rate"): "records/s",
            (Consumer.LAG, "most"): "lag, largest (records)",
            (Consumer.FETCH, "mean"): "fetch latency, mean (ms)",
            (Consumer.IDLE, "mean"): "idle in poll (ratio)",
            (Consumer.REBALANCES, "increase"): "rebalances",
            (Consumer.BETWEEN_POLLS, "most"): "longest between polls (ms)",
            (Consumer.COMMIT, "mean"): "commit latency, mean (ms)",
        },
        "Consumers by client id",
        note="Rates are per instance, over the time that its pushes cover.",
    )
    by_minute(scene, {"consumer_groups": "Group membership", "consumer_progress": "Progress"})


def groups(scene: Scene) -> None:
    """A table of the groups of the chosen clients."""
    table(
        scene.ask("groups", metrics=GROUP_NAMES),
        GROUP_COLUMNS,
        "Consumer groups",
        "Lag and rebalances are pushed by Java consumers only. A client id that is in two groups counts in both.",
    )
