"""What tasks read of table `pushes`: every push in exactly one shard, in order, in slices of bounded size."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_telemetry_lake.pipelines.ingest import push_files, row_order
from kafka_telemetry_lake.pipelines.ingest.push_files import PushFiles, table_paths
from kafka_telemetry_lake.pipelines.ingest.row_order import sorted_by_client
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.pipelines.upkeep import merging
from kafka_telemetry_lake.udfs.kernels.sharding import places_of, shards_at, shards_of
from kafka_telemetry_lake.udfs.rows import PUSHES_IN

# org.apache.kafka.common.utils.Utils.toPositive(murmur2(utf-8)), Kafka 4.3.1
KAFKA_HASHES = {
    "": 275646681,
    "a": 584102524,
    "ab": 316155434,
    "abc": 479470107,
    "abcd": 823834100,
    "abcde": 461995741,
    "jHecHqLPQj2rnaP7QRzrmg": 1812677574,
    "pjXftqdsQJioN8NYDF8OQg": 1185961495,
    "AAAAAAAAAAAAAAAAAAAAAA": 1677302580,
    "ümläut-id": 659692117,
    "_-_-_-_-_-_-_-_-_-_-_-": 515057176,
}


@pytest.mark.parametrize("shards", [1, 2, 7, 2**31 - 1])
def test_shards_are_those_of_kafkas_partitioner(shards: int) -> None:
    found = shards_of(pa.array(KAFKA_HASHES), shards).tolist()
    assert found == [number % shards for number in KAFKA_HASHES.values()]


def test_a_push_without_a_client_goes_to_the_first_shard() -> None:
    assert shards_of(pa.array(["abc", None, "abc"]), 2**31 - 1).tolist() == [479470107, 0, 479470107]
    assert shards_of(pa.array([None], pa.string()), 5).tolist() == [0]
    assert shards_of(pa.array([], pa.string()), 5).tolist() == []
    # What the state stores: the hash, marked, so that 0 says that it isn't known.
    assert places_of(pa.array(["abc", None])).tolist() == [479470107 - 2**31, 0]
    for number in (1, 2, 80, 2**31 - 1):
        assert shards_at(places_of(pa.array(KAFKA_HASHES)), number).tolist() == [
            found % number for found in KAFKA_HASHES.values()
        ]


def test_a_slice_of_ids_is_placed_like_the_whole() -> None:
    ids = pa.array(list(KAFKA_HASHES))
    assert shards_of(ids[3:7], 1000).tolist() == shards_of(ids, 1000).tolist()[3:7]


def push(partition: int, offset: int, client: str | None = "abc", payload: bytes = b"x") -> dict[str, Any]:
    return {"partition": partition, "offset": offset, "client_instance_id": client, "payload": payload}


Files = tuple[Path, list[str]]  # a lake and its files of pushes


def lake(folder: Path, *files: list[dict[str, Any]], row_group_size: int | None = None) -> Files:
    paths = []
    for number, rows in enumerate(files):
        path = f"landed_date=2026-11-21/part-{number}.parquet"
        (folder / "pushes" / path).parent.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_pylist(rows, PUSHES_IN)
        pq.write_table(table, folder / "pushes" / path, row_group_size=row_group_size)
        paths.append(path)
    return folder, paths


def read(files: Files, shard: int = 0, shards: int = 1) -> list[list[tuple[int, int]]]:
    slices = list(PushFiles(str(files[0]), files[1], shards).slices(shard))
    assert all(part.schema.equals(PUSHES_IN) for part in slices)
    return [list(zip(part["partition"].to_pylist(), part["offset"].to_pylist(), strict=True)) for part in slices]


def test_files_are_read_in_the_order_of_landing(tmp_path: Path) -> None:
    files = lake(tmp_path, [push(0, 3), push(0, 4)], [push(1, 0)], [push(0, 1), push(0, 2)])
    assert list(chain.from_iterable(read(files))) == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 0)]


@pytest.mark.parametrize("cursor_bytes", [1, 4 << 20])
def test_files_without_order_are_put_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cursor_bytes: int
) -> None:
    monkeypatch.setattr(push_files, "CURSOR_BYTES", cursor_bytes)
    files = lake(tmp_path, [push(0, 1), push(1, 8), push(0, 4)], [push(1, 7), push(0, 2)])
    assert read(files) == [[(0, 1), (0, 2), (0, 4), (1, 7), (1, 8)]]


def by_client(*pushes: dict[str, Any]) -> list[dict[str, Any]]:
    landed = [{"client_id": client, **row} for client, row in zip("baab", pushes, strict=True)]
    rows: list[dict[str, Any]] = sorted_by_client(pa.Table.from_pylist(landed, PUSHES_IN)).to_pylist()
    return rows


def test_a_row_group_sorted_by_client_is_put_in_order_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row groups that aren't between each other's offsets are read once, one after the other."""
    monkeypatch.setattr(push_files, "_merged", None)
    first, second = (by_client(*(push(0, begin + offset) for offset in range(4))) for begin in (0, 4))
    assert [row["offset"] for row in first] == [1, 2, 0, 3]
    files = lake(tmp_path, second, first, by_client(push(1, 2), push(1, 3), push(1, 5), push(1, 7)))
    assert list(chain.from_iterable(read(files))) == [
        *((0, offset) for offset in range(8)),
        *((1, n) for n in (2, 3, 5, 7)),
    ]
    monkeypatch.setattr(push_files, "SLICE_ROWS", 4)
    assert [len(part) for part in read(files)] == [4, 4, 4]


