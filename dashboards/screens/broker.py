"""The page about brokers: their receivers, what is wrong with them, and whom they throttle."""

from __future__ import annotations

from kafka_telemetry_lake.dashboards.frame import page_value
from kafka_telemetry_lake.dashboards.panels import missing
from kafka_telemetry_lake.dashboards.problems import cards
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.screens.fleet import CLIENT_COLUMNS
from kafka_telemetry_lake.dashboards.screens.health import receivers
from kafka_telemetry_lake.dashboards.screens.quotas import HEADROOM_COLUMNS, NO_SAMPLES
from kafka_telemetry_lake.dashboards.show import table


def page(scene: Scene) -> None:
    named = page_value("broker")
    rows = scene.ask("brokers", top=1000)
    table(
        rows,
        {
            "broker_id": "broker",
            "clients": "clients whose pushes it took",
            "pushes": "pushes",
            "last_push": "last push (UTC)",
        },
        "Brokers that take pushes",
    )
    if named is None or not named.isdigit():
        receivers(scene)
        return
    cards(scene, ("broker",), named)
    receivers(scene, int(named))
    if int(named) not in set(rows["broker_id"].dropna()):
        missing("Broker", named)
    headroom = scene.rows("quota_headroom", broker_id=int(named))
    assert headroom is not None
    table(
        headroom.sort_values("used_percent", ascending=False),
        HEADROOM_COLUMNS,
        "Nearest to their limits on it now",
        none=NO_SAMPLES,
    )
    clients = scene.rows("clients", broker_id=int(named), state="active")
    table(clients, CLIENT_COLUMNS, "Clients that push to it now", none="None known.")
