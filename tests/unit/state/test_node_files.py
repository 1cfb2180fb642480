"""Copies of an object store's state files on the disk of a machine: read once, shared, never trusted unseen."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.state import chain as state_chain
from kafka_telemetry_lake.pipelines.state import node_files
from kafka_telemetry_lake.pipelines.state.chain import Chain, ShardFiles
from kafka_telemetry_lake.udfs.conversion.state import ShardState
from tests.unit.state.test_state_store import clients

URI = "s3a://lakes/points-state"


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store (another folder, whose file system isn't Arrow's local one) and a new worker of machine `one`."""
    (tmp_path / "store").mkdir()
    files = pafs.SubTreeFileSystem(str(tmp_path / "store"), pafs.LocalFileSystem())
    monkeypatch.setattr(state_chain, "filesystem_of", lambda _: (files, "."))
    on_machine("one", tmp_path, monkeypatch)
    return tmp_path / "store"


def on_machine(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next tasks run in a new worker process of this machine."""
    state_chain._cached.clear()
    node_files._sweep.cache_clear()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / name},{tmp_path / 'unused'}")


def copies(tmp_path: Path, machine: str) -> set[str]:
    return {path.name for path in (tmp_path / machine).glob(f"{node_files.FOLDER}-*/*/*/*")}


def read(names: tuple[str, ...], shard: int = 0) -> tuple[Chain, int]:
    files = ShardFiles(URI, shard)
    return files.read(names), files.bytes_read


def chain_of(changes: int, shard: int = 0) -> Chain:
    files = ShardFiles(URI, shard)
    chain = files.write(Chain(), clients(*range(500)), 0)
    for batch in range(1, changes + 1):
        chain = files.write(files.read(chain.names), clients(batch, landed=10 + batch), batch)
    return chain


def newest(chain: Chain) -> int:
    return int(chain.state.client_columns().landed_at.max())


def test_what_this_machine_has_written_is_never_read_from_the_store(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = chain_of(3)
    assert (len(chain.names), chain.unmapped) == (4, 0)
    assert copies(tmp_path, "one") == set(chain.names) == {path.name for path in store.iterdir()}
    on_machine("one", tmp_path, monkeypatch)  # another process of it
    again, bytes_read = read(chain.names)
    assert (bytes_read, newest(again), again.sizes) == (0, 13, chain.sizes)


def test_a_moved_shard_is_read_once_and_then_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = chain_of(2)
    on_machine("two", tmp_path, monkeypatch)
    moved, bytes_read = read(chain.names)
    assert (bytes_read, newest(moved), moved.unmapped) == (sum(chain.sizes), 12, 0)
    on_machine("two", tmp_path, monkeypatch)
    assert read(chain.names)[1] == 0
    on_machine("one", tmp_path, monkeypatch)
    longer = ShardFiles(URI, 0).write(read(chain.names)[0], clients(7, landed=99), 3)
    on_machine("two", tmp_path, monkeypatch)
    back, bytes_read = read(longer.names)
    assert (bytes_read, newest(back)) == (longer.sizes[-1], 99)


def test_copies_that_the_chain_no_longer_has_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain, other = chain_of(2), chain_of(1, shard=7)
    on_machine("one", tmp_path, monkeypatch)
    base = ShardFiles(URI, 0).write_tables(chain.state.whole(), 3)
    read((base,))
    assert copies(tmp_path, "one") == {base, *other.names}, "those of another shard stay"


def test_copies_that_nobody_used_for_a_day_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain, moved = chain_of(1), chain_of(1, shard=7)
    for path in (tmp_path / "one").glob(f"{node_files.FOLDER}-*/*/*/*"):
        os.utime(path, (0, time.time() - node_files.UNUSED_S - 60))
    read(chain.names)
    on_machine("one", tmp_path, monkeypatch)
    assert read(chain.names)[1] == 0
    assert copies(tmp_path, "one") == set(chain.names)
    assert read(moved.names, shard=7)[1] == sum(moved.sizes)


@pytest.mark.parametrize("damage", ["cut off", "changed", "another file's content"])
def test_a_damaged_copy_is_replaced_by_the_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    chain = chain_of(1)
    path = next((tmp_path / "one").glob(f"{node_files.FOLDER}-*/*/*/{chain.names[0]}"))
    content, other = path.read_bytes(), path.with_name(chain.names[1]).read_bytes()
    damaged = {"cut off": content[:-9], "changed": content[:99] + b"?" + content[100:], "another file's content": other}
    path.write_bytes(damaged[damage])
    on_machine("one", tmp_path, monkeypatch)
    again, bytes_read = read(chain.names)
    assert (bytes_read, newest(again)) == (chain.sizes[0], 11)
    assert path.read_bytes() == content


def test_a_file_that_is_damaged_in_the_store_is_an_error_and_isnt_copied(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = chain_of(1)
    (store / chain.names[0]).write_bytes((store / chain.names[0]).read_bytes()[:-1])
    on_machine("two", tmp_path, monkeypatch)
    with pytest.raises(StateError, match=r"is damaged .*replay --rebuild-state"):
        read(chain.names)
    assert copies(tmp_path, "two") == set()


def test_a_machine_that_cant_cache_reads_the_store_into_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "one").write_text("a file where the folder should be")
    chains = [chain_of(1)]
    monkeypatch.setattr(state_chain, "CACHED_BYTES", int(2.5 * chains[0].unmapped))
    chains += [chain_of(1, shard) for shard in range(1, 5)]
    assert all(chain.unmapped == sum(chain.sizes) for chain in chains)
    assert [shard for _, shard in state_chain._cached] == [3, 4]
    assert "state files aren't cached below" in caplog.text
    state_chain._cached.clear()
    again, bytes_read = read(chains[0].names)
    assert (bytes_read, newest(again)) == (sum(chains[0].sizes), 11)


def test_a_disk_that_is_full_leaves_no_part_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Path, "open", lambda *_: open("/dev/full", "wb"))  # noqa: PTH123, SIM115  # no write succeeds
    chain = chain_of(0)
    assert (copies(tmp_path, "one"), newest(chain)) == (set(), 1)
    assert "No space left on device" in caplog.text
    state_chain._cached.clear()
    assert read(chain.names)[1] == sum(chain.sizes)


def test_lakes_dont_share_copies(tmp_path: Path) -> None:
    mine = ShardFiles(URI, 0).write(Chain(), clients(1), 0)
    theirs = ShardFiles("s3a://other/points-state", 0)
    theirs.read(())
    assert copies(tmp_path, "one") == set(mine.names)
    assert ShardState(**dict(read(mine.names)[0].state.whole())).clients.num_rows == 1
