"""What tests of the receiver plugin in whole brokers share: many clients at once, and what it says and lands."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.compute as pc
from confluent_kafka import KafkaException

from kafka_telemetry_lake.sandbox.clients import Client, LocalClients
from kafka_telemetry_lake.sandbox.cluster import LANDING_TOPICS, LocalCluster
from kafka_telemetry_lake.sandbox.cluster.java import compile_java, java_command, kafka_class_path
from tests.support.lake_tables import table
from tests.support.patience import PATIENCE_S
from tests.support.topic_messages import messages

from .landing import Push, _push

LANDING, STATUS = LANDING_TOPICS[:2]
_T = TypeVar("_T")

_TESTS = Path(__file__).parent.parent
_SOURCES = (
    _TESTS / "clients" / "java" / "ProducerFleet.java",
    _TESTS.parent / "sandbox" / "clients" / "TelemetryClient.java",
)


@dataclass(frozen=True)
class Status:
    """A status record's counts since ``started_ms``."""

    started_ms: int
    time_ms: int
    received: int
    landed: int
    dropped: dict[str, int]
    queue_depth: int

    @property
    def lost(self) -> dict[str, int]:
        return {reason: count for reason, count in self.dropped.items() if count}

    def balances(self) -> bool:
        return self.received == self.landed + sum(self.dropped.values()) + self.queue_depth


def start_fleet(
    cluster: LocalCluster,
    clients: LocalClients,
    client_id: str,
    topic: str,
    *,
    producers: int = 1,
    gauges: int = 0,
    options: Sequence[str] = (),
) -> Client:
    """Java producers of 4.3.1 in one process, with client ids ``<client_id>-0`` and on; see ProducerFleet.java.

    ``options`` are the JVM's.
    """
    class_path = kafka_class_path("4.3.1")
    classes = compile_java(_SOURCES, class_path)
    log = cluster.folder / "clients" / f"{client_id}.log"
    class_path = kafka_class_path("4.3.1", classes)
    command = java_command(class_path, "ProducerFleet", log=log, heap_mb=512, options=options)
    # The buffers of all producers share one heap.
    settings = {
        "driver.topic": topic,
        "driver.producers": producers,
        "driver.gauges": gauges,
        "buffer.memory": 2_000_000,
    }
    return clients.start(client_id, command, settings)


def cut_off(fleet: Client) -> set[str]:
    """The instance ids of a fleet whose connection ended while a telemetry request was in flight.

    Such a Java client pushes nothing for 5 minutes (DefaultClientTelemetrySender.handleFailedRequest in 4.3.1).
    """
    ids: list[str] = fleet.wait_for("started")["client_instance_ids"]
    cancelled = re.findall(
        rf"clientId={fleet.client_id}-(\d+)\] Cancelled in-flight (?:PUSH|GET)_TELEMETRY", fleet.log.read_text()
    )
    return {ids[int(number)] for number in cancelled}


def wait_for(look: Callable[[], _T], enough: Callable[[_T], object]) -> _T:
    """What ``look`` returns, as soon as it is enough; while a topic is made anew or its broker starts, reads fail."""
    deadline = time.monotonic() + PATIENCE_S
    seen: object = None
    while True:
        try:
            if enough(found := look()):
                return found
            seen = found
        except KafkaException as error:
            seen = error
        assert time.monotonic() < deadline, f"not enough in {PATIENCE_S:.0f} s: {str(seen)[-2000:]}"
        time.sleep(0.2)


def landed(cluster: LocalCluster) -> list[Push]:
    """All pushes of the landing topic until now."""
    return [_push(message) for message in messages(cluster, LANDING)]


def instances(cluster: LocalCluster) -> set[str]:
    return {push.client_instance_id for push in landed(cluster)}


def statuses(cluster: LocalCluster) -> list[Status]:
    """All status records until now, in the order of their times."""
    texts = [json.loads(message.value() or b"") for message in messages(cluster, STATUS)]
    fields = ("started_ms", "time_ms", "received", "landed", "dropped", "queue_depth")
    return sorted((Status(*(text[field] for field in fields)) for text in texts), key=lambda status: status.time_ms)


def wait_for_status(cluster: LocalCluster, enough: Callable[[Status], object]) -> Status:
    """The newest status, as soon as there is one of after this call that is enough."""
    asked_ms = time.time() * 1000
    newest = wait_for(
        lambda: statuses(cluster)[-1:], lambda found: found and found[0].time_ms > asked_ms and enough(found[0])
    )
    return newest[0]


def settled(cluster: LocalCluster) -> Status:
    """The newest status when no client pushes any more: the second of two with equal counts and nothing queued."""
    closed_ms = time.time() * 1000

    def quiet(found: list[Status]) -> bool:
        return (
            len(found) == 2
            and found[0].time_ms > closed_ms
            and found[1].queue_depth == 0
            and found[0].received == found[1].received
        )

    return wait_for(lambda: statuses(cluster)[-2:], quiet)[1]


def health(lake: Path, started_ms: int) -> list[Status]:
    """The rows of `receiver_health` of one start of the receiver, in the order of their times."""
    rows: list[dict[str, Any]] = table(lake, "receiver_health").to_pylist()
    assert [row["problem"] for row in rows if row["problem"] is not None] == []
    found = [
        Status(
            _milliseconds(row["started_at"]), _milliseconds(row["reported_at"]), row["received"], row["landed"],
            dict(row["dropped"]), row["queue_depth"],
        )
        for row in rows
    ]  # fmt: skip
    return sorted((each for each in found if each.started_ms == started_ms), key=lambda status: status.time_ms)


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def gauges(lake: Path) -> dict[tuple[int, int], list[float]]:
    """The values of a fleet's own gauges in `metric_points`, ascending, by partition and offset of their push."""
    points = table(lake, "metric_points")
    points = points.filter(pc.starts_with(points["metric"], "org.apache.kafka.application.gauge."))
    found: dict[tuple[int, int], list[float]] = {}
    columns = (points[name].to_pylist() for name in ("partition", "offset", "value"))
    for partition, offset, value in zip(*columns, strict=True):
        found.setdefault((partition, offset), []).append(value)
    return {place: sorted(values) for place, values in found.items()}
