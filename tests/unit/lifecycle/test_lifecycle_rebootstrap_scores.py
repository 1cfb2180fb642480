"""How detected rebootstraps are compared with the clients' own logs."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from benchmarks.rebootstrap import Score, scores
from benchmarks.rebootstrap_scenes import Run
from tests.support.landing_records import SCHEMA

DETECTED, MISSED, MUTE = "java-producer-0", "java-producer-1", "java-producer-2"


def push(client: str, at: float) -> dict[str, object]:
    headers = [{"key": "client_id", "value": client.encode()}]
    return {"headers": headers, "timestamp": datetime.fromtimestamp(at, UTC)}


def test_a_client_that_does_not_push_after_its_rebootstrap_is_counted_apart() -> None:
    pushes = [push(client, at) for client in (DETECTED, MISSED) for at in (5, 15, 25)] + [
        push(MUTE, at) for at in (5, 25)
    ]
    run = Run(1, pa.Table.from_pylist(pushes, SCHEMA), [("refused", 10), ("quiet", 20)], ended=30)
    run.rebootstraps = [(client, 12) for client in (DETECTED, MISSED, MUTE)]
    events = [{"event": "rebootstrap", "client_id": DETECTED, "at": datetime.fromtimestamp(at, UTC)} for at in (15, 25)]
    score = scores(run, events)["java-producer"]
    assert score == Score(2, 1, 1, 2, 1, [f"{MISSED} refused"], [f"{DETECTED} quiet"])
    assert (score.recall, score.precision) == (0.5, 0.5)
