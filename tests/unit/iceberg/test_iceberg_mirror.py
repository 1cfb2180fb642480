"""Iceberg tables follow the lake's tables: the same rows by Iceberg's own reader, whatever happened to the files."""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from pyiceberg.table import TableProperties

from kafka_telemetry_lake.pipelines.forget.erasure import Erasure
from kafka_telemetry_lake.pipelines.forget.subject import Request
from kafka_telemetry_lake.pipelines.iceberg import folder_tables, mirror
from kafka_telemetry_lake.pipelines.iceberg.folder_tables import FolderTables, LakeFiles
from kafka_telemetry_lake.pipelines.iceberg.mirror import Change, LiveFiles, MirrorError
from kafka_telemetry_lake.pipelines.iceberg.places import FOLDER
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.log_files import NewFiles
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS
from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS
from kafka_telemetry_lake.pipelines.upkeep.maintenance import Maintenance, MaintenanceSettings
from tests.support.erasable_lake import lake_of
from tests.support.expired_logs import expire_log
from tests.support.lake_tables import table
from tests.support.ledger import Fleet
from tests.support.ledger_check import check
from tests.support.local_stream import SHARDS
from tests.unit.iceberg.mirrored import (
    NAMES,
    NOON,
    POINTS,
    files_of,
    follow,
    iceberg,
    is_same,
    merge,
    mirrored,
    put,
    rows,
    snapshots,
)
from tests.unit.ingest.test_reshard import stream_in, to

pytestmark = pytest.mark.lake

NEXT_DAY, EPOCH = date(2026, 11, 22), date(1970, 1, 1)
MIDNIGHT = 12 * 60  # in minutes from the first row
ROOT = Path(__file__).parents[3]


def maintain(lake: Path, **days: int) -> None:
    """Upkeep of metric_points, a day after the first row."""
    job = Maintenance(str(lake), str(lake / "_checkpoints"), MaintenanceSettings(days, 64 << 20, 0, 7), NEXT_DAY)
    assert job.maintain(POINTS).problems == ()


def changed(done: dict[str, Change | None]) -> tuple[int, int] | None:
    """How many files of metric_points a run added and removed."""
    change = done[POINTS]
    return None if change is None else (change.added, change.removed)


def metadata(lake: Path, name: str = POINTS) -> dict[str, Any]:
    folder = lake / FOLDER / name / "metadata"
    version = (folder / "version-hint.text").read_text()
    content: dict[str, Any] = json.loads((folder / f"v{version}.metadata.json").read_text())
    return content


def live_files(lake: Path) -> LiveFiles:
    uri = METRIC_POINTS.uri(str(lake))
    return LiveFiles.of(DeltaTable(uri), uri)


