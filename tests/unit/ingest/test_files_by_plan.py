"""A shard's task opens the files and row groups that may have its pushes, and no push is lost by that."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from kafka_telemetry_lake.pipelines.ingest import push_files
from kafka_telemetry_lake.pipelines.ingest.operator_task import ShardTask
from kafka_telemetry_lake.pipelines.ingest.push_files import PushFiles
from kafka_telemetry_lake.pipelines.ingest.store_task import StoreTask
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog, files_of
from kafka_telemetry_lake.pipelines.lake.followed_table import Commit, FollowedTable
from kafka_telemetry_lake.pipelines.lake.held_shards import MOST, HeldShards, held_shards
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile, TableFiles
from kafka_telemetry_lake.pipelines.quality.batch import broken_rules
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.pipelines.upkeep.merging import merged
from kafka_telemetry_lake.udfs.kernels.sharding import shards_of
from tests.support.lake_tables import table
from tests.support.landed import as_landed
from tests.support.landing_records import GOOD_ID, record
from tests.support.ledger import Fleet
from tests.support.ledger_check import check
from tests.support.local_stream import SHARDS, LocalStream, push_rows, run_tasks
from tests.unit.ingest.test_reshard import rows_of, stream_in, to

pytestmark = pytest.mark.lake

TABLES_WITH_ROWS = ("metric_points", "quarantine", "push_outcomes", "metric_rollups_1m", "metric_rollups_1h")
IDS = pa.array([f"client-{number:015d}" for number in range(40)] + [None])


@given(
    st.lists(st.sets(st.integers(0, 40), min_size=1, max_size=6), max_size=5), st.integers(1, 40), st.integers(1, 40)
)
def test_a_note_says_enough_for_any_number_of_shards(groups: list[set[int]], before: int, after: int) -> None:
    ids = [pa.chunked_array([IDS.take(pa.array(sorted(group)))]) for group in groups]
    written = HeldShards(before, tuple(held_shards(each, before) for each in ids)).to_json()
    assert written is not None
    note = HeldShards.from_json(written).for_number(after)
    for number, each in enumerate(ids):
        for shard in shards_of(each.combine_chunks(), after).tolist():
            assert number in note.of(shard)
    counted = [number for shard in range(after) for number in note.counted_by(shard)]
    assert sorted(counted) == list(range(len(groups)))
    assert all(set(note.counted_by(shard)) <= set(note.of(shard)) for shard in range(after))


def test_what_a_note_says_less_of_with_another_number() -> None:
    note = HeldShards(8, ((1, 5), (2,)))

    def opened(shards: int) -> list[list[int]]:
        return [list(note.for_number(shards).of(shard)) for shard in range(shards)]

    assert opened(8) == [[], [0], [1], [], [], [0], [], []]
    assert opened(2) == [[1], [0]]
    assert opened(4) == [[], [0], [1], []]
    assert opened(3) == [[0, 1]] * 3
    assert [list(note.for_number(3).counted_by(shard)) for shard in range(3)] == [[0, 1], [], []]


def test_a_note_is_short() -> None:
    assert HeldShards(MOST, (tuple(range(MOST)),)).to_json() is not None
    assert HeldShards(MOST, (tuple(range(MOST)), (0,))).to_json() is None


def landed(stream: LocalStream, records: list[dict[str, Any]], shards: int) -> Commit:
    """The commit of pushes that the job stores when it has so many shards."""
    rows = push_rows(records).sort_by([("partition", "ascending"), ("offset", "ascending")])
    (written,) = StoreTask(str(stream.lake), None, shards)(as_landed(rows).combine_chunks().to_batches())
    log = TableLog(PUSHES, str(stream.lake))
    before = log.version
    log.commit([DataFile.from_json(text) for text in written["file"].to_pylist()], "test", before)
    (commit,) = FollowedTable(PUSHES.uri(str(stream.lake))).commits(before)
    return commit


def test_each_row_group_has_its_note_in_the_commit(tmp_path: Path) -> None:
    """Also where midnight ends a file in the middle of a partition."""
    stream, fleet = LocalStream(tmp_path), Fleet(clients=12)
    records = fleet.round()
    for late in records[::2]:
        late["timestamp"] += timedelta(days=1)
    commit = landed(stream, records, 5)
    assert len(commit.files) == 2 == len(commit.held)
    for path in commit.files:
        file = pq.ParquetFile(stream.lake / "pushes" / path)
        groups = [file.read_row_group(number, ["client_instance_id"])[0] for number in range(file.num_row_groups)]
        expected = [sorted(set(shards_of(ids.combine_chunks(), 5).tolist())) for ids in groups]
        assert len(expected) > 1
        assert commit.held[path] == HeldShards(5, tuple(map(tuple, expected)))
    assert len(DeltaTable(PUSHES.uri(str(stream.lake))).file_uris()) == 2  # others read past it


def test_a_lake_of_one_shard_has_no_notes(tmp_path: Path) -> None:
    assert landed(LocalStream(tmp_path), Fleet(clients=3).round(), 1).held == {}


def test_rows_are_the_same_with_notes_of_any_number_and_without(tmp_path: Path) -> None:
    """2 shards, 8, 3; a batch has files of before the change and after it, one that has no note, and a merged one."""
    stream, straight, fleet = stream_in(tmp_path), LocalStream(tmp_path / "straight"), Fleet(clients=8)
    for before, after in ((2, 2), (2, 8), (8, 3)):
        rounds = [fleet.round(pushes=1) for _ in range(5)]
        first, *small, plain = (landed(stream, records, before) for records in rounds[:4])
        table, paths = DeltaTable(PUSHES.uri(str(stream.lake))), {path for commit in small for path in commit.files}
        one = merged(PUSHES, Lake(str(stream.lake)), [row for row in files_of(table) if row["path"] in paths])
        if after != before:
            to(stream, after)
        last = landed(stream, rounds[4], after)
        held = first.held | last.held
        assert set(held) == {*first.files, *last.files}
        stream.judge((*first.files, one.path, *plain.files, *last.files), held=held)
        assert stream.counts["in_files"] == stream.counts["judged"] == sum(map(len, rounds))
        straight.batch(chain.from_iterable(rounds))
    assert rows_of(stream.lake) == rows_of(straight.lake)
    assert check(stream.lake, fleet.ledger).problems == []


@pytest.mark.slow
def test_a_shard_twice_as_large_as_the_others_has_the_same_rows(tmp_path: Path) -> None:
    """With four shards and with two, by tasks that have one shard each and by one that has all."""
    fleet, sizes = Fleet(clients=40), Counter[int]()
    kept = set()
    for row in push_rows(fleet.round(pushes=1)).to_pylist():
        shard = int(shards_of(pa.array([row["client_instance_id"]]), 4)[0])
        if shard == 0 or sizes[shard] < 4:
            sizes[shard] += 1
            kept.add(row["client_instance_id"])
    assert sizes[0] >= 2 * max(sizes[shard] for shard in (1, 2, 3)) > 0
    rounds = []
    for _ in range(3):
        records = fleet.round()
        ids = push_rows(records)["client_instance_id"].to_pylist()
        rounds.append([each for each, name in zip(records, ids, strict=True) if name in kept])
    lakes = []
    for shards, cores in ((2, 1), (4, 1), (4, 4)):
        stream = stream_in(tmp_path / f"{shards}-{cores}")
        for number, records in enumerate(rounds):
            if number == 1 and shards != 2:
                to(stream, shards)
            commit = landed(stream, records, shards)
            stream.judge(commit.files, held=commit.held, cores=cores)
            assert stream.counts["in_files"] == stream.counts["judged"] == len(records)
        lakes.append(rows_of(stream.lake))
    assert lakes[0] == lakes[1] == lakes[2]
    assert lakes[0]["metric_points"]


def read_groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the row groups that are read, from now on: their keys, and all columns."""
    found = list[int]()

    class File(pq.ParquetFile):  # type: ignore[misc]  # pyarrow has no types
        def read_row_group(self, number: int, *arguments: Any, **options: Any) -> pa.Table:
            found.append(number)
            return super().read_row_group(number, *arguments, **options)

        def iter_batches(self, size: int, groups: list[int], *arguments: Any, **options: Any) -> Any:
            found.extend(groups)
            return super().iter_batches(size, groups, *arguments, **options)

    monkeypatch.setattr(pq, "ParquetFile", File)
    return found


