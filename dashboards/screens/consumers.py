"""The page about consumers and their groups: lag, rebalances and waiting times."""

from __future__ import annotations

from kafka_telemetry_lake.dashboards.metrics import ask_over_time, by_client, by_minute, largest, spread, total
from kafka_telemetry_lake.dashboards.scene import PREFIX, ROLLED_UP, Scene
from kafka_telemetry_lake.dashboards.show import halves, table

RECORDS, BYTES = (f"consumer.fetch.manager.{what}.consumed.total" for what in ("records", "bytes"))
LAG, FETCH = "consumer.fetch.manager.records.lag.max", "consumer.fetch.manager.fetch.latency.avg"
IDLE, BETWEEN_POLLS = "consumer.poll.idle.ratio.avg", "consumer.time.between.poll.max"
REBALANCES, FAILED = (f"consumer.coordinator.{what}rebalance.total" for what in ("", "failed."))
COMMIT = "consumer.coordinator.commit.latency.avg"
OVER_TIME = (RECORDS, BYTES, LAG, FETCH, IDLE, REBALANCES, FAILED, COMMIT)
GROUP_METRICS = (LAG, REBALANCES, FAILED, COMMIT, IDLE, BETWEEN_POLLS)
GROUP_NAMES = [PREFIX + metric for metric in GROUP_METRICS]
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
ROLLED_UP.update(PREFIX + metric for metric in (*OVER_TIME, *GROUP_METRICS))


def page(scene: Scene) -> None:
    groups(scene)
    rows = ask_over_time(scene, OVER_TIME)
    place = halves()
    with next(place):
        total(rows, scene, {RECORDS: "consumed"}, "records per second", "Records consumed")
    with next(place):
        total(rows, scene, {BYTES: "consumed"}, "bytes per second", "Bytes consumed")
    with next(place):
        largest(rows, scene, {LAG: "lag"}, "records", "Lag of the partition furthest behind")
    with next(place):
        total(rows, scene, {REBALANCES: "rebalances", FAILED: "failed"}, "per second", "Rebalances")
    with next(place):
        spread(rows, scene, FETCH, "ms", "Fetch latency, mean of each client")
    with next(place):
        note = "Near 0, processing is the bottleneck."
        spread(rows, scene, IDLE, "ratio", "Share of the time that poll() waits", note, most=False)
    spread(rows, scene, COMMIT, "ms", "Commit latency, mean of each client")
    by_client(
        scene,
        {
            (RECORDS, "increase"): "records consumed",
            (RECORDS, "rate"): "records/s",
            (LAG, "most"): "lag, largest (records)",
            (FETCH, "mean"): "fetch latency, mean (ms)",
            (IDLE, "mean"): "idle in poll (ratio)",
            (REBALANCES, "increase"): "rebalances",
            (BETWEEN_POLLS, "most"): "longest between polls (ms)",
            (COMMIT, "mean"): "commit latency, mean (ms)",
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