def test_the_library_is_the_release_that_this_was_written_for() -> None:
    """Parts of it are used that may change with any release: try another one with these tests first."""
    (wanted,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["iceberg"]
    assert f"pyiceberg=={pyiceberg.__version__}" == wanted


def test_each_commit_becomes_a_snapshot_over_the_same_files(tmp_path: Path) -> None:
    put(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    version = DeltaTable(str(tmp_path / POINTS)).version()
    assert follow(tmp_path, POINTS) == {POINTS: Change(1, 0, version)}
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")} == before
    assert is_same(tmp_path, POINTS)
    assert follow(tmp_path, POINTS) == {POINTS: None}  # nothing to do
    put(tmp_path, 1, number=5)
    assert follow(tmp_path, POINTS) == {POINTS: Change(1, 0, version + 1)}
    assert is_same(tmp_path, POINTS)
    (first, second) = snapshots(tmp_path, POINTS)
    assert (first["operation"], first["delta-version"], first["total-data-files"]) == ("append", str(version), "1")
    assert (second["operation"], second["delta-version"], second["total-data-files"]) == (
        "append",
        str(version + 1),
        "2",
    )
    assert second["delta-table-id"] == str(DeltaTable(str(tmp_path / POINTS)).metadata().id)
    assert second["total-records"] == "7"


def test_the_landed_date_and_times_select_files(tmp_path: Path) -> None:
    """The date isn't in the files: it comes from the metadata. Bounds of times are exact, to the microsecond."""
    for minute in (0, 1, MIDNIGHT):
        put(tmp_path, minute)
    follow(tmp_path, POINTS)
    own, all_rows = iceberg(tmp_path, POINTS), table(tmp_path, POINTS)
    for day, number in ((NOON.date(), 4), (NOON.date() + timedelta(days=1), 2)):
        scan = own.scan(f"landed_date = '{day}'")
        assert rows(scan.to_arrow()) == rows(all_rows.filter(pa.compute.equal(all_rows["landed_date"], day)))
        assert len(scan.to_arrow()) == number
        assert {task.file.partition[0] for task in scan.plan_files()} == {(day - EPOCH).days}
    last = pa.compute.max(all_rows["time"]).as_py()
    assert last.microsecond == MIDNIGHT + 1
    scan = own.scan(f"time >= '{last.isoformat()}'")
    assert (len(list(scan.plan_files())), len(list(own.scan().plan_files()))) == (1, 3)
    assert [row["time"] for row in scan.to_arrow().to_pylist()] == [last]
    times = own.inspect.files()["readable_metrics"].to_pylist()
    assert max(each["time"]["upper_bound"] for each in times) == last
    assert min(each["time"]["lower_bound"] for each in times) == pa.compute.min(all_rows["time"]).as_py()
    bounded = {name for each in times for name, bounds in each.items() if bounds["lower_bound"] is not None}
    assert bounded == {"landed_at", "time"}


def test_merging_retention_and_vacuum_leave_the_same_rows(tmp_path: Path) -> None:
    for minute in (*range(6), MIDNIGHT, MIDNIGHT + 1):
        put(tmp_path, minute)
    follow(tmp_path, POINTS)
    older = files_of(tmp_path, POINTS)
    maintain(tmp_path)  # merges the first day; VACUUM deletes the small files at once
    gone = {path for path in older if not Path(path.removeprefix("file://")).exists()}
    assert len(gone) == 6
    with pytest.raises(FileNotFoundError):  # said, not silently fewer rows
        iceberg(tmp_path, POINTS).scan().to_arrow()
    assert changed(follow(tmp_path, POINTS)) == (1, 6)
    assert is_same(tmp_path, POINTS)
    assert [each["operation"] for each in snapshots(tmp_path, POINTS)] == ["overwrite"]
    assert not files_of(tmp_path, POINTS) & gone  # nor do older snapshots name them: they are expired
    maintain(tmp_path, metric_points=1)
    assert changed(follow(tmp_path, POINTS)) == (0, 1)
    assert is_same(tmp_path, POINTS)
    put(tmp_path, MIDNIGHT + 2)
    assert changed(follow(tmp_path, POINTS)) == (1, 0)
    assert is_same(tmp_path, POINTS)
    assert [each["operation"] for each in snapshots(tmp_path, POINTS)] == ["overwrite", "append"]


def test_a_reshard_changes_nothing_for_readers(tmp_path: Path) -> None:
    """It is a commit without files."""
    stream, fleet = stream_in(tmp_path), Fleet(clients=5)
    for shards in (SHARDS, 3):
        if shards != SHARDS:
            to(stream, shards)
            changes = follow(stream.lake)
            assert (changes["pushes"], changed(changes)) == (None, None)
            outcomes = changes["push_outcomes"]
            assert outcomes is not None
            assert (outcomes.added, outcomes.removed) == (0, 0)
        stream.batch(fleet.round())
        follow(stream.lake)
        assert is_same(stream.lake)
    assert check(stream.lake, fleet.ledger).problems == []


def test_forget_leaves_no_name_and_no_snapshot_of_the_files_before(tmp_path: Path) -> None:
    stream, _, clients = lake_of(tmp_path)
    follow(stream.lake)
    before = {name: files_of(stream.lake, name) for name in NAMES}
    own = {path: path.read_bytes() for path in (stream.lake / FOLDER).rglob("*") if path.is_file()}
    Erasure(str(stream.lake), str(stream.checkpoints)).forget(Request(client_instance=clients[0].instance), "")
    assert {path: path.read_bytes() for path in own} == own
    follow(stream.lake)
    assert is_same(stream.lake)
    for name in NAMES:
        assert len(snapshots(stream.lake, name)) == 1
        after = files_of(stream.lake, name)
        assert all(Path(path.removeprefix("file://")).exists() for path in after)
        assert before[name] != after
    said = "".join(str(metadata(stream.lake, name)) for name in NAMES)
    for name in NAMES:
        own_table = iceberg(stream.lake, name)
        snapshot = own_table.current_snapshot()
        assert snapshot is not None
        for manifest in snapshot.manifests(own_table.io):  # those that say what was removed, too
            said += str(manifest) + str(manifest.fetch_manifest_entry(own_table.io, discard_deleted=False))
    assert "part-" in said
    assert "DELETED" in said
    assert not [text for client in clients for text in client.texts if text in said]


def test_erasing_a_client_with_a_word_of_the_metadata_as_its_id(tmp_path: Path) -> None:
    put(tmp_path)
    follow(tmp_path, POINTS)
    before = {path: path.read_bytes() for path in (tmp_path / FOLDER).rglob("*") if path.is_file()}
    Erasure(str(tmp_path)).forget(Request(client_instance="file_path"), "")
    assert {path: path.read_bytes() for path in before} == before
    assert is_same(tmp_path, POINTS)


def test_a_new_column_is_one_of_the_iceberg_table(tmp_path: Path) -> None:
    put(tmp_path)
    follow(tmp_path, POINTS)
    uri = METRIC_POINTS.uri(str(tmp_path))
    before = {field["name"]: field["id"] for field in metadata(tmp_path)["schemas"][-1]["fields"]}
    new = pa.field("new_map", pa.map_(pa.string(), pa.int64()), metadata={"comment": "what it is"})
    DeltaTable(uri).alter.add_columns(list(Schema.from_arrow(pa.schema([new])).fields))
    row = {"landed_at": NOON, "landed_date": NOON.date(), "time": NOON, "new_map": [("a", 1)]}
    write_deltalake(uri, pa.Table.from_pylist([row], METRIC_POINTS.stored.append(new)), mode="append")
    follow(tmp_path, POINTS)
    assert is_same(tmp_path, POINTS)
    own = iceberg(tmp_path, POINTS)
    assert own.scan().to_arrow()["new_map"].null_count == 2
    after = {field.name: field.field_id for field in own.schema().fields}
    assert after == before | {"new_map": after["new_map"]}
    assert after["new_map"] not in before.values()
    assert own.schema().find_field("new_map").doc == "what it is"
    assert own.schema().find_field("metric").doc == METRIC_POINTS.schema.field("metric").metadata[b"comment"].decode()
    assert not any(field.required for field in own.schema().fields)


def test_snapshots_and_metadata_are_bounded(tmp_path: Path) -> None:
    put(tmp_path)
    own = mirrored(tmp_path, POINTS, keep=3)
    own.follow()
    folder = tmp_path / FOLDER / POINTS / "metadata"
    for minute in range(1, 7):
        put(tmp_path, minute)
        assert own.follow() is not None
        assert own.follow() is None  # there is nothing new
    assert len(snapshots(tmp_path, POINTS)) == 3
    assert own.tidy() == 0  # readers may have begun
    for path in folder.iterdir():
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 2 * folder_tables.GRACE_S))
    left = [folder / "left-by-a-killed-process.avro", folder / "that-is-being-written.avro"]
    for path in left:
        path.write_bytes(b"")
    os.utime(left[0], (0, 0))
    assert own.tidy() > 0
    assert [path.exists() for path in left] == [False, True]
    assert {path.name for path in folder.glob("v*")} == {"v8.metadata.json", "version-hint.text"}
    assert len(list(folder.glob("snap-*"))) == 3
    assert is_same(tmp_path, POINTS)
    oldest = min(iceberg(tmp_path, POINTS).snapshots(), key=lambda each: each.timestamp_ms)
    assert len(iceberg(tmp_path, POINTS).scan(snapshot_id=oldest.snapshot_id).to_arrow()) == 10


