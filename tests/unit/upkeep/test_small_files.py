"""Today's small files are merged beside the stream: same rows, few files, nothing that somebody still needs."""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.ingest.row_order import BY_CLIENT
from kafka_telemetry_lake.pipelines.lake.delta_log import files_of
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.log_files import LogFiles
from kafka_telemetry_lake.pipelines.lake.table_files import TableFiles
from kafka_telemetry_lake.pipelines.replay.replay import replay
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, OPERATOR_TABLES, PUSH_OUTCOMES, PUSHES, TABLES
from kafka_telemetry_lake.pipelines.tables.table import LOG_SETTINGS
from kafka_telemetry_lake.pipelines.upkeep import small_files
from kafka_telemetry_lake.pipelines.upkeep.merging import MergeEndedError, merged
from kafka_telemetry_lake.pipelines.upkeep.small_files import (
    AT_ONCE,
    KEPT_UP,
    MANY,
    TARGET_BYTES,
    SmallFiles,
    Upkeep,
    runs_to_merge,
)
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS
from kafka_telemetry_lake.udfs.rows import TEXT_MAP, TIMESTAMP
from tests.support.lake_tables import table
from tests.support.ledger import Fleet
from tests.support.ledger_check import check
from tests.support.local_stream import LocalStream, run_tasks, stream_of
from tests.unit.replay.test_replay import rows_of

pytestmark = pytest.mark.lake

EVENING = "2026-11-20"
MERGED = (PUSHES, *OPERATOR_TABLES)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four files are many."""
    monkeypatch.setattr(small_files, "MANY", 4)


def files(stream: LocalStream, name: str) -> list[dict[str, Any]]:
    return files_of(DeltaTable(str(stream.lake / name)))


def merge(stream: LocalStream, today: str = EVENING) -> dict[str, int]:
    return {each.name: SmallFiles(each, Lake(str(stream.lake))).merge(today) for each in MERGED}


def sizes(*bytes_of_files: int, day: str = EVENING) -> list[dict[str, Any]]:
    return [
        {"path": str(i), "size_bytes": size, "partition": {"landed_date": day}} for i, size in enumerate(bytes_of_files)
    ]


def runs(*bytes_of_files: int) -> list[tuple[int, int]]:
    return [(run.start, run.stop) for run in runs_to_merge(sizes(*bytes_of_files))]


def test_neighbours_are_merged_when_many() -> None:
    small, large = 10_000, 3 << 20
    assert runs(*[small] * (MANY - 1)) == []
    assert runs(*[small] * MANY) == [(0, MANY)]
    assert runs(*[large] * 3, *[small] * MANY)[0] == (3, 3 + MANY)
    assert runs(*[small] * (MANY - 1), large, *[small] * (MANY - 1)) == []
    assert runs(*[small] * 5 * MANY)[0] == (0, AT_ONCE * MANY), "bounds what is open at once"
    two_days = [*sizes(*[small] * (MANY - 1)), *sizes(*[small] * (MANY - 1), day="2026-11-21")]
    assert list(runs_to_merge(two_days)) == []


def test_the_oldest_of_many_become_a_file_of_the_target_size() -> None:
    small, large = 10_000, 3 << 20
    assert runs(*[large] * (MANY - 1)) == []
    assert runs(*[large] * MANY)[0] == (0, 42), "126 MB"
    assert runs(*[large, small] * (MANY - 1)) == [], "only files of about the size count"
    assert runs(*[large, small] * MANY)[0] == (0, 84), "smaller ones between larger ones go with them"
    assert runs(*[TARGET_BYTES // 2] * MANY)[0] == (0, 2)
    assert runs(*[TARGET_BYTES // 2 + 1] * 2 * MANY) == [], "two of them are more than the target size"


@pytest.mark.parametrize(("size", "again"), [(5_000, 1.8), (1 << 20, 1.0)])
def test_a_day_of_a_fast_job_has_hundreds_of_files(size: int, again: float) -> None:
    """86,400 files of two tasks and a batch every two seconds; a merged file is as large as its rows together."""
    live: list[dict[str, Any]] = []
    written = most = 0
    for number in range(0, 86_400, 60):
        live += [{"size_bytes": size, "partition": EVENING}] * 60
        if number:
            while (run := next(runs_to_merge(live), None)) is not None:
                total = sum(file["size_bytes"] for file in live[run])
                written += total
                live[run] = [{"size_bytes": total, "partition": EVENING}]
        most = max(most, len(live))
    whole = 86_400 * size / TARGET_BYTES
    assert most < 400 + whole
    assert written <= again * 86_400 * size, "how often a row is written again"


def test_a_merged_file_has_large_row_groups_whose_texts_are_dictionaries(tmp_path: Path) -> None:
    stream, _ = stream_of(tmp_path, 5, 4)
    before = table(stream.lake, "metric_points")
    file = merged(METRIC_POINTS, Lake(str(stream.lake)), files(stream, "metric_points"))
    stored = pq.ParquetFile(stream.lake / "metric_points" / file.path)
    assert [stored.metadata.row_group(i).num_rows for i in range(stored.num_row_groups)] == [before.num_rows]
    group = stored.metadata.row_group(0)
    encodings = {group.column(i).path_in_schema: set(group.column(i).encodings) for i in range(group.num_columns)}
    for path in ("metric", "attributes.key_value.key", "attributes.key_value.value"):
        assert "RLE_DICTIONARY" in encodings[path], path
    size = {group.column(i).path_in_schema: group.column(i).total_uncompressed_size for i in range(group.num_columns)}
    ids = before["client_instance_id"]
    assert size["client_instance_id"] < 26 * len(pc.unique(ids)) + len(ids) + 100, "each text once, a byte for each row"
    assert file.rows == before.num_rows


def test_files_of_row_groups_with_other_attributes_are_merged(tmp_path: Path) -> None:
    """As tasks write them for large batches. Arrow can't read such attributes as dictionaries."""
    landed_at = pa.array([datetime(2026, 11, 20, tzinfo=UTC)] * 2, TIMESTAMP)
    columns = {field.name: pa.nulls(2, field.type) for field in METRIC_POINTS.schema}
    written = TableFiles(METRIC_POINTS, str(tmp_path))
    for value in ("a", "b"):
        attributes = pa.array([[("group_member_id", value)]] * 2, TEXT_MAP)
        written.write(pa.table(columns | {"landed_at": landed_at, "attributes": attributes}, METRIC_POINTS.schema))
    (file,) = written.close()
    row = {"path": file.path, "partition": {"landed_date": file.landed_date}}
    again = merged(METRIC_POINTS, Lake(str(tmp_path)), [row])
    stored = pq.ParquetFile(tmp_path / "metric_points" / again.path)
    assert stored.num_row_groups == 1
    values = stored.read()["attributes"].to_pylist()
    assert values == [[("group_member_id", value)] for value in "aabb"]


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_the_rows_stay_and_the_stream_and_a_replay_go_on(tmp_path: Path) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet(clients=3)
    upkeep = {each.name: SmallFiles(each, Lake(str(stream.lake))) for each in MERGED}
    for _ in range(9):
        stream.batch(fleet.round())
        for own in upkeep.values():
            own.merge(EVENING)
    assert check(stream.lake, fleet.ledger).problems == []
    for each in MERGED:
        assert len(files(stream, each.name)) <= 6, each.name
    read = [
        [
            tuple(row[name] for name in BY_CLIENT)
            for row in pq.read_table(stream.lake / "pushes" / file["path"]).to_pylist()
        ]
        for file in files(stream, "pushes")
    ]
    largest = max(read, key=len)
    assert len(largest) > 20
    assert largest == sorted(largest)
    before = rows_of(stream.lake)
    replay(str(stream.lake), str(stream.checkpoints), None, DEFAULT_LIMITS, 1, run_tasks)
    assert rows_of(stream.lake) == before