def test_a_merged_row_group_that_is_sorted_by_client_is_a_range_of_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of payloads so small that a landed row group has more pushes than a slice: slices are never cut by client."""
    monkeypatch.setattr(push_files, "SLICE_ROWS", 3)
    monkeypatch.setattr(merging, "PUSHES_PER_GROUP", 3)
    landed = [push(0, offset) | {"client_id": "ab"[offset % 2]} for offset in range(8)]
    folder, paths = lake(tmp_path, sorted_by_client(pa.Table.from_pylist(landed, PUSHES_IN)).to_pylist())
    assert [len(part) for part in read((folder, paths))] == [3, 3, 2]
    rows = [{"path": path, "partition": {"landed_date": "2026-11-21"}} for path in paths]
    merged = pq.ParquetFile(folder / "pushes" / merging.merged(PUSHES, Lake(str(folder)), rows).path)
    groups = [merged.read_row_group(number)["offset"].to_pylist() for number in range(merged.num_row_groups)]
    assert groups == [[0, 2, 1], [4, 3, 5], [6, 7]]


def test_row_groups_between_each_others_offsets_are_merged(tmp_path: Path) -> None:
    files = lake(
        tmp_path,
        by_client(*(push(0, offset) for offset in (0, 2, 4, 6))),
        by_client(*(push(0, offset) for offset in (1, 3, 5, 7))),
    )
    assert read(files) == [[(0, offset) for offset in range(8)]]


def test_pushes_that_readers_cannot_sort_stay_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_files, "SLICE_BYTES", 100_000)
    monkeypatch.setattr(row_order, "SLICE_BYTES", 100_000)
    most = push_files.SORTABLE_SLICES * 100_000
    small, large = (
        by_client(*(push(0, offset, payload=b"x" * size) for offset in range(4)))
        for size in (most // 4 - 1_000, most // 4)
    )
    assert [row["offset"] for row in small] == [1, 2, 0, 3]
    assert [row["offset"] for row in large] == [0, 1, 2, 3]
    assert [len(part) for part in read(lake(tmp_path, small))] == [2, 2]


def test_a_slice_holds_a_bounded_number_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_files, "SLICE_BYTES", 100_000)
    ordered = [push(0, offset, payload=bytes([offset]) * 40_000) for offset in range(6)]
    assert [len(part) for part in read(lake(tmp_path / "a", ordered))] == [2, 2, 2]
    mixed = [ordered[1], ordered[0], *ordered[2:]]
    assert [len(part) for part in read(lake(tmp_path / "b", mixed))] == [2, 2, 2]
    monkeypatch.setattr(push_files, "SLICE_BYTES", 10_000)  # less than a payload
    assert [len(part) for part in read(lake(tmp_path / "c", ordered))] == [1] * 6


def test_rows_far_larger_than_the_mean_do_not_share_a_slice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_files, "SLICE_BYTES", 100_000)
    sizes = [1, 60_000, 1, 60_000, 1, 1]
    rows = [push(0, offset, payload=b"x" * size) for offset, size in enumerate(sizes)]
    assert read(lake(tmp_path, rows[::-1])) == [
        [(0, 0), (0, 1), (0, 2)],
        [(0, 3), (0, 4), (0, 5)],
    ]


def test_small_row_groups_share_a_slice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a slice costs is fixed, but for its points."""
    files = [[push(partition, offset, payload=b"x" * 10_000) for offset in range(2)] for partition in range(3)]
    assert [len(part) for part in read(lake(tmp_path, *files))] == [6]
    monkeypatch.setattr(push_files, "SLICE_BYTES", 50_000)
    assert [len(part) for part in read(lake(tmp_path, *files))] == [4, 2]
    monkeypatch.setattr(push_files, "SLICE_ROWS", 3)
    assert [len(part) for part in read(lake(tmp_path, *files))] == [2, 2, 2]


