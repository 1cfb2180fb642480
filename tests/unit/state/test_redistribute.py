"""A state of another number of shards: the same rows, in the shards where their clients' pushes will be read."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.state import chain as state_chain
from kafka_telemetry_lake.pipelines.state.chain import Chain, ShardFiles
from kafka_telemetry_lake.pipelines.state.parts import StateParts
from kafka_telemetry_lake.pipelines.state.redistribute import redistribute
from kafka_telemetry_lake.udfs.conversion.principals import budget_keys
from kafka_telemetry_lake.udfs.conversion.shard import process
from kafka_telemetry_lake.udfs.conversion.state import SCHEMAS, ShardState
from kafka_telemetry_lake.udfs.kernels.arrays import column
from kafka_telemetry_lake.udfs.kernels.sharding import places_of, shards_of
from kafka_telemetry_lake.udfs.limits import Limits
from tests.support.otlp_builder import counter, delta, exponential, histogram, push, table

pytestmark = pytest.mark.lake

HOUR = 3600
NAMES = [f"client-{number:02d}" for number in range(24)]
Chains = Mapping[int, Sequence[str]]


@pytest.fixture(autouse=True)
def new_worker() -> None:
    """Nothing cached, as in a worker process that just started."""
    state_chain._cached.clear()


def pushes_of(seed: int, batches: int = 12) -> list[pa.Table]:
    """Pushes of 24 clients of three principals, within half a day: what is evicted when depends on the shards."""
    numbers, offset, now, result = random.Random(seed), 0, 0, []
    for _ in range(batches):
        now += numbers.choice((1, 60, HOUR))
        pushes = []
        for client in numbers.sample(NAMES, numbers.randrange(1, 9)):
            offset += 1
            metrics = [
                counter(offset, 0, now),
                histogram((offset, 1, 0), 0, now, total=1.0),
                exponential((offset,), 0, now, offset=2),
                delta(1, now - numbers.choice((1, 40)), now, name="e"),
            ]
            some = numbers.sample(metrics, numbers.randrange(5))
            who = numbers.choice((None, f"User:{int(client[-2:]) % 3}"))
            pushes.append(push(offset, *some, landed=now, client_instance_id=client, principal=who))
        result.append(table(pushes))
    return result


def run(
    folder: Path, shards: int, batches: Sequence[pa.Table], states: Chains | None = None
) -> dict[int, Sequence[str]]:
    """The files of each shard after these batches; the state goes on from `states`."""
    folder.mkdir(exist_ok=True)
    after = dict(states or {})
    for number, pushes in enumerate(batches):
        shard = shards_of(pushes["client_instance_id"].combine_chunks(), shards)
        for each in np.unique(shard).tolist():
            files = ShardFiles(str(folder), each)
            chain = files.read(after.get(each, ()))
            before = ShardState(**dict(chain.state.whole()))
            _, state = process(pushes.filter(pa.array(shard == each)), before, Limits().of_shard(shards))
            gone = np.setdiff1d(column(before.clients, "client"), column(state.clients, "client"))
            after[each] = files.write(chain, ShardState.joined([state, ShardState.forgotten(gone)]), number).names
    return after


def read(folder: Path, states: Chains) -> dict[int, ShardState]:
    chains = {shard: ShardFiles(str(folder), shard).load(names) for shard, names in states.items()}
    return {shard: ShardState(**dict(chain.state.whole())) for shard, chain in chains.items()}


def of_clients(state: ShardState) -> ShardState:
    """Without budgets and what remains of them, and without tombstones that say nothing."""
    return state.rows_of(column(state.clients, "client")[column(state.clients, "place") != 0])


def assert_same_clients(left: dict[int, ShardState], right: dict[int, ShardState]) -> None:
    for shard in left.keys() | right.keys():
        for name in SCHEMAS:
            both = [getattr(of_clients(states.get(shard, ShardState.empty())), name) for states in (left, right)]
            assert both[0].equals(both[1]), (shard, name)


def spent(states: Mapping[int, ShardState]) -> list[tuple[int, ...]]:
    rows = pa.concat_tables([state.budgets for state in states.values()])
    counts = rows.group_by(["client", "hour"]).aggregate([(name, "sum") for name in rows.column_names[2:]])
    return sorted(tuple(row.values()) for row in counts.to_pylist() if row["landed_bytes_sum"])


@pytest.mark.slow
def test_the_state_is_that_of_a_run_with_this_number_of_shards(tmp_path: Path) -> None:
    """Row for row, in mid-stream: 2 -> 8 -> 3 -> 1."""
    batches = pushes_of(0)
    states = run(tmp_path / "moved", 2, batches[:4])
    for shards, first, last in ((8, 4, 7), (3, 7, 10), (1, 10, 12)):
        moved = redistribute(str(tmp_path / "moved"), states, shards, 100 + shards)
        straight = read(tmp_path / f"{shards}", run(tmp_path / f"{shards}", shards, batches[:first]))
        found = read(tmp_path / "moved", moved.states)
        assert_same_clients(found, straight)
        assert moved.clients == sum(of_clients(state).clients.num_rows for state in straight.values())
        assert spent(found) == spent(straight)
        assert all(len(names) == 1 for names in moved.states.values())
        states = run(tmp_path / "moved", shards, batches[first:last], moved.states)
    assert_same_clients(read(tmp_path / "moved", states), read(tmp_path / "0", run(tmp_path / "0", 1, batches)))


def test_every_row_of_a_budget_is_beside_a_client_of_its_principal(tmp_path: Path) -> None:
    states = run(tmp_path, 2, pushes_of(5))
    found = read(tmp_path, redistribute(str(tmp_path), states, 8, 99).states)
    held = 0
    for state in found.values():
        owners = np.unique(budget_keys(column(of_clients(state).clients, "principal")))
        keys = np.unique(column(state.budgets, "client"))
        assert np.isin(keys, owners).all()
        assert np.isin(keys, column(state.clients, "client")).all()
        held += len(keys)
    assert held > 3  # several shards share a principal's


def test_only_the_new_bases_are_left_beside_what_was_there(tmp_path: Path) -> None:
    states = run(tmp_path, 2, pushes_of(1))
    before = {path.name for path in tmp_path.iterdir()}
    moved = redistribute(str(tmp_path), states, 5, 99)
    after = {path.name for path in tmp_path.iterdir()}
    assert before <= after
    assert after - before == {name for names in moved.states.values() for name in names}
    assert state_chain._cached.keys() == {(str(tmp_path), 0), (str(tmp_path), 1)}  # of `run`: a shard is read once


def test_an_empty_state_has_no_files(tmp_path: Path) -> None:
    assert redistribute(str(tmp_path), {}, 4, 1) == ({}, 0)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    states = run(tmp_path, 2, pushes_of(1))
    name = states[1][0]
    data = bytearray((tmp_path / name).read_bytes())
    data[-100] ^= 4
    (tmp_path / name).unlink()
    (tmp_path / name).write_bytes(data)
    with pytest.raises(StateError, match=rf"state file {name} below .* is damaged .*replay --rebuild-state"):
        redistribute(str(tmp_path), states, 4, 99)


def test_what_remains_of_a_budget_is_left_behind(tmp_path: Path) -> None:
    """It is the tombstone of nobody, and no shard would ever read it again."""
    silent = table([push(1, landed=0, client_instance_id="silent", principal="User:gone")])
    later = table([push(2, counter(1, 0, 30 * HOUR), landed=30 * HOUR, client_instance_id="speaks")])
    states = run(tmp_path, 1, [silent, later])
    assert sum(state.clients.num_rows for state in read(tmp_path, states).values()) == 3
    moved = redistribute(str(tmp_path), states, 3, 99)
    left = [row for state in read(tmp_path, moved.states).values() for row in state.clients.to_pylist()]
    assert sorted((row["evicted"], row["place"]) for row in left) == [
        (False, places_of(pa.array(["speaks"]))[0]), (True, places_of(pa.array(["silent"]))[0]),
    ]  # fmt: skip


def test_one_shard_is_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states, alive = run(tmp_path, 6, pushes_of(3, batches=5)), []
    load = ShardFiles.load

    def counted(files: ShardFiles, names: Sequence[str]) -> Chain:
        gc.collect()
        alive.append(sum(each() is not None for each in seen))
        chain = load(files, names)
        seen.append(weakref.ref(chain.state))
        return chain

    seen: list[weakref.ref[StateParts]] = []
    monkeypatch.setattr(ShardFiles, "load", counted)
    gc.freeze()  # what other tests have left: each look would go through it
    redistribute(str(tmp_path), states, 6, 99)
    gc.unfreeze()
    assert len(alive) == 12
    assert max(alive) == 0