@pytest.mark.usefixtures("few")
def test_a_merge_changes_no_data_for_followers_and_keeps_statistics_and_columns(tmp_path: Path) -> None:
    stream, _ = stream_of(tmp_path, 5, 4)
    assert set(merge(stream, today="2026-11-21").values()) == {0}, "other days are left to `maintain`"
    rows = table(stream.lake, "metric_points").sort_by([("partition", "ascending"), ("offset", "ascending"),
                                                        ("metric", "ascending")])  # fmt: skip
    assert merge(stream) == {each.name: {"pushes": 4, "quarantine": 0, "client_events": 0}.get(each.name, 8)
                             for each in MERGED} | {"quarantine": 4}  # fmt: skip
    (merged,) = files(stream, "metric_points")
    assert merged["num_records"] == rows.num_rows
    assert merged["min"]["offset"] == 0
    after = table(stream.lake, "metric_points").sort_by([("partition", "ascending"), ("offset", "ascending"),
                                                         ("metric", "ascending")])  # fmt: skip
    assert after.equals(rows)
    stored = pq.read_schema(stream.lake / "metric_points" / merged["path"])
    assert "explicit_bounds" not in stored.names, "a column without a value stays out"
    assert stored.field("metric").type == pa.string()
    log = LogFiles(METRIC_POINTS.uri(str(stream.lake)))
    actions = log.read(DeltaTable(str(stream.lake / "metric_points")).version()) or []
    changes = {each[kind]["dataChange"] for each in actions for kind in ("add", "remove") if kind in each}
    assert changes == {False}


