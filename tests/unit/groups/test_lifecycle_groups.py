"""Consumer groups as Admin lists them, and their committed offsets: stored rows and rewinds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError

from kafka_telemetry_lake.pipelines.groups import offsets as consumer_group_offsets
from kafka_telemetry_lake.pipelines.groups.members import Committed, _partitions
from kafka_telemetry_lake.pipelines.groups.offsets import record_offsets
from kafka_telemetry_lake.pipelines.lake.privacy import Privacy
from tests.support.lake_tables import table

T = [datetime(2026, 11, 21, 12, minute, tzinfo=UTC) for minute in range(10)]


def at(partition: int, offset: int, group: str = "g") -> Committed:
    return Committed(group, "t", partition, offset)


def look(lake: Path, minute: int, *committed: Committed, cluster: str = "c") -> int:
    return record_offsets(str(lake), cluster, committed, T[minute])


def stored_offsets(lake: Path) -> list[tuple[Any, ...]]:
    rows = table(lake, "group_offsets").to_pylist()
    names = ("cluster_id", "group_id", "partition", "committed_offset", "seen_at", "rewound_from")
    return sorted((tuple(row[name] for name in names) for row in rows), key=str)


def events(lake: Path) -> list[tuple[Any, ...]]:
    if not (lake / "client_events").exists():
        return []
    rows = table(lake, "client_events").to_pylist()
    assert {row["event"] for row in rows} <= {"offset_rewound"}
    return sorted((row["at"], row["cluster_id"], dict(row["detail"])) for row in rows)


def rewound(minute: int, before: int, after: int, partition: int = 0) -> tuple[Any, ...]:
    detail = {"group_id": "g", "topic": "t", "partition": str(partition), "from": str(before), "to": str(after)}
    return T[minute], "c", detail


def test_offsets_that_go_back_are_an_event(tmp_path: Path) -> None:
    assert look(tmp_path, 0, at(0, 100), at(1, 7)) == 0
    assert look(tmp_path, 1, at(0, 150), at(1, 7)) == 0
    assert look(tmp_path, 2, at(0, 20), at(1, 7)) == 1
    assert stored_offsets(tmp_path) == [("c", "g", 0, 20, T[2], 150), ("c", "g", 1, 7, T[0], None)]
    assert look(tmp_path, 3, at(0, 20), at(1, 7)) == 0
    assert look(tmp_path, 4, at(0, 21), at(1, 0)) == 1
    assert events(tmp_path) == [rewound(2, 150, 20), rewound(4, 7, 0, 1)]
    assert stored_offsets(tmp_path)[0] == ("c", "g", 0, 21, T[4], None)


def test_groups_that_end_and_other_clusters(tmp_path: Path) -> None:
    look(tmp_path, 0, at(0, 100), at(0, 50, "h"))
    look(tmp_path, 1, at(0, 3), cluster="d")
    look(tmp_path, 2, at(0, 100))
    assert stored_offsets(tmp_path) == [("c", "g", 0, 100, T[0], None), ("d", "g", 0, 3, T[1], None)]
    look(tmp_path, 3)
    look(tmp_path, 4, at(0, 10))  # deleted and made again: a new group
    assert events(tmp_path) == []


def test_a_group_whose_offsets_are_unknown_keeps_those_of_the_poll_before(tmp_path: Path) -> None:
    look(tmp_path, 0, at(0, 100), at(0, 50, "h"))
    assert record_offsets(str(tmp_path), "c", [at(0, 50, "h")], T[1], lambda group: group == "g") == 0
    assert stored_offsets(tmp_path) == [("c", "g", 0, 100, T[0], None), ("c", "h", 0, 50, T[0], None)]
    assert look(tmp_path, 2, at(0, 90), at(0, 50, "h")) == 1
    assert events(tmp_path) == [rewound(2, 100, 90)]


def test_an_unchanged_look_writes_nothing(tmp_path: Path) -> None:
    look(tmp_path, 0, *(at(partition, partition) for partition in range(20)))
    commits = len(list((tmp_path / "group_offsets" / "_delta_log").glob("*.json")))
    look(tmp_path, 1, *(at(partition, partition) for partition in reversed(range(20))))
    assert len(list((tmp_path / "group_offsets" / "_delta_log").glob("*.json"))) == commits


class KilledError(Exception):
    pass


@pytest.mark.parametrize("written", [True, False])
def test_the_events_of_a_look_that_was_killed_are_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    look(tmp_path, 0, at(0, 100), at(1, 100))
    real = consumer_group_offsets._add_events

    def killed(lake: str, rows: Iterable[Any], step: int) -> int:
        if step > 1 and written:
            real(lake, rows, step)
        if step > 1:
            raise KilledError
        return real(lake, rows, step)

    with monkeypatch.context() as patch:
        patch.setattr(consumer_group_offsets, "_add_events", killed)
        with pytest.raises(KilledError):
            look(tmp_path, 1, at(0, 20), at(1, 100))
    look(tmp_path, 2, at(0, 20), at(1, 30))
    look(tmp_path, 3, at(0, 20), at(1, 30))
    assert events(tmp_path) == [rewound(1, 100, 20), rewound(2, 100, 30, 1)]


def test_two_processes_that_look_at_once_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look(tmp_path, 0, at(0, 100))
    real = write_deltalake

    def other_was_faster(*arguments: Any, **options: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(consumer_group_offsets, "write_deltalake", real)
            look(tmp_path, 1, at(0, 20))
        real(*arguments, **options)

    monkeypatch.setattr(consumer_group_offsets, "write_deltalake", other_was_faster)
    with pytest.raises(CommitFailedError):
        look(tmp_path, 1, at(0, 20))
    assert events(tmp_path) == [rewound(1, 100, 20)]


def test_what_java_prints_of_an_assignment() -> None:
    assert _partitions("[]") == []
    assert _partitions("[t-10, a-b-0, t-9]") == ["a-b-0", "t-9", "t-10"]


def test_addresses_of_members_are_kept_as_those_of_pushes() -> None:
    assert Privacy().of("10.0.0.1") == "10.0.0.1"
    assert Privacy("drop").of("10.0.0.1") is None
    # As SQL's sha2(concat('k', char(0), '10.0.0.1'), 256) has it.
    assert Privacy("hash", "k").of("10.0.0.1") == "2cbb5b4aac354d27d80c38d31d014a1a"
