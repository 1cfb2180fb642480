"""Which changes of findings become messages: what fits a sink, and what a new one is sent."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast, get_type_hints

import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.notify import messages as messages_module
from kafka_telemetry_lake.pipelines.notify import outbox as outbox_module
from kafka_telemetry_lake.pipelines.notify.alerts import Alerts
from kafka_telemetry_lake.pipelines.notify.file import Match
from kafka_telemetry_lake.pipelines.notify.messages import Message, Messages
from kafka_telemetry_lake.pipelines.notify.outbox import ChangeRow
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from kafka_telemetry_lake.pipelines.upkeep.maintenance import Maintenance, MaintenanceSettings
from tests.support.expired_logs import expire_logs
from tests.support.lake_tables import table
from tests.unit.notify.changed_findings import at, change, record


def sent(lake: str, sink: str = "one", **match: Any) -> list[list[tuple[str | None, str]]]:
    """Subjects and changes of the messages that a new process sends."""
    return [[(row["subject"], row["change"]) for row in each.changes] for each in messages(lake, sink, **match)]


def messages(lake: str, sink: str = "one", **match: Any) -> Iterator[Message]:
    outbox = Messages(lake, sink, Match.model_validate(match))
    while outbox.take():
        pass
    while (message := outbox.next_message()) is not None:
        yield message
        outbox.done()


def as_json(subject: str, **columns: Any) -> ChangeRow:
    return cast(ChangeRow, change(subject, **columns))


def test_a_change_is_sent_once_with_all_that_is_known(lake: str) -> None:
    assert sent(lake) == []
    record(lake, change("orders", owner="team-a", worst_instance="w" * 22))
    (message,) = messages(lake)
    (sent_change,) = message.content()["changes"]
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
    assert get_type_hints(ChangeRow).keys() == set(FINDING_CHANGES.schema.names)


def test_a_new_sink_is_sent_what_is_open_and_not_the_history(lake: str) -> None:
    record(lake, change("gone"), change("open"), change("muted"))
    record(lake, change("gone", "resolved", 5), change("open", "changed", 6, severity="error"))
    record(lake, change("muted", "muted", 7, by="ann", why="known"))
    (message,) = messages(lake)
    assert [(row["subject"], row["change"], row["severity"], row["at"]) for row in message.changes] == [
        ("open", "opened", "error", "2026-11-23T12:00:00.000000Z"),
        ("muted", "opened", "warning", "2026-11-23T12:00:00.000000Z"),
    ]
    record(lake, change("open", "resolved", 8))
    assert sent(lake) == [[("open", "resolved")]]


@pytest.mark.parametrize("said", ["muted", "unmuted", "acknowledged"])
def test_what_people_say_of_a_finding_is_no_message_and_holds_none_back(lake: str, said: str) -> None:
    record(lake, change("orders"))
    assert sent(lake) == [[("orders", "opened")]]
    record(lake, change("orders", said, 1, by="ann"))
    assert sent(lake) == []
    record(lake, change("orders", "changed", 2, severity="error"), change("orders", "resolved", 3))
    assert sent(lake) == [[("orders", "changed"), ("orders", "resolved")]]


def fits(match: dict[str, Any], **columns: Any) -> bool:
    return Match.model_validate(match).fits(change("x", **columns))


def test_a_filter_has_patterns_for_columns_of_which_all_must_fit() -> None:
    assert fits({})
    assert fits({"severity": "error"}, severity="error")
    assert not fits({"severity": "error"}, severity="warning")
    team = {"client_id": "orders-*", "owner": ["team-a", "team-b"]}
    assert fits(team, client_id="orders-1", owner="team-b")
    assert not fits(team, client_id="orders-1", owner="team-c")
    assert not fits(team, client_id="Orders-1", owner="team-b")
    assert fits({"owner": "?*"}, owner="team-c")
    assert not fits({"owner": "?*"}, owner=None)
    assert fits({"owner": "", "finding": "no_*", "cluster_id": "c1"}, owner=None)
    assert not fits({"owner": "", "finding": "no_*", "cluster_id": "c1"}, owner=None, finding="silent_retries")


def test_the_end_goes_where_the_beginning_went_also_after_the_owner_changed(lake: str) -> None:
    record(lake, change("x", owner="a"))
    assert (sent(lake, "a", owner="a"), sent(lake, "b", owner="b")) == ([[("x", "opened")]], [])
    record(lake, change("x", "changed", 2, owner="b"))
    assert (sent(lake, "a", owner="a"), sent(lake, "b", owner="b")) == ([], [[("x", "changed")]])
    record(lake, change("x", "resolved", 3, owner="c"))
    assert (sent(lake, "a", owner="a"), sent(lake, "b", owner="b")) == ([[("x", "resolved")]], [[("x", "resolved")]])
    record(lake, change("y", owner="c"), change("y", "resolved", 4, owner="a"))
    assert sent(lake, "a", owner="a") == []  # it wasn't sent its beginning


def test_a_full_outbox_leaves_changes_in_the_table(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "MOST_WAITING", 3)
    outbox = Messages(lake, "one", Match())
    assert (outbox.take(), outbox.take()) == (True, False)
    record(lake, *(change(f"a{each}") for each in range(4)))
    assert outbox.take()
    record(lake, change("later"))
    assert not outbox.take()
    message = outbox.next_message()
    assert message is not None
    assert len(message.changes) == 4
    outbox.done()
    assert outbox.take()
    assert [row["subject"] for row in outbox.waiting] == ["later"]


def test_a_message_that_was_begun_stays_the_same_whatever_comes(lake: str) -> None:
    record(lake, change("a"))
    outbox = Messages(lake, "one", Match())
    outbox.take()
    first = outbox.next_message()
    record(lake, change("b", second=1))
    again = Messages(lake, "one", Match())  # the process before was killed while it sent
    assert again.take()
    assert again.next_message() == first
    again.done()
    second = again.next_message()
    assert second is not None
    assert [row["subject"] for row in second.changes] == ["b"]


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
    record(lake, change("before"))
    assert all(sent(lake, name) for name in ("one", "two"))
    record(lake, change("lost", second=10))
    first = at(0).date()
    found: list[dict[str, Any]] = []
    for day, expected in ((first, 0), (first + timedelta(days=3), 2)):
        settings = MaintenanceSettings({FINDING_CHANGES.name: 1}, 64 << 20, 168, 7)
        Maintenance(lake, f"{lake}/_checkpoints", settings, day).maintain(FINDING_CHANGES.name)
        copy = str(shutil.copytree(lake, f"{lake}-{day}"))
        expire_logs(Path(copy))
        Messages(copy, "one", Match(), writes=False).take()  # a look records nothing
        assert not Path(copy, "lost_records").exists()
        for name in ("one", "two", "one", "two"):
            sent(copy, name)
        found = table(Path(copy), "lost_records").to_pylist() if Path(copy, "lost_records").exists() else []
        assert len(found) == expected
    assert sorted((row["source"], row["topic"], row["first_date"], row["last_date"]) for row in found) == [
        (f"notify:{name}", "finding_changes", first, first + timedelta(days=2)) for name in ("one", "two")
    ]


def test_a_damaged_outbox_is_named_with_what_to_do(lake: str) -> None:
    sent(lake)
    with pytest.raises(StateError, match=r"_notify/one-e0+.json is of another type of sink: delete it"):
        Alerts(lake, "one", Match())
    file = Path(FINDING_CHANGES.uri(lake)) / "_notify" / "one-e000000000000.json"
    file.write_text(file.read_text().replace('"read_at": null', '"read_at": "z"'))
    with pytest.raises(StateError, match=r"_notify/one-e0+.json is damaged \(its checksum is wrong\): delete it"):
        Messages(lake, "one", Match())


def test_messages_for_people_show_the_worst_first_and_nothing_that_a_client_may_do_harm_with() -> None:
    rows = [
        as_json("quiet", severity="info", at="1"),
        as_json("<!channel> @here \x1b[31m" + "x" * 1000, severity="error", at="2", evidence="rate\n< 1 %"),
    ]
    text = messages_module.text(rows)
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
    assert messages_module.title(rows) == "Kafka clients: 2 opened"
    assert messages_module.kind(rows).value == "failure"
    assert messages_module.kind([as_json("a", kind="resolved", severity="error")]).value == "success"
    many = messages_module.text([as_json(f"c{each}", at="1") for each in range(5000)])
    assert many.endswith("and 4980 more: see table finding_changes")
    assert len(many) < 20_000