@pytest.mark.usefixtures("few")
def test_pushes_that_are_not_judged_stay_as_they_are(tmp_path: Path) -> None:
    stream, fleet = stream_of(tmp_path, 3, 4)
    judged = DeltaTable(str(stream.lake / "pushes")).version()
    waiting = set(stream.paths())
    for _ in range(4):
        stream.land(fleet.round())
    waiting = set(stream.paths()) - waiting
    upkeep = SmallFiles(PUSHES, Lake(str(stream.lake)))
    assert upkeep.merge(EVENING, judged) == 0, "it began with files that are needed as they are"
    assert upkeep.merge(EVENING, judged + 4) == 8
    again = LocalStream(tmp_path / "again")
    followed = SmallFiles(PUSHES, Lake(str(again.lake)))
    followed.merge(EVENING, 0)
    for number in range(8):
        again.land(Fleet(clients=2).round())
        if number == 3:
            assert followed.merge(EVENING, 4) == 4
    assert followed.merge(EVENING, 5) == 0
    assert waiting


@pytest.mark.usefixtures("few")
def test_files_that_another_process_removes_are_not_merged(tmp_path: Path) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet(clients=3)
    upkeep = SmallFiles(PUSH_OUTCOMES, Lake(str(stream.lake)))
    upkeep.merge(EVENING)
    for _ in range(2):
        stream.batch(fleet.round())
    assert upkeep.merge(EVENING) == 4
    DeltaTable(str(stream.lake / "push_outcomes")).delete("partition = 0")
    rows = table(stream.lake, "push_outcomes").num_rows
    for _ in range(2):
        stream.batch(fleet.round())
    assert upkeep.merge(EVENING) == 5
    assert table(stream.lake, "push_outcomes").num_rows > rows
    assert (
        0
        not in table(stream.lake, "push_outcomes")
        .filter(pa.compute.field("landed_at") < fleet._at(3))["partition"]
        .to_pylist()
    )


@pytest.mark.usefixtures("few")
def test_a_merge_that_is_stopped_changes_nothing(tmp_path: Path) -> None:
    stream, _ = stream_of(tmp_path, 3, 4)
    ended = threading.Event()
    ended.set()
    for each in (PUSHES, METRIC_POINTS):
        version = DeltaTable(each.uri(str(stream.lake))).version()
        with pytest.raises(MergeEndedError):
            SmallFiles(each, Lake(str(stream.lake))).merge(EVENING, None, ended)
        assert DeltaTable(each.uri(str(stream.lake))).version() == version


def test_the_log_gets_checkpoints_and_loses_what_has_expired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_files, "CHECKPOINT_COMMITS", 5)
    stream, fleet = LocalStream(tmp_path), Fleet(clients=2)
    log = stream.lake / "push_outcomes" / "_delta_log"
    upkeep = SmallFiles(PUSH_OUTCOMES, Lake(str(stream.lake)))
    for _ in range(4):
        stream.batch(fleet.round())
    assert not upkeep.write_checkpoint()
    stream.batch(fleet.round())
    old = time.time() - 2 * 86_400
    for file in log.glob("*.json"):
        os.utime(file, (old, old))
    assert upkeep.write_checkpoint()
    assert not upkeep.write_checkpoint()
    assert [file.name for file in log.glob("*.checkpoint.parquet")] == [f"{5:020d}.checkpoint.parquet"]
    assert sorted(file.stem for file in log.glob("*.json")) == [f"{5:020d}"]
    stream.batch(fleet.round())
    assert check(stream.lake, fleet.ledger).problems == []


def test_every_table_of_the_job_is_looked_after_and_one_that_fails_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet(clients=2)
    stream.batch(fleet.round())
    upkeep, ended = Upkeep(str(stream.lake), lambda: 1), threading.Event()
    (stream.lake / "pushes" / "_delta_log" / f"{2:020d}.json").write_bytes(b"{")
    with caplog.at_level("INFO"):
        upkeep.look(ended)
    assert [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert {each.name for each in KEPT_UP} > {each.name for each in TABLES}


@pytest.mark.usefixtures("few")
def test_memory_is_returned_after_each_table_that_was_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, _ = stream_of(tmp_path, 3, 4)
    released: list[int] = []
    monkeypatch.setattr(small_files, "release_memory", lambda: released.append(1))
    upkeep = Upkeep(str(stream.lake), lambda: DeltaTable(str(stream.lake / "pushes")).version())
    held = {each.name: len(files(stream, each.name)) for each in MERGED if (stream.lake / each.name).exists()}
    upkeep.look(threading.Event(), date.fromisoformat(EVENING))
    assert len(released) == sum(number >= 4 for number in held.values()) > 1
    upkeep.look(threading.Event(), date.fromisoformat(EVENING))
    assert len(released) == sum(number >= 4 for number in held.values())


def test_new_tables_have_the_settings_of_the_log(tmp_path: Path) -> None:
    assert PUSH_OUTCOMES.create(str(tmp_path)).metadata().configuration.items() >= LOG_SETTINGS.items()