def test_parts_are_joined_up_to_rows_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [pa.table({"a": pa.array(range(10), pa.int64())})] * 5  # of 80 bytes
    assert [each.num_rows for each in push_files.joined(parts, 25)] == [20, 20, 10]
    monkeypatch.setattr(push_files, "SLICE_BYTES", 240)
    assert [each.num_rows for each in push_files.joined(parts, 1000)] == [30, 20]
    monkeypatch.setattr(push_files, "SLICE_BYTES", 1)
    assert [each.num_rows for each in push_files.joined(parts, 1000)] == [10] * 5


def test_no_files_and_empty_files_give_nothing(tmp_path: Path) -> None:
    assert read(lake(tmp_path)) == []
    assert read(lake(tmp_path, [])) == []


def test_row_groups_of_other_shards_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = ["abc", "abcd"]  # shards 1 and 0 of 2
    files = lake(tmp_path, *([push(number, 0, client)] for number, client in enumerate(clients)))
    opened: list[int] = []
    slices = push_files._Group.slices

    def counted(group: Any, mine: Any, schema: Any) -> Any:
        opened.append(int(mine.sum()))
        return slices(group, mine, schema)

    monkeypatch.setattr(push_files._Group, "slices", counted)
    assert read(files, 0, 2) == [[(1, 0)]]
    assert sorted(opened) == [0, 1]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50), st.sampled_from(["a", "b", "c", None])), max_size=60))
@pytest.mark.slow
def test_every_push_is_in_one_shard_and_in_order(tmp_path_factory: pytest.TempPathFactory, pushes: list[Any]) -> None:
    rows = [push(*each) for each in pushes]
    parts = [rows[0::2], rows[1::2]]
    files = lake(tmp_path_factory.mktemp("lake"), *parts, row_group_size=7)
    found = []
    for shard in range(3):
        mine = list(chain.from_iterable(read(files, shard, 3)))
        for partition in range(3):
            offsets = [offset for number, offset in mine if number == partition]
            assert offsets == sorted(offsets)
        found += mine
    assert sorted(found) == sorted((partition, offset) for partition, offset, _ in pushes)


def test_paths_are_those_of_the_delta_log() -> None:
    uris = [
        "file:/my%20lake/pushes/landed_date=2026-11-21/part-0.parquet",
        "s3://bucket/pushes/lake/pushes/landed_date=2026-11-21/part-1.parquet",
    ]
    assert table_paths(uris) == ["landed_date=2026-11-21/part-0.parquet", "landed_date=2026-11-21/part-1.parquet"]
