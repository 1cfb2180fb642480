"""Principals' budgets in another number of shards: nothing is lost, and it goes where the clients go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.conversion.budget_shares import Holders, shares
from kafka_telemetry_lake.udfs.conversion.principals import account_rows, budget_keys
from kafka_telemetry_lake.udfs.conversion.state import BUDGETS, CLIENTS, ShardState

ALICE, BOB = 11, 22
KEY = {name: int(budget_keys(np.array([name]))[0]) for name in (ALICE, BOB)}
Counts = dict[tuple[int, int], tuple[int, int, int]]  # by principal and hour: series, text_bytes, landed_bytes


def accounts(counts: Counts | None = None) -> ShardState:
    """What a shard has counted, with a row of each principal in table `clients`."""
    rows = [(KEY[name], hour, *values) for (name, hour), values in (counts or {}).items()]
    owners = np.array([KEY[name] for name in dict.fromkeys(name for name, _ in counts or {})], np.int64)
    columns = list(zip(*rows, strict=True)) or [()] * 5
    budgets = pa.table([pa.array(values, pa.int64()) for values in columns], BUDGETS)
    clients = account_rows(owners, np.full(len(owners), 5), np.full(len(owners), 50))
    return replace(ShardState.empty(), clients=clients, budgets=budgets)


def holders(*rows: tuple[int, int, int, int]) -> Holders:
    """Of clients: principal, new shard, landing time, partition."""
    zeros: dict[str, Any] = {field.name: 0 for field in CLIENTS}
    clients = [
        zeros | {"client": number, "principal": row[0], "landed_at": row[2], "partition": row[3]}
        | {"terminating": False, "evicted": False}
        for number, row in enumerate(rows)
    ]  # fmt: skip
    return Holders.of(pa.Table.from_pylist(clients, CLIENTS), np.array([row[1] for row in rows], np.int32))


def counted(state: ShardState) -> list[tuple[int, ...]]:
    return [tuple(row.values()) for row in state.budgets.to_pylist()]


def test_a_shard_gets_what_its_share_of_the_clients_is() -> None:
    found = shares(
        [accounts({(ALICE, 7): (10, 100, 1000)}), accounts({(ALICE, 7): (5, 20, 1), (ALICE, 8): (1, 1, 3)})],
        [holders((ALICE, 0, 1, 90), (ALICE, 2, 2, 91), (ALICE, 2, 3, 92))],
    )
    assert counted(found[0]) == [(KEY[ALICE], 7, 5, 40, 333), (KEY[ALICE], 8, 0, 0, 1)]
    assert counted(found[2]) == [(KEY[ALICE], 7, 10, 80, 668), (KEY[ALICE], 8, 1, 1, 2)]
    assert list(found) == [0, 2]


def test_its_row_ages_with_the_latest_client_of_the_shard() -> None:
    """By the partition that the shard reads: with another one the budget would stay for ever."""
    found = shares(
        [accounts({(ALICE, 7): (1, 1, 1)})], [holders((ALICE, 0, 9, 90), (ALICE, 0, 8, 91), (ALICE, 1, 3, 92))]
    )
    rows = {
        shard: state.clients.select(["client", "partition", "landed_at"]).to_pylist() for shard, state in found.items()
    }
    assert rows == {
        0: [{"client": KEY[ALICE], "partition": 90, "landed_at": 9}],
        1: [{"client": KEY[ALICE], "partition": 92, "landed_at": 3}],
    }


def test_a_principal_without_clients_keeps_its_budget_in_the_shard_of_pushes_without_an_id() -> None:
    found = shares([accounts({(BOB, 7): (1, 2, 3)})] * 2, [holders((ALICE, 1, 1, 1))])
    assert {shard: counted(state) for shard, state in found.items()} == {0: [(KEY[BOB], 7, 2, 4, 6)]}
    assert found[0].clients.select(["partition", "landed_at"]).to_pylist() == [{"partition": 5, "landed_at": 50}]


def test_clients_of_several_old_shards_are_added_up() -> None:
    """As if all clients had been in one."""
    first, second = [(ALICE, 0, 9, 90), (BOB, 1, 1, 1)], [(ALICE, 0, 10, 91), (ALICE, 3, 2, 2)]
    counts: Counts = {(ALICE, 7): (10, 11, 12), (BOB, 7): (5, 5, 5)}
    apart = shares([accounts(counts), accounts()], [holders(*first), holders(*second)])
    both = shares([accounts(counts)], [holders(*first, *second)])
    assert apart.keys() == both.keys() == {0, 1, 3}
    assert all(apart[shard].to_bytes() == both[shard].to_bytes() for shard in both)


def test_nothing_is_lost_or_made_whatever_the_shares_are() -> None:
    numbers = np.random.default_rng(1)
    for _ in range(20):
        hours = {(name, int(hour)): tuple(numbers.integers(0, 1 << 38, 3).tolist())
                 for name in (ALICE, BOB) for hour in numbers.integers(0, 24, 3)}  # fmt: skip
        clients = [(ALICE if numbers.random() < 0.7 else BOB, int(numbers.integers(0, 9)), 1, 1) for _ in range(30)]
        found = shares([accounts(hours)], [holders(*clients)])
        rows = [row for state in found.values() for row in counted(state)]
        assert all(count >= 0 for row in rows for count in row[2:])
        for (name, hour), counts in hours.items():
            mine = np.array([row[2:] for row in rows if row[:2] == (KEY[name], hour)])
            assert mine.sum(axis=0).tolist() == list(counts)


def test_without_budgets_there_are_no_shares() -> None:
    assert shares([accounts()], [holders((ALICE, 0, 1, 1))]) == {}
    assert shares([], []) == {}
