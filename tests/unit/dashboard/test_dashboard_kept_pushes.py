"""Who pushed by the pushes that are kept is who pushed by SQL over the files, whatever was committed before."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.dashboards import kept_pushes
from kafka_telemetry_lake.dashboards.address import Selection
from kafka_telemetry_lake.dashboards.answers import LakeError
from kafka_telemetry_lake.dashboards.kept_pushes import KeptPushes
from kafka_telemetry_lake.dashboards.lake import LakeReader
from kafka_telemetry_lake.dashboards.scene import open_scene
from kafka_telemetry_lake.pipelines.query.duckdb_tables import native_select
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES, PUSHES
from tests.support.application_lake import put
from tests.support.asked_questions import note_questions

pytestmark = pytest.mark.lake

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
Rows = list[dict[str, Any]]


def pushes(chance: random.Random, seconds: range, count: int = 40) -> Rows:
    """Of instances that change all that can change, some with an equal id in another cluster; no two at a time."""
    return [
        {
            "client_instance_id": f"i{number // 2}" if number else None,
            "cluster_id": ("east", "west", None)[number % 3],
            "client_id": chance.choice(["orders", "", None, "bills"]), "principal": chance.choice(["User:a", None]),
            "client_software_name": chance.choice(["java", None]), "client_software_version": str(number % 4),
            "client_address": chance.choice(["10.0.0.1", None]), "terminating": chance.choice([True, False, None]),
            "push_interval_ms": chance.choice([1000, 60_000, 0, None]), "landed_date": NOON.date(),
            "landed_at": NOON + second * SECOND + number * timedelta(milliseconds=1) + timedelta(microseconds=7),
            "labels": chance.choice([None, [("group_id", f"g{number % 3}")], [("client_rack", "r")]]),
        }
        for second, number in zip(chance.sample(seconds, count), chance.choices(range(30), k=count), strict=True)
    ]  # fmt: skip


@pytest.fixture
def lake(tmp_path: Path) -> LakeReader:
    for table in (PUSHES, PUSH_OUTCOMES):
        table.create(str(tmp_path))
    return LakeReader(str(tmp_path))


def append(lake: LakeReader, rows: Rows) -> None:
    for table in (PUSHES, PUSH_OUTCOMES):
        put(Path(lake.uri), table, rows)


def look(lake: LakeReader) -> None:
    lake.look_again()
    lake.versions()


def assert_same(lake: LakeReader, start: datetime, stop: datetime) -> int:
    """What is kept answers as the files do; returns how many instances pushed."""
    look(lake)
    kept = lake.pushed(start, stop)
    assert kept is not None
    of_files = lake.ask("instances", {"start": start, "stop": stop})
    assert kept.instances().schema == of_files.schema
    assert kept.instances().to_pylist() == of_files.to_pylist()
    assert kept.totals().to_pylist() == lake.ask("totals", {"start": start, "stop": stop}).to_pylist()
    return int(of_files.num_rows)


def compact(lake: LakeReader, chance: random.Random) -> None:
    DeltaTable(PUSHES.uri(lake.uri)).optimize.compact()


def erase(lake: LakeReader, chance: random.Random) -> None:
    for table in (PUSHES, PUSH_OUTCOMES):
        DeltaTable(table.uri(lake.uri)).delete(f"client_instance_id = 'i{chance.randrange(15)}'")


def follow(lake: LakeReader, chance: random.Random) -> None:
    append(lake, pushes(chance, range(3600, 4200), 10))


def come_late(lake: LakeReader, chance: random.Random) -> None:
    append(lake, pushes(chance, range(4200), 10))


CHANGES: tuple[Callable[[LakeReader, random.Random], None], ...] = (compact, erase, follow, come_late)


@pytest.mark.parametrize("seed", range(2))
def test_who_pushed_by_what_is_kept_is_who_pushed_by_the_files(lake: LakeReader, seed: int) -> None:
    """In any ranges, and after any commits."""
    chance, found = random.Random(seed), 0
    for second in range(0, 3600, 1200):
        append(lake, pushes(chance, range(second, second + 1300)))
    for _ in range(8):
        start = NOON + chance.randrange(-600, 3000) * SECOND
        found += assert_same(lake, start, start + chance.randrange(60, 4000) * SECOND)
        if chance.random() < 0.7:
            chance.choice(CHANGES)(lake, chance)
    assert found > 50


def test_of_pushes_at_one_time_the_instance_with_the_least_id_comes_first(lake: LakeReader) -> None:
    at = {"landed_at": NOON, "landed_date": NOON.date(), "cluster_id": "c"}
    for ids in ("ca", "b"):
        append(lake, [{"client_instance_id": each, **at} for each in ids])
        assert_same(lake, NOON, NOON + HOUR)
    kept = lake.pushed(NOON, NOON + HOUR)
    assert kept is not None
    assert kept.instances()["client_instance_id"].to_pylist() == ["a", "b", "c"]


@pytest.mark.parametrize("most", [0, 50])
def test_of_more_pushes_than_may_be_kept_the_latest_are(lake: LakeReader, most: int) -> None:
    """What is earlier the files answer; texts of pushes that are kept no more are forgotten."""
    chance = random.Random(11)
    lake.pushes = KeptPushes(most)
    texts = list[int]()
    for minute in range(8):
        append(lake, pushes(chance, range(60 * minute, 60 * minute + 60), 10))
        look(lake)
        if lake.pushed(start := NOON + (60 * minute + 59) * SECOND, start + HOUR) is not None:
            assert_same(lake, start, start + HOUR)
        kept = lake.pushes._kept
        assert len(kept.columns["at"]) <= most
        texts.append(len(kept.texts["client_instance_id"]))
        assert texts[-1] == len({*kept.columns["client_instance_id"]})
        numbers = [kept.instances[int(each)].as_py() for each in kept.columns["instance"]]
        assert len({*numbers}) == len(kept.instances)
    assert (max(texts) > 3) == (most > 0)
    assert lake.pushed(NOON, NOON + HOUR) is None
    assert not lake.pushes.keeps(NOON)
    known = [start for second in range(480) if lake.pushes.keeps(start := NOON + second * SECOND)]
    assert bool(assert_same(lake, known[0], known[0] + HOUR)) == (most > 0)


def test_a_commit_reads_only_the_files_that_it_added(lake: LakeReader, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[int]()

    def noted(cursor: Any, table: DeltaTable, only: list[str]) -> str | None:
        read.append(len(only))
        return native_select(cursor, table, only=only)

    monkeypatch.setattr(kept_pushes, "native_select", noted)
    chance = random.Random(3)
    for _ in range(3):
        append(lake, pushes(chance, range(3600)))
    assert_same(lake, NOON, NOON + HOUR)
    assert_same(lake, NOON + 60 * SECOND, NOON + HOUR)
    assert read == [3, 3]
    append(lake, pushes(chance, range(3600)))
    assert_same(lake, NOON, NOON + HOUR)
    assert read == [3, 3, 1, 1]


def test_what_was_interrupted_leaves_what_is_kept_as_it_was(lake: LakeReader, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(9)
    append(lake, pushes(chance, range(3600)))
    assert_same(lake, NOON, NOON + HOUR)
    for step, error in (("_sorted", duckdb.InterruptException("ended")), ("_numbered", OSError("a file has ended"))):
        append(lake, pushes(chance, range(3600)))
        with monkeypatch.context() as broken:
            broken.setattr(kept_pushes, step, Mock(side_effect=error))
            look(lake)
            with pytest.raises(LakeError, match="ended"):
                lake.pushed(NOON, NOON + HOUR)
            assert not lake.pushes.keeps(NOON)
        assert assert_same(lake, NOON, NOON + HOUR)


def test_texts_beyond_the_bound_are_not_kept(lake: LakeReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQL answers then, and the files aren't read again for each commit."""
    append(lake, pushes(random.Random(1), range(60)))
    monkeypatch.setattr(kept_pushes, "MOST_TEXT_BYTES", 100)
    lake.versions()
    assert lake.pushed(NOON, NOON + HOUR) is None
    monkeypatch.undo()
    append(lake, pushes(random.Random(2), range(60)))
    look(lake)
    assert lake.pushed(NOON, NOON + HOUR) is None
    assert not lake.pushes.keeps(NOON)


