"""State files: a base and changes are the whole state, whoever reads them and whenever a worker died."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.state import chain as state_chain
from kafka_telemetry_lake.pipelines.state.chain import LONGEST_CHAIN, Chain, ShardFiles
from kafka_telemetry_lake.pipelines.state.manifest import RETAINED_MANIFESTS, StateFolder
from kafka_telemetry_lake.pipelines.state.parts import StateParts
from kafka_telemetry_lake.udfs.conversion.shard import process, process_parts
from kafka_telemetry_lake.udfs.conversion.state import SCHEMAS, ShardState
from kafka_telemetry_lake.udfs.kernels.arrays import column
from kafka_telemetry_lake.udfs.limits import Limits
from tests.support.otlp_builder import counter, delta, exponential, histogram, push, table
from tests.unit.conversion.test_state import assert_equal

HOUR = 3600


@pytest.fixture(autouse=True)
def new_worker() -> None:
    """Nothing cached, as in a worker process that just started."""
    state_chain._cached.clear()


def whole(state: StateParts) -> ShardState:
    return ShardState(**dict(state.whole()))


def random_batches(seed: int, batches: int) -> list[pa.Table]:
    """Pushes of 12 clients over three partitions, with pauses of hours to months that evict and forget.

    The first batch has 600 other clients, to give the chain a base.
    """
    numbers = random.Random(seed)
    quiet = [push(9000 + number, client_instance_id=f"quiet-{number}", partition=9) for number in range(600)]
    result, offset, now = [table(quiet)], 0, 0
    for _ in range(batches):
        now += numbers.choice((1, 60, HOUR, 30 * HOUR, 32 * 24 * HOUR))
        pushes = []
        for _ in range(numbers.randrange(6)):
            offset += 1
            second = now + offset % 7
            metrics = [
                counter(offset, 0, second),
                histogram((offset, 1, 0), 0, second, total=1.0),
                exponential((offset,), 0, second, offset=2),
                delta(1, second - numbers.choice((1, 40)), second, name="e"),
            ]
            client = f"client-{numbers.randrange(12):02d}"
            pushes.append(
                push(
                    offset,
                    *numbers.sample(metrics, numbers.randrange(5)),
                    landed=second,
                    client_instance_id=client,
                    partition=int(client[-2:]) % 3,
                    terminating=numbers.random() < 0.2,
                )
            )
        result.append(table(pushes))
    return result


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.slow
def test_a_chain_of_files_is_the_whole_state(tmp_path: Path, seed: int) -> None:
    """Row for row, whether the worker has the chain cached, partly cached, or reads it all."""
    limits = Limits(redelivery_pushes=2)
    numbers = random.Random(seed)
    expected_state = ShardState.empty()
    names: tuple[str, ...] = ()
    lengths, forgotten, evicted = set(), 0, 0
    for batch_id, pushes in enumerate(random_batches(seed, 40)):
        if numbers.random() < 0.3:
            state_chain._cached.clear()
        files = ShardFiles(str(tmp_path), 0)
        chain = files.read(names)
        assert_equal(whole(chain.state), expected_state)
        before = expected_state.clients.num_rows
        expected, expected_state = process(pushes, expected_state, limits)
        [(rows, changes, _)] = process_parts(pushes, chain.state, limits)
        for name in ("metric_points", "quarantine", "push_outcomes", "client_events"):
            assert getattr(rows, name).to_pylist() == getattr(expected, name).to_pylist()
        names = files.write(chain, changes, batch_id).names
        lengths.add(len(names))
        forgotten += expected_state.clients.num_rows < before
        evicted += int(expected_state.client_columns().evicted.sum())
    assert max(lengths) > 3
    assert 1 in lengths
    assert forgotten > 0
    assert evicted > 0


def clients(*keys: int, landed: int = 1, pushes: int = 1) -> ShardState:
    """A state of these clients, with so many recent pushes each."""
    rows = [
        {"client": key, "partition": 7, "landed_at": landed, "terminating": False, "evicted": False} for key in keys
    ]
    recent = [
        {"client": key, "digest": key * 100 + number, "push": landed, "last_time": number}
        for key in keys
        for number in range(pushes)
    ]
    tables = {name: schema.empty_table() for name, schema in SCHEMAS.items()}
    numbers_only = [name for name in SCHEMAS["clients"].names if name not in rows[0]]
    tables["clients"] = pa.Table.from_pylist([row | dict.fromkeys(numbers_only, 0) for row in rows], SCHEMAS["clients"])
    tables["recent_pushes"] = pa.Table.from_pylist(recent, SCHEMAS["recent_pushes"])
    return ShardState.joined([ShardState(**tables)])


def test_rows_of_a_client_come_from_the_newest_part() -> None:
    state = StateParts.of([clients(1, 2, 3, pushes=2), clients(2, landed=5), clients(4)])
    rows = state.rows_of(np.array([2, 3, 9]))
    assert rows.clients["landed_at"].to_pylist() == [5, 1]
    assert rows.recent_pushes["digest"].to_pylist() == [200, 300, 301]
    assert whole(state).clients["client"].to_pylist() == [1, 2, 3, 4]


def test_a_forgotten_client_is_gone_from_every_table() -> None:
    forgotten = ShardState.forgotten(np.array([2]))
    for state in (whole(StateParts.of([clients(1, 2), forgotten])), clients(1, 2).merge(forgotten)):
        assert state.clients["client"].to_pylist() == [1]
        assert state.recent_pushes["client"].to_pylist() == [1]
    returned = StateParts.of([clients(1, 2), forgotten, clients(2, landed=9)])
    assert returned.client_columns().landed_at.tolist() == [1, 9]


def test_changes_of_a_batch_are_the_last_rows_of_its_clients_and_what_it_forgot() -> None:
    before = StateParts.of([clients(1, 2, 3, 4, pushes=2)])
    after = before.merge(clients(1, 2, landed=5)).merge(ShardState.forgotten(np.array([2, 3]))).merge(clients(2, 7))
    changes = after.changes(np.array([2, 1, 2, 3, 7]))
    assert changes.clients["client"].to_pylist() == [1, 2, 3, 7]
    assert changes.clients["landed_at"].to_pylist() == [5, 1, 0, 1]
    assert changes.client_columns().forgotten.tolist() == [False, False, True, False]
    assert whole(before.merge(changes)).to_bytes() == whole(after).to_bytes()


def test_a_state_that_others_still_hold_does_not_change() -> None:
    before = StateParts.of([clients(1, 2)])
    before.merge(clients(2, 3, landed=5))
    assert before.client_columns().landed_at.tolist() == [1, 1]
    assert whole(before).clients.num_rows == 2


def written(root: Path, chain: Chain) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.name not in chain.names)


def test_a_change_is_written_alone_until_changes_outgrow_the_base(tmp_path: Path) -> None:
    files = ShardFiles(str(tmp_path), 3)
    chain = files.write(Chain(), clients(*range(2000)), 0)
    base = chain.sizes[0]
    for batch_id in range(1, 40):
        before, chain = chain, files.write(chain, clients(*range(150), landed=batch_id), batch_id)
        if len(chain.names) == 1:
            break
        assert chain.names[:-1] == before.names
        assert sum(chain.sizes[1:]) <= base
    assert sum(before.sizes[1:]) > base * 0.8
    assert chain.sizes[0] == base
    assert whole(chain.state).clients.num_rows == 2000
    assert [(tmp_path / name).stat().st_size for name in chain.names] == list(chain.sizes)


def test_a_chain_has_at_most_fifty_files(tmp_path: Path) -> None:
    files = ShardFiles(str(tmp_path), 0)
    chain = files.write(Chain(), clients(*range(20_000)), 0)
    lengths = []
    for batch_id in range(1, 52):
        chain = files.write(chain, clients(batch_id, landed=9), batch_id)
        lengths.append(len(chain.names))
    assert lengths == [*range(2, LONGEST_CHAIN + 1), 1, 2]
    assert (chain.state.client_columns().landed_at == 9).sum() == 51


def test_a_batch_that_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    files = ShardFiles(str(tmp_path), 0)
    chain = files.write(Chain(), clients(1), 0)
    assert files.write(chain, ShardState.empty(), 1).names == chain.names
    assert len(list(tmp_path.iterdir())) == 1


def test_a_worker_reads_only_the_files_that_it_has_not(tmp_path: Path) -> None:
    files = ShardFiles(str(tmp_path), 0)
    chain = files.write(Chain(), clients(*range(100)), 0)
    (tmp_path / chain.names[0]).unlink()  # to be seen if it is read
    elsewhere = clients(5, landed=7)
    (tmp_path / "of-another-worker.state").write_bytes(elsewhere.to_bytes("of-another-worker.state"))
    read = files.read((*chain.names, "of-another-worker.state"))
    assert read.state.rows_of(np.array([5])).clients["landed_at"].to_pylist() == [7]
    assert read.sizes == (*chain.sizes, len(elsewhere.to_bytes()))
    state_chain._cached.clear()
    with pytest.raises(StateError, match=r"state file .* is missing"):
        files.read(chain.names)


def test_a_batch_that_runs_again_does_not_see_its_first_run(tmp_path: Path) -> None:
    """The worker lives on when the driver dies before the manifest, or another attempt of the task won."""
    files = ShardFiles(str(tmp_path), 0)
    base = files.write(Chain(), clients(*range(100)), 0)
    first = files.write(base, clients(5, landed=7), 1)
    assert files.read(base.names).state.client_columns().landed_at.max() == 1
    again = files.write(files.read(base.names), clients(5, landed=8), 1)
    assert again.names[0] == first.names[0]
    assert again.names[1] != first.names[1]
    assert files.read(again.names).state.client_columns().landed_at.max() == 8
    assert files.read(first.names).state.client_columns().landed_at.max() == 7


def test_shards_and_folders_do_not_share_what_is_cached(tmp_path: Path) -> None:
    names = {}
    for number, folder in enumerate(("a", "b")):
        (tmp_path / folder).mkdir()
        for shard in (0, 1):
            files = ShardFiles(str(tmp_path / folder), shard)
            names[folder, shard] = files.write(Chain(), clients(10 * number + shard), 0).names
    for number, folder in enumerate(("a", "b")):
        for shard in (0, 1):
            state = ShardFiles(str(tmp_path / folder), shard).read(names[folder, shard]).state
            assert state.client_columns().client.tolist() == [10 * number + shard]


def test_a_mapped_state_takes_no_memory_but_its_index(tmp_path: Path) -> None:
    """Its columns are the file's pages, where Arrow and NumPy would have them; every shard stays at hand."""
    size = 0
    for shard in range(3):
        chain = ShardFiles(str(tmp_path), shard).write(Chain(), clients(*range(20_000), pushes=12), 0)
        size += chain.sizes[0]
    assert [shard for _, shard in state_chain._cached] == [0, 1, 2]
    del chain
    with_state = pa.total_allocated_bytes()
    state_chain._cached.clear()
    assert size > 20_000_000
    assert with_state - pa.total_allocated_bytes() < size / 50
    state = ShardFiles(str(tmp_path), 0).read([next(tmp_path.glob("shard-00000-*")).name]).state.parts[0].state
    assert column(state.recent_pushes, "digest").flags.aligned
    assert not column(state.recent_pushes, "digest").flags.owndata


