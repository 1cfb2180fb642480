"""docs/storage.md lists every file of a lake outside Delta's tables. The lake of all commands: test_expired_logs.py."""

from __future__ import annotations

from pathlib import Path

from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from tests.support.lake_files import listed, undescribed
from tests.support.ledger import Fleet
from tests.support.local_stream import LocalStream


def test_every_file_of_a_lake_is_described(tmp_path: Path) -> None:
    stream = LocalStream(tmp_path)
    stream.batch(Fleet(clients=2).round())
    stream.snapshot()
    Lifecycle(str(stream.lake)).catch_up()
    assert undescribed(stream.lake) == []
    for other in ("_something.json", "pushes/_something.json", "_checkpoints/something.json"):
        (stream.lake / other).touch()
    assert undescribed(stream.lake) == [
        "_checkpoints/something.json", "_something.json", "pushes/_something.json",
    ]  # fmt: skip


def test_no_file_is_listed_twice() -> None:
    assert len(listed()) == len(set(listed())) > 20