def test_who_was_erased_is_not_kept_even_if_nothing_new_can_be(
    lake: LakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(lake, pushes(random.Random(1), range(60)))
    assert assert_same(lake, NOON, NOON + HOUR)
    assert "orders" in lake.pushes._kept.texts["client_id"].to_pylist()
    DeltaTable(PUSHES.uri(lake.uri)).delete("client_id = 'orders'")
    monkeypatch.setattr(kept_pushes, "_followed", lambda *_: None)
    look(lake)
    assert lake.pushed(NOON, NOON + HOUR) is None
    assert lake.pushes._kept.texts["client_id"].to_pylist() == []


def test_a_look_at_the_lake_in_mid_read_is_no_answer(lake: LakeReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables are updated in place: the files that were listed may be others than those that are read."""
    append(lake, pushes(random.Random(1), range(60)))
    files = kept_pushes._files

    def compacted(table: DeltaTable) -> Any:
        listed = files(table)
        DeltaTable(table.table_uri).optimize.compact()
        table.update_incremental()
        return listed

    append(lake, pushes(random.Random(2), range(60, 120)))
    monkeypatch.setattr(kept_pushes, "_files", compacted)
    lake.versions()
    with suppress(LakeError):
        assert lake.pushed(NOON, NOON + HOUR) is None
    monkeypatch.undo()
    assert assert_same(lake, NOON, NOON + HOUR)


def test_a_page_asks_about_the_clients_that_are_kept_and_not_for_their_pushes(
    lake: LakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(lake, pushes(random.Random(4), range(3600), 200))
    lake.versions()
    reads = list[frozenset[str]]()
    run = LakeReader.run

    def noted(own: LakeReader, name: str, sql: str, of: frozenset[str], *others: Any, **more: Any) -> pa.Table:
        reads.append(of)
        return run(own, name, sql, of, *others, **more)

    monkeypatch.setattr(LakeReader, "run", noted)
    asked = note_questions(monkeypatch)
    scene = open_scene(lake.uri, Selection(start=NOON, stop=NOON + HOUR))
    assert scene is not None
    reads.clear()
    software = scene.ask("software")
    assert software["instances"].sum() == scene.totals.instances
    assert scene.newest(3)["client_instance_id"].tolist() == scene.chosen["client_instance_id"].to_pylist()[:3]
    assert asked == ["extent", "totals", "instances", "software", "newest_instances"]
    assert reads == [frozenset(), frozenset()]