def test_manifests_of_many_commits_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mirror.PROPERTIES, TableProperties.MANIFEST_MIN_MERGE_COUNT, "3")
    manifests = []
    for minute in range(6):
        put(tmp_path, minute)
        follow(tmp_path, POINTS)
        own = iceberg(tmp_path, POINTS)
        manifests.append(len(own.inspect.manifests()))
    assert manifests == [1, 2, 1, 2, 1, 2]
    assert is_same(tmp_path, POINTS)


def test_a_file_without_rows_is_left_out(tmp_path: Path) -> None:
    """An erasure leaves such files."""
    put(tmp_path)
    (path,) = (tmp_path / POINTS).glob("*/*.parquet")
    empty = path.with_name("part-empty.parquet")
    pq.write_table(pq.read_table(path, partitioning=None).slice(0, 0), empty)
    file = DataFile(
        POINTS, f"{path.parent.name}/{empty.name}", empty.stat().st_size, 0, "2026-11-21", '{"numRecords": 0}'
    )
    TableLog(METRIC_POINTS, str(tmp_path)).commit([file], "empty", 0)
    assert len(DeltaTable(str(tmp_path / POINTS)).file_uris()) == 2
    assert changed(follow(tmp_path, POINTS)) == (1, 0)
    assert is_same(tmp_path, POINTS)


