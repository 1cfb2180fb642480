"""Which changes of findings become messages: groups, routes, people's words, and what a new sink is sent."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.maintain import Maintenance, MaintenanceSettings
from kafka_telemetry_lake.pipelines.notify import messages as messages_module
from kafka_telemetry_lake.pipelines.notify import readable
from kafka_telemetry_lake.pipelines.notify.alerts import Alerts
from kafka_telemetry_lake.pipelines.notify.file import NotifyFile
from kafka_telemetry_lake.pipelines.notify.messages import Message, Messages
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from tests.support.expired_logs import expire_logs
from tests.support.lake_tables import table
from tests.unit.notify.changed_findings import at, change, make_lake, notify_file, record

URL = "http://127.0.0.1:9/hook"
ONE = notify_file(URL)
NOW = at(100)


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return make_lake(tmp_path)


def sent(lake: str, file: NotifyFile = ONE, now: datetime = NOW, sink: str = "one") -> list[list[tuple[str, str]]]:
    """Subjects and changes of the messages that a new process sends."""
    return [[(row["subject"], row["change"]) for row in each.changes] for each in messages(lake, file, now, sink)]


def messages(lake: str, file: NotifyFile = ONE, now: datetime = NOW, sink: str = "one") -> Iterator[Message]:
    outbox = Messages(lake, sink, file)
    while outbox.take(now):
        pass
    while outbox.seconds_until_due(now) == 0:
        yield outbox.next_message()
        outbox.done()


def test_a_change_is_sent_once_with_all_that_is_known(lake: str) -> None:
    assert sent(lake) == []
    record(lake, change("orders", owner="team-a", worst_instance="w" * 22))
    (message,) = messages(lake)
    (sent_change,) = message.changes
    assert (len(message.id), len(sent_change.pop("change_id"))) == (32, 32)
    assert sent_change == {
        "cluster_id": "c1", "finding_id": change("orders")["finding_id"], "finding": "no_compression",
        "severity": "warning", "scope": "client_id", "subject": "orders", "client_id": "orders", "owner": "team-a",
        "change": "opened", "at": "2026-11-23T12:00:00.000000Z", "opened_at": "2026-11-23T12:00:00.000000Z",
        "recorded_at": "2026-11-23T12:00:01.000000Z", "window_start": "2026-11-23T12:00:00.000000Z", "measure": 1.0,
        "instances": 200, "instances_affected": 3, "worst_instance": "w" * 22, "evidence": "compression rate 1.0",
        "advice": "set compression.type=zstd",
    }  # fmt: skip
    assert sent(lake) == []
    record(lake, change("orders", "changed", 5, severity="error"), change("orders", "resolved", 9))
    assert sent(lake) == [[("orders", "changed"), ("orders", "resolved")]]


def test_a_new_sink_is_sent_what_is_open_and_not_the_history(lake: str) -> None:
    record(lake, change("gone"), change("open"), change("muted"), change("said"))
    record(lake, change("gone", "resolved", 5), change("open", "changed", 6, severity="error"))
    record(lake, change("muted", "muted", 7, by="ann", why="known"), change("said", "acknowledged", 7, by="ann"))
    (message,) = messages(lake)
    assert [(row["subject"], row["change"], row["severity"], row["at"]) for row in message.changes] == [
        ("open", "opened", "error", "2026-11-23T12:00:00.000000Z")
    ]


@pytest.mark.parametrize("said", ["muted", "acknowledged"])
def test_what_is_muted_or_acknowledged_is_not_sent(lake: str, said: str) -> None:
    assert sent(lake) == []
    record(lake, change("orders", said, 1, by="ann"), change("orders", "changed", 2, severity="error"))
    record(lake, change("orders", "resolved", 3))
    assert sent(lake) == []


def test_the_end_of_what_was_sent_is_sent_although_it_was_muted_since(lake: str) -> None:
    record(lake, change("orders"))
    assert sent(lake) == [[("orders", "opened")]]
    record(lake, change("orders", "muted", 2), change("orders", "changed", 3, severity="error"))
    assert sent(lake) == []
    record(lake, change("orders", "resolved", 4))
    assert sent(lake) == [[("orders", "resolved")]]
    record(lake, change("orders", "opened", 5, opened_at=at(5)), change("orders", "resolved", 6))
    assert sent(lake) == []  # the mute is of the finding, however often it opens


def test_an_acknowledgement_ends_with_the_finding_a_mute_when_it_is_said(lake: str) -> None:
    assert sent(lake) == []
    record(lake, change("a"), change("a", "acknowledged", 1), change("m"), change("m", "muted", 1))
    assert sent(lake) == []
    record(lake, change("a", "resolved", 2), change("a", "opened", 3, opened_at=at(3)))
    record(lake, change("m", "unmuted", 4, by="ann"))
    assert sent(lake) == [[("a", "opened"), ("m", "unmuted")]]
    record(lake, change("m", "unmuted", 5, by="bob"))
    assert sent(lake) == []


def test_a_mute_ends_at_its_time_also_if_no_row_says_so(lake: str) -> None:
    assert sent(lake) == []
    record(lake, change("orders"), change("orders", "muted", 1, until=at(200)))
    assert sent(lake, now=at(199)) == []
    assert sent(lake, now=at(200)) == [[("orders", "unmuted")]]
    record(lake, change("orders", "unmuted", 200))
    assert sent(lake, now=at(201)) == []


def test_changes_of_a_group_wait_and_are_one_message(lake: str) -> None:
    file = NotifyFile.model_validate(
        {
            "sinks": {"one": {"type": "webhook", "url": URL}},
            "routes": [
                {"match": {"severity": "error"}, "sinks": ["one"], "group_seconds": 0},
                {"sinks": ["one"], "group_seconds": 60},
            ],
        }
    )
    assert sent(lake, file, at(0)) == []
    record(lake, change("a", second=1), change("urgent", second=1, severity="error"))
    assert sent(lake, file, at(10)) == [[("urgent", "opened")]]
    record(lake, change("b", second=11))
    assert sent(lake, file, at(69)) == []
    assert sent(lake, file, at(70)) == [[("a", "opened"), ("b", "opened")]]


def test_what_is_muted_before_its_group_is_due_is_not_sent(lake: str) -> None:
    file = notify_file(URL)
    file.routes[0].group_seconds = 60
    assert sent(lake, file, at(0)) == []
    record(lake, change("a"), change("b"))
    assert sent(lake, file, at(1)) == []
    record(lake, change("a", "muted", 2))
    assert sent(lake, file, at(3)) == []
    assert sent(lake, file, at(61)) == [[("b", "opened")]]
    record(lake, change("a", "resolved", 62), change("b", "resolved", 62))
    assert sent(lake, file, at(62)) == []
    assert sent(lake, file, at(122)) == [[("b", "resolved")]]


def test_an_end_that_waits_is_sent_although_the_finding_is_muted_meanwhile(lake: str) -> None:
    file = notify_file(URL)
    file.routes[0].group_seconds = 60
    record(lake, change("a"))
    assert sent(lake, file, at(0)) == []
    assert sent(lake, file, at(60)) == [[("a", "opened")]]
    record(lake, change("a", "resolved", 61))
    assert sent(lake, file, at(62)) == []
    record(lake, change("a", "muted", 63))
    assert sent(lake, file, at(64)) == []
    assert sent(lake, file, at(122)) == [[("a", "resolved")]]


def routed(**columns: Any) -> list[str]:
    """Sinks of a change, by rules for each column."""
    names = ("orders", "everyone", "severe", "owned")
    file = NotifyFile.model_validate(
        {
            "sinks": {name: {"type": "webhook", "url": URL} for name in names},
            "routes": [
                {"match": {"severity": "error"}, "sinks": ["severe"], "go_on": True},
                {"match": {"client_id": "orders-*", "owner": ["team-a", "team-b"]}, "sinks": ["orders"]},
                {"match": {"owner": "?*"}, "sinks": ["owned"]},
                {"match": {"owner": "", "finding": "no_*", "cluster_id": "c1"}, "sinks": ["everyone"]},
            ],
        }
    )
    return [name for _, route in file.routes_of(change("x", **columns)) for name in route.sinks]


def test_the_first_route_that_fits_is_used_unless_it_goes_on() -> None:
    assert routed(client_id="orders-1", owner="team-b") == ["orders"]
    assert routed(client_id="orders-1", owner="team-b", severity="error") == ["severe", "orders"]
    assert routed(client_id="orders-1", owner="team-c") == ["owned"]
    assert routed(client_id=None) == ["everyone"]
    assert routed(finding="silent_retries") == []
    assert routed(cluster_id="c2") == []


def test_each_sink_gets_its_routes_and_unrouted_changes_are_counted(
    lake: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = NotifyFile.model_validate(
        {
            "sinks": {name: {"type": "webhook", "url": URL} for name in ("a", "b")},
            "routes": [
                {"match": {"owner": "a"}, "sinks": ["a"], "group_seconds": 0},
                {"match": {"owner": "b"}, "sinks": ["b", "a"], "group_seconds": 0},
            ],
        }
    )
    first = Messages(lake, "a", file, counts_unrouted=True)
    second = Messages(lake, "b", file)
    assert (first.take(at(0)), second.take(at(0))) == (0, 0)
    record(lake, change("x", owner="a"), change("y", owner="b"), change("z"))
    assert (first.take(at(2)), second.take(at(2))) == (3, 3)
    assert [row["subject"] for row in first.next_message().changes] == ["x"]
    first.done()
    assert [row["subject"] for row in first.next_message().changes] == ["y"]
    assert [row["subject"] for row in second.next_message().changes] == ["y"]
    assert caplog.messages == ["notify: 1 changes fit no route; they are only in table finding_changes"]


def test_the_end_goes_where_the_beginning_went_also_after_the_owner_changed(lake: str) -> None:
    file = NotifyFile.model_validate(
        {
            "sinks": {name: {"type": "webhook", "url": URL} for name in ("a", "b")},
            "routes": [{"match": {"owner": name}, "sinks": [name], "group_seconds": 0} for name in ("a", "b")],
        }
    )
    record(lake, change("x", owner="a"))
    assert (sent(lake, file, sink="a"), sent(lake, file, sink="b")) == ([[("x", "opened")]], [])
    record(lake, change("x", "resolved", 3, owner="b"))
    assert (sent(lake, file, sink="a"), sent(lake, file, sink="b")) == ([[("x", "resolved")]], [])


def test_thousands_of_changes_are_several_messages(lake: str) -> None:
    assert sent(lake) == []
    for part in range(2):
        record(lake, *(change(f"c{part}-{each}") for each in range(1000)))
    found = sent(lake)
    assert [len(each) for each in found] == [messages_module.MOST_CHANGES] * 4
    assert len({subject for each in found for subject, _ in each}) == 2000
    assert sent(lake) == []


def test_a_full_outbox_leaves_changes_in_the_table(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages_module, "MOST_WAITING", 3)
    outbox = Messages(lake, "one", ONE)
    outbox.take(at(0))
    record(lake, *(change(f"a{each}") for each in range(4)))
    assert outbox.take(at(1)) == 4
    record(lake, change("later"))
    assert outbox.take(at(1)) == 0
    assert len(outbox.next_message().changes) == 4
    outbox.done()
    assert outbox.take(at(1)) == 1
    assert [row["subject"] for row in outbox.next_message().changes] == ["later"]


def test_after_compaction_vacuum_and_a_shortened_log_nothing_is_missing(lake: str) -> None:
    record(lake, change("before"))
    assert sent(lake) == [[("before", "opened")]]
    record(lake, change("a", second=10))
    record(lake, change("b", second=11))
    table = DeltaTable(FINDING_CHANGES.uri(lake))
    table.optimize.compact()
    table.vacuum(0, enforce_retention_duration=False, dry_run=False)
    assert sent(lake) == [[("a", "opened"), ("b", "opened")]]
    assert sent(lake) == []
    record(lake, change("c", second=12))
    record(lake, change("d", second=13))
    log = Path(FINDING_CHANGES.uri(lake)) / "_delta_log"
    DeltaTable(FINDING_CHANGES.uri(lake)).create_checkpoint()
    for commit in sorted(log.glob("*.json"))[:-1]:
        commit.unlink()
    found = sent(lake)
    assert found[0][-2:] == [("c", "opened"), ("d", "opened")]
    assert sent(lake) == []


def test_days_of_changes_that_retention_dropped_unsent_are_a_row_for_each_sink(lake: str) -> None:
    sink = {"type": "webhook", "url": URL}
    routes = [{"sinks": ["one", "two"], "group_seconds": 0}]
    both = NotifyFile.model_validate({"sinks": {"one": sink, "two": sink}, "routes": routes})
    record(lake, change("before"))
    assert all(sent(lake, both, sink=name) for name in ("one", "two"))
    record(lake, change("lost", second=10))
    first = at(0).date()
    found: list[dict[str, Any]] = []
    for day, expected in ((first, 0), (first + timedelta(days=3), 2)):
        settings = MaintenanceSettings({FINDING_CHANGES.name: 1}, 64 << 20, 168, 7)
        Maintenance(lake, f"{lake}/_checkpoints", settings, day).maintain(FINDING_CHANGES.name)
        copy = str(shutil.copytree(lake, f"{lake}-{day}"))
        expire_logs(Path(copy))
        Messages(copy, "one", both, writes=False).take(NOW)  # a look records nothing
        assert not Path(copy, "lost_records").exists()
        for name in ("one", "two", "one", "two"):
            sent(copy, both, sink=name)
        found = table(Path(copy), "lost_records").to_pylist() if Path(copy, "lost_records").exists() else []
        assert len(found) == expected
    assert sorted((row["source"], row["topic"], row["first_date"], row["last_date"]) for row in found) == [
        (f"notify:{name}", "finding_changes", first, first + timedelta(days=2)) for name in ("one", "two")
    ]


def test_a_damaged_outbox_is_named_with_what_to_do(lake: str) -> None:
    sent(lake)
    with pytest.raises(StateError, match=r"_notify/one-e0+.json is of another type of sink: delete it"):
        Alerts(lake, "one", notify_file("http://127.0.0.1:9", type="alertmanager"))
    file = Path(FINDING_CHANGES.uri(lake)) / "_notify" / "one-e000000000000.json"
    file.write_text(file.read_text().replace('"read_at": null', '"read_at": "z"'))
    with pytest.raises(StateError, match=r"_notify/one-e0+.json is damaged \(its checksum is wrong\): delete it"):
        Messages(lake, "one", ONE)


def test_messages_for_people_show_the_worst_first_and_nothing_that_a_client_may_do_harm_with() -> None:
    rows: list[dict[str, Any]] = [
        change("quiet", severity="info", at="1"),
        change("<!channel> @here \x1b[31m" + "x" * 1000, severity="error", at="2", evidence="rate\n< 1 %"),
    ]
    text = readable.text(rows)
    assert text.index("[error]") < text.index("[info]")
    assert "<!channel>" not in text
    assert "@here" not in text
    assert "\x1b" not in text
    first, second, third = text.split("\n\n")[0].split("\n")
    assert first.startswith(
        "[error] opened: no_\u200bcompression, client_id <\u200b!channel> @\u200bhere \\x1b[\u200b31m"
    )
    assert first.endswith("x… (cluster c1, 3 of 200 instances)")
    assert (second, third) == ("rate\\n<\u200b 1 %", "set compression.type=zstd")
    assert readable.title(rows) == "Kafka clients: 2 opened"
    assert readable.kind(rows).value == "failure"
    assert readable.kind([change("a", "resolved", severity="error")]).value == "success"
    many = readable.text([change(f"c{each}", at="1") for each in range(5000)])
    assert many.endswith("and 4980 more: see table finding_changes")
    assert len(many) < 20_000
