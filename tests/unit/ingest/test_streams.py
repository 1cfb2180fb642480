"""Which ranges of offsets are looked for in which table, so that a batch of pushes is a join with one table."""

from __future__ import annotations

from kafka_telemetry_lake.pipelines.ingest.sources import Topics
from kafka_telemetry_lake.pipelines.ingest.store_task import STORED
from kafka_telemetry_lake.pipelines.ingest.streams import topics_of
from kafka_telemetry_lake.pipelines.lake.offset_guard import OffsetGuard, OffsetRange

TOPICS = Topics("t", "s", "q")


def test_a_range_is_looked_for_in_the_tables_of_its_topic() -> None:
    ranges = {topic: OffsetRange("kafka", topic, 0, 0, 9) for topic in ("t", "s", "q", "another")}
    looked_for = {
        table.name: OffsetGuard("", (), 0, topics_of(table, TOPICS)).own(tuple(ranges.values())) for table in STORED
    }
    assert looked_for == {
        "broker_connections": (),  # a status is stored if its row of `receiver_health` is
        "receiver_health": (ranges["s"],),
        "quota_samples": (ranges["q"],),
        "quarantine": (ranges["q"],),  # rejected pushes are in table `pushes` too
        "pushes": (ranges["t"], ranges["another"]),
    }
    assert OffsetGuard("", (), 0).own(tuple(ranges.values())) == tuple(ranges.values())