def test_a_task_reads_what_may_have_its_pushes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = LocalStream(tmp_path)
    commit = landed(stream, Fleet(clients=12).round(), 2)
    (path,) = commit.files
    note = commit.held[path]
    found = read_groups(monkeypatch)
    everything = list(range(len(note.groups)))
    for shard in range(2):
        few, all_ = (PushFiles(str(stream.lake), commit.files, 2, held) for held in ({path: note}, {}))
        read = [sum(part.num_rows for part in files.slices(shard)) for files in (few, all_)]
        assert read[0] == read[1]
        with_pushes = list(note.for_number(2).of(shard))
        assert found == 2 * with_pushes + everything + with_pushes
        found.clear()
    only = {path: HeldShards(2, ((1,), *note.groups[1:]))}
    assert PushFiles(str(stream.lake), commit.files, 2, only).rows(0) == sum(
        pq.read_metadata(stream.lake / "pushes" / path).row_group(number).num_rows
        for number in only[path].for_number(2).counted_by(0)
    )
    assert found == only[path].for_number(2).of(0) != everything


@pytest.mark.parametrize("fits", ["in memory", "by the sizes in the files", "neither"])
def test_a_task_of_many_shards_reads_once_what_fits_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fits: str
) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet(clients=40)
    commits = [landed(stream, fleet.round(), 8) for _ in range(3)]
    paths = [path for commit in commits for path in commit.files]
    held = {path: note for commit in commits for path, note in commit.held.items()}
    alone = [pa.concat_tables(PushFiles(str(stream.lake), paths, 8, held).slices(shard)) for shard in range(8)]
    sizes = [sum(rows.nbytes for rows in alone[:7]), 0]
    for path in paths:
        metadata = pq.read_metadata(stream.lake / "pushes" / path)
        sizes[1] += sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    assert sizes[1] < 0.95 * sizes[0]
    memory = {"in memory": sizes[0], "by the sizes in the files": 0.95 * sizes[0], "neither": 0.5 * sizes[1]}[fits]
    monkeypatch.setattr(push_files, "MEMORY_BYTES", memory)
    found = read_groups(monkeypatch)
    files = PushFiles(str(stream.lake), paths, 8, held)
    files.read_once(range(7))
    keys, read = sum(len(note.groups) for note in held.values()), len(found)
    for shard, expected in enumerate(alone):
        assert pa.concat_tables(files.slices(shard)).equals(expected)
    assert sum(map(files.rows, range(8))) == sum(rows.num_rows for rows in alone)
    each = [sum(len(note.for_number(8).of(shard)) for note in held.values()) for shard in range(8)]
    if fits == "in memory":
        assert read == 2 * keys
        assert len(found) == read + each[7]  # of that shard nothing was asked for
    else:
        assert read == keys if fits == "neither" else keys < read <= 2 * keys
        assert len(found) == read + sum(each)


