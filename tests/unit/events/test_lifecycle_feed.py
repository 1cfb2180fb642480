"""The feed of events: what a lake's table gets is sent, in order, at least once, and known again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.pipelines.events.feed import EventFeed
from kafka_telemetry_lake.pipelines.lake import stored_files
from kafka_telemetry_lake.pipelines.lake.notes import CHECKSUM, sealed
from kafka_telemetry_lake.pipelines.runtime.kafka_producer import Record
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS
from kafka_telemetry_lake.pipelines.upkeep.maintenance import Maintenance, MaintenanceSettings
from tests.support.expired_logs import expire_logs
from tests.support.lake_tables import table
from tests.unit.lifecycle.test_lifecycle import at, push
from tests.unit.lifecycle.test_lifecycle_lake import LandedLake

pytestmark = pytest.mark.lake


class Topic:
    """What was sent; fails from the record of this number on."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.fails_at: int | None = None

    def send(self, records: Sequence[Record]) -> None:
        for each in records:
            if len(self.records) == self.fails_at:
                raise OSError("no broker answers")
            self.records.append(each)

    def values(self) -> list[dict[str, Any]]:
        return [json.loads(value) for _, value in self.records]

    def keys_and_events(self) -> list[tuple[str | None, str]]:
        return [(key, value["event"]) for (key, _), value in zip(self.records, self.values(), strict=True)]


@pytest.fixture
def lake(tmp_path: Path) -> LandedLake:
    CLIENT_EVENTS.create(str(tmp_path))
    return LandedLake(tmp_path)


@pytest.fixture
def topic() -> Topic:
    return Topic()


def test_events_are_sent_in_the_order_of_their_times(lake: LandedLake, topic: Topic) -> None:
    feed = EventFeed(str(lake.path), topic.send)
    assert feed.send_new() == 0
    lake.land([push(20, 0), push(10, 1, "b", partition=1), push(30, 2, "b", partition=1, terminating=True)]).judge()
    assert (feed.send_new(), feed.send_new()) == (3, 0)
    assert topic.keys_and_events() == [("b", "first_seen"), ("a", "first_seen"), ("b", "terminated")]
    value = topic.values()[0]
    assert len(value.pop("event_id")) == 32
    assert value == {
        "source": "kafka", "cluster_id": "c", "topic": "client-telemetry", "partition": 1, "offset": 1,
        "landed_at": "2026-11-21T12:00:10.000000Z", "client_instance_id": "b", "client_id": "id-b",
        "at": "2026-11-21T12:00:10.000000Z", "event": "first_seen", "detail": {},
    }  # fmt: skip


def test_a_feed_begins_with_the_next_event_and_goes_on_where_it_was(lake: LandedLake, topic: Topic) -> None:
    lake.land([push(0, 0)]).judge()
    EventFeed(str(lake.path), topic.send)
    lake.land([push(1, 1, "b")]).judge()
    assert EventFeed(str(lake.path), topic.send).send_new() == 1
    lake.land([push(2, 2, "c")]).judge()
    assert EventFeed(str(lake.path), topic.send).send_new() == 1
    assert topic.keys_and_events() == [("b", "first_seen"), ("c", "first_seen")]


def test_what_failed_is_sent_again_with_the_same_ids(lake: LandedLake, topic: Topic) -> None:
    feed = EventFeed(str(lake.path), topic.send)
    lake.land([push(second, second, f"c{second}") for second in range(5)]).judge()
    topic.fails_at = 3
    with pytest.raises(OSError, match="no broker answers"):
        feed.send_new()
    topic.fails_at = None
    assert EventFeed(str(lake.path), topic.send).send_new() == 5
    assert [key for key, _ in topic.records] == ["c0", "c1", "c2", "c0", "c1", "c2", "c3", "c4"]
    ids = [value["event_id"] for value in topic.values()]
    assert (ids[:3], len(set(ids))) == (ids[3:6], 5)


def test_compaction_sends_nothing_again(lake: LandedLake, topic: Topic) -> None:
    feed = EventFeed(str(lake.path), topic.send)
    for second in range(3):
        lake.land([push(second, second, f"c{second}")]).judge()
    assert feed.send_new() == 3
    assert DeltaTable(str(lake.path / "client_events")).optimize.compact()["numFilesAdded"] == 1
    assert feed.send_new() == 0


def test_events_whose_commits_the_log_has_forgotten_are_sent(
    lake: LandedLake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.land([push(0, 0)]).judge()
    EventFeed(str(lake.path), topic.send)
    lake.land([push(1, 1, "b")]).judge()
    lake.land([push(2, 2, "c")]).judge()
    expire_logs(lake.path)
    feed = EventFeed(str(lake.path), topic.send)
    assert feed.send_new() == 3  # files of a day before are sent too, as clocks differ; consumers know the event_id
    assert topic.keys_and_events() == [(client, "first_seen") for client in ("a", "b", "c")]
    assert feed.send_new() == 0
    monkeypatch.setattr(stored_files, "CLOCKS_DIFFER", timedelta())
    lake.land([push(3, 3, "d")]).judge()
    expire_logs(lake.path)
    assert EventFeed(str(lake.path), topic.send).send_new() == 1
    assert topic.keys_and_events()[3:] == [("d", "first_seen")]


def test_days_of_events_that_retention_dropped_unsent_are_a_row(
    lake: LandedLake, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """So are those of pushes that the lifecycle hadn't read."""
    lake.land([push(0, 0)], {}).judge()
    EventFeed(str(lake.path), topic.send)
    note, first = lake.path / "client_events" / "_event_feed-e000000000000.json", at(0).date()
    noted = json.loads(note.read_text()) | {"read_at": at(0).isoformat()}
    noted.pop(CHECKSUM)
    note.write_text(json.dumps(sealed(noted)))
    lake.land([push(1, 1, "b")], {}).judge()
    lake.land([push(2, 2, "c")], {})
    today = first + timedelta(days=2)
    maintenance = Maintenance(
        str(lake.path), str(lake.path / "_checkpoints"),
        MaintenanceSettings({"pushes": 1, "push_outcomes": 1, "client_events": 1}, 64 << 20, 168, 7), today,
    )  # fmt: skip
    for name in maintenance.tables():
        assert maintenance.maintain(name).problems == ()
    expire_logs(lake.path)
    for _ in range(2):
        lake.judge()
        EventFeed(str(lake.path), topic.send).send_new()
    assert topic.records == []
    rows = sorted(table(lake.path, "lost_records").to_pylist(), key=lambda row: str(row["source"]))
    assert [(row["source"], row["topic"], row["first_date"], row["last_date"]) for row in rows] == [
        ("event_feed", "client_events", first, today - timedelta(days=1)),
        ("lifecycle", "pushes", first, today - timedelta(days=1)),
    ]
    assert sum("see table lost_records" in line for line in caplog.messages) == 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--source", "files:in", "--events-topic", "e"], "events_topic: works only with --source kafka"),
        (
            ["--source", "kafka", "--bootstrap-servers", "127.0.0.1:1", "--events-topic", "client-telemetry"],
            "events_topic: this job reads client-telemetry",
        ),
    ],
)
def test_a_feed_that_makes_no_sense_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    assert cli.main(["ingest", "--lake", str(tmp_path / "lake"), *flags]) == 2
    assert message in capsys.readouterr().err
