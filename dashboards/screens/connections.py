"""The page about connections and rebootstraps: clients that reconnect often, and clients that lost the cluster."""

from __future__ import annotations

from kafka_telemetry_lake.dashboards.panels import ask_over_time, by_client, largest, total
from kafka_telemetry_lake.dashboards.questions import Connections, Producer
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.screens.lifecycle import EVENT_COLUMNS, NONE_YET
from kafka_telemetry_lake.dashboards.show import every_column, halves, table

EVENTS = ("rebootstrap", "data_path_dead", "data_path_restored", "went_silent", "mass_silence", "mass_restart")


def page(scene: Scene) -> None:
    rows = ask_over_time(scene, Connections.OVER_TIME)
    place = halves()
    with next(place):
        note = "librdkafka doesn't report connections from before its first push."
        total(rows, scene, Connections.CREATED, "connections per second", "Connections opened", note)
    with next(place):
        total(
            rows,
            scene,
            Connections.CLOSED,
            "connections per second",
            "Connections closed",
            "Sent by Java clients only.",
        )
    with next(place):
        note = "Normally below metadata.max.age.ms (default 300 s). If it keeps growing, the cluster is lost."
        largest(rows, scene, {Producer.METADATA_AGE: "age"}, "s", "Oldest metadata of any producer", note)
    with next(place):
        total(rows, scene, Connections.REFUSED, "per second", "Failed authentications")
    events = scene.ask("events", top=500)
    table(
        events[events["event"].isin(EVENTS)],
        EVENT_COLUMNS,
        "Rebootstraps and outages",
    )
    by_client(
        scene,
        {
            ("producer.connection.creation.total", "increase"): "producer: opened",
            ("consumer.connection.creation.total", "increase"): "consumer: opened",
            ("admin.client.connection.creation.total", "increase"): "admin: opened",
            ("producer.connection.close.total", "increase"): "producer: closed",
            ("consumer.connection.close.total", "increase"): "consumer: closed",
            (Producer.METADATA_AGE, "most"): "metadata age, max (s)",
        },
        "Connections by client id",
    )
    ready = scene.rows("rebootstrap_readiness")
    if ready is not None:
        every_column(ready, "Readiness for a change of the brokers' addresses (KIP-1102)", none=NONE_YET)
