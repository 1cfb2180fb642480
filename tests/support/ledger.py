"""A made-up fleet that keeps its own books: what it landed, and what its counters must add up to.

This module and ``tests.support.ledger_check`` use none of the project's code: they judge it from outside.
"""

from __future__ import annotations

import base64
import gzip
import json
import random
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

TOPIC = "client-telemetry"
CLIENT_ID, HOSTILE_ID = "fleet", "hostile"  # client.id of all its clients; of those that do all they can to it
START = datetime(2026, 11, 20, 23, 50, tzinfo=UTC)  # before midnight: a run spans two landed dates
DELTA, CUMULATIVE = 1, 2
EVERY_S = 10
GARBAGE = b"\xff\xff not protobuf "


@dataclass(frozen=True)
class Landed:
    """One landed record: ``kind`` is points, heartbeat, garbage, or again (the same push, landed a second time).

    Of a hostile one only the place is known: what becomes of it is open, as long as something does.
    """

    partition: int
    offset: int
    client: str
    kind: str
    points: int


@dataclass
class Ledger:
    """All that landed, and per client instance and counter the sum of its increments."""

    landed: list[Landed] = field(default_factory=list)
    increments: Counter[tuple[str, str]] = field(default_factory=Counter)

    def save(self, path: Path) -> None:
        totals = [[*key, total] for key, total in self.increments.items()]
        path.write_text(json.dumps({"landed": [asdict(each) for each in self.landed], "increments": totals}))

    @staticmethod
    def load(path: Path) -> Ledger:
        content = json.loads(path.read_text())
        increments = Counter({(client, metric): total for client, metric, total in content["increments"]})
        return Ledger([Landed(**each) for each in content["landed"]], increments)


class Fleet:
    """Clients that push a cumulative counter, a delta counter and a gauge; a third of them compress by gzip.

    Beside good pushes: every 7th client's heartbeats, garbage of a hostile client, pushes landed twice, and pushes that
    overtake the one before.
    """

    def __init__(self, clients: int = 20, partitions: int = 3, seed: int = 1) -> None:
        self.ledger = Ledger()
        self._random = random.Random(seed)
        self._ids = [instance_id(self._random) for _ in range(clients)]
        self._hostile = instance_id(self._random)
        self._partitions = partitions
        self._next_offset = [0] * partitions
        self._round = 0
        self._totals: Counter[str] = Counter()

    def grow(self, partitions: int) -> None:
        """The landing topic gets more partitions: clients move."""
        self._partitions = partitions
        self._next_offset += [0] * (partitions - len(self._next_offset))

    def round(self, pushes: int = 2) -> list[dict[str, Any]]:
        """Landing records (columns of Spark's Kafka source) of so many pushes of each client, entered in the ledger."""
        records = []
        for number, client in enumerate(self._ids):
            own = [self._push(client, self._round + step, number) for step in range(pushes)]
            if self._round and pushes > 1 and self._random.random() < 0.2:
                own[-2:] = reversed(own[-2:])  # they came through two brokers
            records += [record for push in own for record in push]
        at = self._at(self._round + pushes - 1)
        records.append(self._record(self._hostile, GARBAGE + self._random.randbytes(50), at, "garbage", 0))
        self._round += pushes
        return records

    def _push(self, client: str, step: int, number: int) -> list[dict[str, Any]]:
        at = self._at(step)
        if number % 7 == 6 and step % 3 == 2:
            return [self._record(client, b"", at, "heartbeat", 0)]
        more, total = self._random.randrange(1, 1000), self._random.randrange(1, 1000)
        self._totals[client] += total
        self.ledger.increments[client, "app.sent"] += more
        self.ledger.increments[client, "app.total"] += total
        since = START - timedelta(seconds=EVERY_S)
        payload = _payload(
            _sum("app.sent", more, at - timedelta(seconds=EVERY_S), at, DELTA),
            _sum("app.total", self._totals[client], since, at, CUMULATIVE),
            pb.Metric(name="app.lag", gauge=pb.Gauge(data_points=[_number(more, None, at)])),
        )
        codec = "gzip" if number % 3 == 0 else "none"
        if codec == "gzip":
            payload = gzip.compress(payload, mtime=0)
        records = [self._record(client, payload, at, "points", 3, codec)]
        if self._random.random() < 0.1:
            records.append(self._record(client, payload, at, "again", 3, codec))
        return records

    def _record(
        self, client: str, value: bytes, at: datetime, kind: str, points: int, codec: str = "none"
    ) -> dict[str, Any]:
        partition = sum(client.encode()) % self._partitions
        offset = self._next_offset[partition]
        self._next_offset[partition] += 1
        self.ledger.landed.append(Landed(partition, offset, client, kind, points))
        headers = {
            "client_instance_id": client,
            "client_id": CLIENT_ID,
            "compression_type": codec,
            "terminating": "false",
        }
        return {
            "key": client.encode(),
            "value": value,
            "topic": TOPIC,
            "partition": partition,
            "offset": offset,
            "timestamp": at + timedelta(seconds=1),
            "timestampType": 0,
            "headers": [{"key": name, "value": text.encode()} for name, text in headers.items()],
        }

    def _at(self, step: int) -> datetime:
        return START + timedelta(seconds=EVERY_S * step)


def instance_id(chance: random.Random) -> str:
    return base64.urlsafe_b64encode(b"\x01" + chance.randbytes(15)).decode().rstrip("=")


def _number(value: int, start: datetime | None, at: datetime) -> pb.NumberDataPoint:
    begun = 0 if start is None else round(start.timestamp()) * 1_000_000_000
    return pb.NumberDataPoint(
        start_time_unix_nano=begun, time_unix_nano=round(at.timestamp()) * 1_000_000_000, as_int=value
    )


def _sum(name: str, value: int, start: datetime, at: datetime, temporality: Any) -> pb.Metric:
    points = [_number(value, start, at)]
    return pb.Metric(name=name, sum=pb.Sum(data_points=points, aggregation_temporality=temporality, is_monotonic=True))


def _payload(*metrics: pb.Metric) -> bytes:
    scope = pb.ScopeMetrics(metrics=metrics)
    return pb.MetricsData(resource_metrics=[pb.ResourceMetrics(scope_metrics=[scope])]).SerializeToString()