def test_a_file_whose_rows_the_log_does_not_count_is_counted(tmp_path: Path) -> None:
    put(tmp_path)
    put(tmp_path, 1)
    log = tmp_path / POINTS / "_delta_log" / f"{2:020d}.json"
    log.write_text(re.sub(r'\\"numRecords\\": 2, ', "", log.read_text()))
    assert live_files(tmp_path).files["num_records"].to_pylist() == [2, 2]
    assert "numRecords" not in log.read_text()
    follow(tmp_path, POINTS)
    assert snapshots(tmp_path, POINTS)[-1]["total-records"] == "4"


def test_a_reader_that_has_begun_finds_its_metadata_for_ten_minutes(tmp_path: Path) -> None:
    """Though it is older: what counts is when it was replaced."""
    put(tmp_path)
    own = mirrored(tmp_path, POINTS)
    own.follow()
    begun = iceberg(tmp_path, POINTS)
    folder = tmp_path / FOLDER / POINTS / "metadata"
    for path in folder.iterdir():
        os.utime(path, (0, 0))
    put(tmp_path, 1)
    merge(tmp_path)  # whose snapshot expires the one before
    own.follow()
    own.tidy()
    assert len(begun.scan().to_arrow()) == 2


def test_what_a_stranger_commits_is_undone(tmp_path: Path) -> None:
    put(tmp_path)
    follow(tmp_path, POINTS)
    FolderTables(str(tmp_path / FOLDER)).load_table(POINTS).delete()
    assert len(iceberg(tmp_path, POINTS).scan().to_arrow()) == 0
    follow(tmp_path, POINTS)
    assert is_same(tmp_path, POINTS)


def test_a_log_that_has_forgotten_its_commits_is_enough(tmp_path: Path) -> None:
    put(tmp_path)
    own = mirrored(tmp_path, POINTS)
    own.follow()
    for minute in (1, 2, 3):
        put(tmp_path, minute)
    merge(tmp_path)
    expire_log(tmp_path / POINTS)
    assert own.follow() is not None
    assert is_same(tmp_path, POINTS)


def test_a_lake_that_was_made_again_has_no_row_of_the_one_before(tmp_path: Path) -> None:
    put(tmp_path)
    own = mirrored(tmp_path, POINTS)
    own.follow()
    shutil.rmtree(tmp_path / POINTS)
    put(tmp_path, 1)  # the same version
    assert follow(tmp_path, POINTS)[POINTS] == Change(1, 1, 1)
    assert is_same(tmp_path, POINTS)


