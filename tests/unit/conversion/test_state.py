"""The shard's state: its layout, its cost, and that it can be cut and put back by client."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_telemetry_lake.udfs.conversion.shard import process
from kafka_telemetry_lake.udfs.conversion.state import FORMAT, SCHEMAS, DamagedStateError, ShardState
from kafka_telemetry_lake.udfs.errors import OtherFormatError
from kafka_telemetry_lake.udfs.identity import client_keys
from kafka_telemetry_lake.udfs.kernels.arrays import column
from kafka_telemetry_lake.udfs.kernels.sharding import places_of
from tests.support.otlp_builder import (
    CLIENT,
    OTHER_CLIENT,
    Shard,
    counter,
    delta,
    exponential,
    gauge,
    histogram,
    push,
    table,
    values_of,
)


def full_state() -> ShardState:
    """Two clients, every table filled."""
    shard = Shard()
    for client in (CLIENT, OTHER_CLIENT):
        named: dict[str, Any] = {"client_instance_id": client}
        shard.run(
            push(
                1,
                counter(5, 0, 1),
                counter(1.5, 0, 1, name="d.total"),
                histogram((1, 2, 0), 0, 1, total=3.0),
                **named,
            ),
            push(
                2,
                exponential((1, 2), 0, 2, offset=-3, negative=(4,), zero=1),
                delta(1, 0, 2, name="e"),
                **named,
            ),
            push(3, delta(1, 5, 6, name="e"), **named),
        )
    return shard.state


def key(client: str) -> int:
    return int(client_keys(*(pa.array([text]).dictionary_encode() for text in ("cluster", client)))[0])


def assert_equal(left: ShardState, right: ShardState) -> None:
    for name in SCHEMAS:
        assert getattr(left, name).equals(getattr(right, name)), name


def test_state_round_trip() -> None:
    state = full_state()
    assert [getattr(state, name).num_rows for name in SCHEMAS] == [2, 6, 2, 4, 4, 0]
    for each in (state, ShardState.empty()):
        assert_equal(ShardState.from_bytes(each.to_bytes()), each)
    keys = state.clients["client"].to_pylist()
    assert keys == sorted(keys)


def test_the_length_of_a_file_is_known_before_it_is_made() -> None:
    state = full_state()
    parts = ShardState.joined([state.rows_of(np.array([key(client)])) for client in (OTHER_CLIENT, CLIENT)])
    for each in (state, ShardState.empty(), parts, state.rows_of(np.array([key(CLIENT)]))):
        assert each.file_bytes == len(each.to_bytes("a name"))


def test_rows_of_several_states_are_joined_with_their_lists() -> None:
    shard = Shard()
    for offset, client in enumerate((CLIENT, OTHER_CLIENT)):
        shard.run(push(offset, histogram((1, 2, 0), 0, 1), client_instance_id=client))
    before = shard.state
    shard.run(push(2, histogram((1, 5, 1), 0, 2), exponential((7, 8), 0, 2, negative=(4,)), client_instance_id=CLIENT))
    mine = np.array([key(CLIENT)])
    joined = ShardState.joined([shard.state.rows_of(mine), before.without(mine)]).distributions
    counts = {CLIENT: [[1, 5, 1], [7, 8]], OTHER_CLIENT: [[1, 2, 0]]}
    negative: dict[str, list[list[int]]] = {CLIENT: [[], [4]], OTHER_CLIENT: [[]]}
    clients = sorted((CLIENT, OTHER_CLIENT), key=key)
    assert joined["client"].to_pylist() == [key(client) for client in clients for _ in counts[client]]
    assert joined["positive"].to_pylist() == [each for client in clients for each in counts[client]]
    assert joined["negative"].to_pylist() == [each for client in clients for each in negative[client]]


def test_state_of_another_format_is_refused() -> None:
    for number in (0, FORMAT + 1):
        data = number.to_bytes(4, "little") + full_state().to_bytes()[4:]
        with pytest.raises(
            OtherFormatError,
            match=rf"^state file x.state has format {number}, and this build reads format {FORMAT} only: stop the job "
            r"and run `telemetry-lake replay --rebuild-state`, which makes it from table pushes again, or use .*$",
        ):
            ShardState.from_bytes(data, "x.state")
    with pytest.raises(DamagedStateError, match="header"):
        ShardState.from_bytes(b"")  # a disk that was full


def test_state_holds_what_it_says() -> None:
    state = full_state()
    mine = state.rows_of(np.array([key(CLIENT)]))
    assert values_of(
        mine.clients.to_pylist(), "client", "temporalities", "last_temporality", "terminating", "evicted"
    ) == [(key(CLIENT), 3, 1, False, False)]
    assert (
        column(state.clients, "place").tolist() == places_of(pa.array(sorted((CLIENT, OTHER_CLIENT), key=key))).tolist()
    )
    numbers = mine.numbers.to_pylist()
    assert values_of(numbers, "is_int", "delta_since") == [(True, False), (False, False)]
    assert numbers[0]["value"] == 5
    assert np.int64(numbers[1]["value"]).view(np.float64) == 1.5
    distributions = mine.distributions.to_pylist()
    assert values_of(distributions, "count", "bounds", "positive", "positive_offset", "negative", "zero_count") == [
        (3, [1.0, 2.0], [1, 2, 0], 0, [], 0),
        (8, [], [1, 2], -3, [4], 1),
    ]


def test_state_can_be_cut_and_merged_by_client() -> None:
    state = full_state()
    mine = state.rows_of(np.array([key(CLIENT)]))
    assert [getattr(mine, name).num_rows for name in SCHEMAS] == [1, 3, 1, 2, 2, 0]
    rest = state.without(np.array([key(CLIENT)]))
    assert [getattr(rest, name).num_rows for name in SCHEMAS] == [1, 3, 1, 2, 2, 0]
    merged = rest.merge(mine)
    for name in SCHEMAS:
        keys = [(column, "ascending") for column in SCHEMAS[name].names[:2]]
        assert getattr(merged, name).sort_by(keys).equals(getattr(state, name).sort_by(keys)), name


def test_state_merge_replaces_clients() -> None:
    shard = Shard()
    shard.run(
        push(1, counter(5, 0, 1), counter(6, 0, 1, name="b")),
        push(2, counter(7, 0, 1), client_instance_id="y"),
    )
    _, newer = process(table([push(2, counter(8, 0, 2))]), ShardState.empty())
    merged = shard.state.merge(newer)
    assert sorted(values_of(merged.numbers.to_pylist(), "value")) == [7, 8]
    assert merged.clients.num_rows == 2


def test_state_of_delta_clients_does_not_grow_with_series() -> None:
    few, many = Shard(), Shard()
    few.run(push(1, delta(1, 0, 1), gauge(1, 1)))
    many.run(push(1, *(delta(1, 0, 1, name=f"m{i}", attributes={"i": i}) for i in range(500))))
    assert len(few.state.to_bytes()) == len(many.state.to_bytes())


def test_state_of_a_cumulative_series_costs_41_bytes() -> None:
    shard = Shard()
    shard.run(push(1, *(counter(i, 0, 1, name=f"m{i}") for i in range(8000))))
    assert shard.state.numbers.num_rows == 8000
    assert shard.state.numbers.nbytes <= 41 * 8000


def test_state_is_not_changed_by_process() -> None:
    state = full_state()
    before = state.to_bytes()
    process(table([push(9, counter(9, 0, 9), delta(1, 6, 9, name="e"))]), state)
    assert state.to_bytes() == before
