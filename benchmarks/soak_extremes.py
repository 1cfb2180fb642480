"""Hostile clients of `soak_hostile` whose records are at or beyond the limits: pushes, headers, other topics."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.hostile_batches import landed
from tests.support.hostile_genomes import Genome, Node, random_genome
from tests.support.hostile_seeds import SEEDS
from tests.support.ledger import START
from tests.support.otlp_builder import T0_NS

KNOWN = Path(__file__).parents[1] / "tests" / "data" / "hostile_pushes.json"
LANDING, STATUSES, QUOTAS = "client-telemetry", "client-telemetry-status", "client-quotas"
DAY_NS = 86_400 * 10**9
NUMBERS = (0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64, 10**30)


@dataclass(frozen=True)
class Push:
    """A record of a hostile client."""

    payload: bytes
    codec: str = "none"
    headers: tuple[tuple[str, bytes], ...] = ()
    topic: str = LANDING


Pushes = Iterator[Push]


def costliest_pushes(chance: random.Random) -> Pushes:
    """The costliest genomes of past searches, alternating with random genomes."""
    known = [each["genome"] for each in json.loads(KNOWN.read_text(encoding="utf-8"))]
    worst = [push_of(genome) for genome in (*SEEDS.values(), *known)]
    for push in itertools.cycle(worst):
        yield push
        yield push_of(random_genome(chance))


def push_of(genome: Genome) -> Push:
    """A genome's push, with its times moved to the fleet's clock."""
    moved = genome | {"tree": [_moved(node) for node in genome["tree"]]}
    interval = () if genome["interval"] is None else (("push_interval_ms", str(genome["interval"]).encode()),)
    junk = (("client_software_name", b"h" * genome["header"]),) if genome["header"] else ()
    return Push(landed(moved)[0], genome["codec"], (*interval, *junk))


def _moved(node: Node) -> Node:
    result = dict(node)
    for children in ("c", "g"):
        if children in node:
            result[children] = [_moved(child) for child in node[children]]
    if abs(node.get("v", 0) - T0_NS) < 2 * DAY_NS:
        result["v"] = node["v"] - T0_NS + round(START.timestamp()) * 10**9
    return result


def extreme_headers(chance: random.Random) -> Pushes:
    """Numbers out of their columns' range, and text in place of numbers."""
    names = ("received_at_ms", "push_interval_ms", "subscription_id", "client_port", "dropped", "terminating", "v")
    while True:
        for name, value in itertools.product(names, (*map(str, NUMBERS), "", "NaN", "1e400", "\0", "9" * 9999)):
            yield Push(b"", headers=((name, value.encode()),))
        yield Push(b"", chance.choice(("brotli", "", "4", "9" * 9999)))


def extreme_statuses(chance: random.Random) -> Pushes:
    """Receiver statuses whose sums overflow, and invalid statuses."""
    for count in itertools.count():
        numbers = {name: chance.choice(NUMBERS) for name in ("received", "landed", "queue_depth", "time_ms")}
        status = {"version": 1, "broker_id": count, "dropped": {"a": 2**63 - 1, "b": chance.choice(NUMBERS)}, **numbers}
        yield _json(status, STATUSES)
        yield Push(b'{"dropped":' * 2000, topic=STATUSES)


def extreme_samples(chance: random.Random) -> Pushes:
    """Quota samples with numbers out of their columns' range."""
    while True:
        numbers = {name: chance.choice((*NUMBERS, 1e308)) for name in ("observed_rate", "quota_limit", "time_ms")}
        yield _json({"version": 1, "broker_id": 1, "quota_type": "Produce", "user": "u" * 9999, **numbers}, QUOTAS)


def _json(record: dict[str, Any], topic: str) -> Push:
    return Push(json.dumps(record).encode(), topic=topic)