def test_a_table_without_files_and_one_without_days(tmp_path: Path) -> None:
    METRIC_POINTS.create(str(tmp_path))
    assert follow(tmp_path, POINTS) == {POINTS: Change(0, 0, 0)}
    assert len(iceberg(tmp_path, POINTS).scan().to_arrow()) == 0
    for number in (1, 2):
        row = {"name": f"s{number}", "metrics": ["*"], "match": [("client_id", "a")], "cluster_id": "c"}
        write_deltalake(
            SUBSCRIPTIONS.create(str(tmp_path)), pa.Table.from_pylist([row], SUBSCRIPTIONS.schema), mode="append"
        )
        follow(tmp_path, SUBSCRIPTIONS.name)
        assert is_same(tmp_path, SUBSCRIPTIONS.name)
    DeltaTable(SUBSCRIPTIONS.uri(str(tmp_path))).delete("name = 's1'")
    assert follow(tmp_path, SUBSCRIPTIONS.name)[SUBSCRIPTIONS.name] == Change(0, 1, 3)
    assert is_same(tmp_path, SUBSCRIPTIONS.name)


# --- interruptions


class KilledError(BaseException):
    """Nothing in the code handles it, as nothing handles SIGKILL."""


@contextmanager
def killed_at(step: int | None = None) -> Iterator[list[str]]:
    """Kinds of what is written to the Iceberg folder meanwhile; the process ends just before this step."""
    steps: list[str] = []

    def before(name: str) -> None:
        if len(steps) == step:
            raise KilledError
        steps.append("list" if "snap-" in name else name.rpartition(".")[2])

    def new_output(files: LakeFiles, location: str) -> Any:
        before(location)
        return output(files, location)

    def add(folder: NewFiles, name: str, data: bytes) -> bool:
        before(name)
        return adds(folder, name, data)

    def point(tables: FolderTables, name: str, version: int) -> None:
        before("hint")
        points(tables, name, version)

    output, adds, points = LakeFiles.new_output, NewFiles.add, FolderTables._point
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LakeFiles, "new_output", new_output)
        patch.setattr(NewFiles, "add", add)
        patch.setattr(FolderTables, "_point", point)
        yield steps


@pytest.mark.slow
def test_a_kill_between_any_two_steps_is_mended_by_the_next_run(tmp_path: Path) -> None:
    lake, saved = tmp_path / "lake", tmp_path / "saved"
    for minute in range(4):
        put(lake, minute)
        follow(lake, POINTS)
    known = rows(table(lake, POINTS))
    merge(lake)
    put(lake, 5)
    shutil.copytree(lake / FOLDER, saved)
    with killed_at() as steps:
        follow(lake, POINTS)
    assert sorted(steps[:2]) == ["avro", "avro"]
    assert steps[2:] == ["list", "json", "hint"]
    for step in range(len(steps)):
        shutil.rmtree(lake / FOLDER)
        shutil.copytree(saved, lake / FOLDER)
        with killed_at(step), pytest.raises(KilledError):
            follow(lake, POINTS)
        assert rows(iceberg(lake, POINTS).scan().to_arrow()) == known, step
        change = follow(lake, POINTS)[POINTS]
        assert (change is None) == (step == len(steps) - 1)  # only the hint was missing then
        assert is_same(lake, POINTS), step
        assert snapshots(lake, POINTS)[-1]["total-data-files"] == "2"


def test_a_kill_at_any_step_of_the_first_run(tmp_path: Path) -> None:
    put(tmp_path)
    with killed_at() as steps:
        follow(tmp_path, POINTS)
    assert steps == ["json", "hint", "avro", "list", "json", "hint"]
    for step in range(len(steps)):
        shutil.rmtree(tmp_path / FOLDER)
        with killed_at(step), pytest.raises(KilledError):
            follow(tmp_path, POINTS)
        follow(tmp_path, POINTS)
        assert is_same(tmp_path, POINTS), step


def test_of_two_commits_at_once_one_counts(tmp_path: Path) -> None:
    put(tmp_path)
    first, second = mirrored(tmp_path, POINTS), mirrored(tmp_path, POINTS)
    for each in (first, second):
        each.follow()
    put(tmp_path, 1)
    first.commit(live_files(tmp_path))
    with pytest.raises(MirrorError, match="metric_points: another process has changed the Iceberg table meanwhile"):
        second.commit(live_files(tmp_path))
    assert is_same(tmp_path, POINTS)
    assert second.follow() is None
    put(tmp_path, 2)
    assert second.follow() is not None