def test_a_note_that_lacks_a_shard_breaks_a_rule(tmp_path: Path) -> None:
    """Its pushes would be lost: each row group is counted by one shard, whoever judges it."""
    stream = LocalStream(tmp_path)
    commit = landed(stream, Fleet(clients=12).round(), 2)
    (path,) = commit.files
    stream.judge(commit.files, held={path: HeldShards(2, tuple((0,) for _ in commit.held[path].groups))})
    lost = stream.counts["in_files"] - stream.counts["judged"]
    assert lost > 0
    assert broken_rules(stream.counts) == {"pushes_judged": lost}


def test_the_files_of_a_task_do_not_grow_with_its_shards(tmp_path: Path) -> None:
    stream = LocalStream(tmp_path)
    commit = landed(stream, Fleet(clients=30).round(), 8)
    for shards in (2, 8):
        task = ShardTask(str(stream.lake), 0, commit.files, shards, stream.state.uri, held=commit.held)
        rows = list(run_tasks(task))
        assert [row["shard"] for row in rows] == list(range(shards))
        assert all(row["state"] for row in rows)
        files = Counter(DataFile.from_json(text).table for row in rows for text in row["files"])
        assert files == dict.fromkeys(TABLES_WITH_ROWS, 1)


@pytest.mark.parametrize("keys", [[None, None, None], [None, GOOD_ID, None]])
def test_a_file_whose_pushes_name_no_client_is_judged(tmp_path: Path, keys: list[str | None]) -> None:
    """A file has no column whose values are all NULL."""
    stream = LocalStream(tmp_path)
    files, log = TableFiles(PUSHES, str(stream.lake), shards=SHARDS), TableLog(PUSHES, str(stream.lake))
    files.write(push_rows([record(offset, b"", key=key) for offset, key in enumerate(keys)]))
    written = files.close()
    log.commit(written, "test", 0)
    notes = {file.path: HeldShards.from_json(file.held) for file in written if file.held is not None}
    stream.judge([file.path for file in written], held=notes)
    outcomes = table(stream.lake, "push_outcomes").sort_by("offset").to_pylist()
    assert [(row["client_instance_id"], row["outcome"]) for row in outcomes] == [
        (key, "quarantined" if key is None else "heartbeat") for key in keys
    ]