def test_a_worker_that_had_a_shard_before_reads_what_others_wrote_since(tmp_path: Path) -> None:
    """Tasks change places between workers: one shard's turn on another doesn't cost this one its state."""
    files = ShardFiles(str(tmp_path), 0)
    base = files.write(Chain(), clients(*range(100)), 0)
    ours = dict(state_chain._cached)
    state_chain._cached.clear()  # the other worker
    longer = files.write(files.read(base.names), clients(5, landed=7), 1)
    state_chain._cached.clear()
    state_chain._cached.update(ours)
    (tmp_path / base.names[0]).unlink()  # to be seen if it is read
    assert files.read(longer.names).state.client_columns().landed_at.max() == 7


def test_files_of_a_chain_are_kept_as_long_as_a_manifest_names_them(tmp_path: Path) -> None:
    folder = StateFolder(str(tmp_path), 2, 2)
    for name in ("base", "change-1", "change-2", "base-2", "lost-attempt"):
        (tmp_path / f"{name}.state").touch()
    chains = [("base",), ("base", "change-1"), ("base", "change-1", "change-2"), ("base-2",), ("base-2",), ("base-2",)]
    left = []
    for batch_id, chain in enumerate(chains):
        manifest = folder.before(batch_id).after(batch_id, {1: [f"{name}.state" for name in chain]})
        if batch_id == 0:  # its other files are still to come
            manifest = manifest.after(0, {0: ["change-1.state", "change-2.state", "base-2.state"]})
        folder.write(manifest)
        left.append({path.stem for path in tmp_path.glob("*.state")})
    assert left[0] == {"base", "change-1", "change-2", "base-2"}
    manifests = sorted(path.name for path in tmp_path.glob("manifest-*"))
    assert manifests == [f"manifest-{batch_id:010d}.json" for batch_id in range(3, 3 + RETAINED_MANIFESTS)]
    assert folder.before(6).states[1] == ("base-2.state",)
    assert "base" not in left[-1]
    assert "base" in left[4]


def test_a_crash_between_files_and_manifest_starts_from_the_manifest_before(tmp_path: Path) -> None:
    folder = StateFolder(str(tmp_path), 1, 1)
    files = ShardFiles(str(tmp_path), 0)
    base = files.write(Chain(), clients(*range(100)), 0)
    folder.write(folder.before(0).after(0, {0: base.names}))
    dead = files.write(files.read(base.names), clients(5, landed=7), 1)  # no manifest: the driver died here

    folder = StateFolder(str(tmp_path), 1, 1)
    chain = files.read(folder.before(1).states[0])
    assert chain.names == base.names
    assert chain.state.client_columns().landed_at.max() == 1
    again = files.write(chain, clients(5, landed=8), 1)
    folder.write(folder.before(1).after(1, {0: again.names}))
    assert {path.name for path in tmp_path.glob("*.state")} == {*again.names}
    assert dead.names[1] not in again.names
    state_chain._cached.clear()
    assert files.read(folder.before(2).states[0]).state.client_columns().landed_at.max() == 8
