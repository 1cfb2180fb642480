"""Rules I1 to I4: what a series is, and how attributes are normalised."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from kafka_telemetry_lake.udfs import identity
from kafka_telemetry_lake.udfs.identity import NODE_KEYS, node_of, normalise, text_hash
from tests.support.otlp_builder import (
    OTHER_CLIENT,
    counter,
    delta,
    exponential,
    gauge,
    histogram,
    push,
    values_of,
)
from tests.unit.conversion.checked_shard import Shard

PINNED = [5856302575383847063, 1941107328357597787, -9119578320041203087]


def series(*metrics: pb.Metric, **columns: Any) -> set[int]:
    rows = Shard().points(push(1, *metrics, **columns))
    return set(values_of(rows, "series_id"))


def test_i1_series_ids_are_pinned() -> None:
    """Ids are stored for years: these may not change with versions, platforms or batches."""
    rows = Shard().points(
        push(1, counter(1, 0, 1), counter(1, 0, 1, attributes={"topic": "orders", "partition": "3"})),
        push(2, gauge(1.5, 2), scope="rdkafka#producer-1"),
    )
    assert values_of(rows, "series_id") == PINNED


def test_i1_every_part_of_the_identity_tells_series_apart() -> None:
    base = counter(1, 0, 1)
    variants = [
        series(base),
        series(counter(1, 0, 1, name="responses.total")),
        series(counter(1, 0, 1, attributes={"topic": "a"})),
        series(counter(1, 0, 1, attributes={"topic": "b"})),
        series(counter(1, 0, 1, monotonic=False)),
        series(gauge(1, 1, name="requests.total")),
        series(histogram((), 0, 1, bounds=(), count=1, name="requests.total")),
        series(exponential((1,), 0, 1, name="requests.total")),
        series(base, scope="kgo"),
        series(base, cluster_id="other"),
        series(base, client_instance_id=OTHER_CLIENT),
    ]
    assert len(set.union(*variants)) == len(variants)


def test_i1_attribute_texts_cannot_run_together() -> None:
    assert series(counter(1, 0, 1, attributes={"a": "b1:c"})) != series(counter(1, 0, 1, attributes={"a1:b": "c"}))


def test_i1_attribute_order_is_not_identity() -> None:
    forward = series(counter(1, 0, 1, attributes={"topic": "orders", "partition": "3"}))
    assert forward == series(counter(1, 0, 1, attributes={"partition": "3", "topic": "orders"}))


def test_i2_resource_attributes_are_not_identity() -> None:
    """group_member_id appears when a consumer joins; the series must go on."""
    shard = Shard()
    shard.run(push(1, counter(10, 0, 1)))
    row = shard.one(push(2, counter(13, 0, 2), resource={"group_member_id": "m-1"}))
    assert (row["delta_status"], row["delta_int"]) == ("converted", 3)


def test_i2_resource_attributes_are_labels_of_the_push() -> None:
    rows = Shard().run(push(1, counter(1, 0, 1), resource={"member_id": "m-1", "client_rack": "r"}))
    (outcome,) = rows.push_outcomes.to_pylist()
    assert dict(outcome["labels"]) == {"group_member_id": "m-1", "client_rack": "r"}


def test_i3_unit_description_number_type_bounds_scale_and_temporality_are_not_identity() -> None:
    described = counter(1, 0, 1)
    described.description, described.unit = "requests", "1"
    base = series(counter(1, 0, 1))
    assert base == series(described) == series(counter(1.0, 0, 1)) == series(delta(1, 0, 1))
    assert series(histogram((1, 0, 0), 0, 1)) == series(histogram((1, 0), 0, 1, bounds=(5.0,)))
    assert series(exponential((1,), 0, 1)) == series(exponential((1,), 0, 1, scale=3))


@pytest.mark.parametrize(
    ("sent", "node_id", "role"),
    [
        ({"node_id": "node-1"}, "1", "broker"),
        ({"node.id": 1}, "1", "broker"),
        ({"node_id": 1}, "1", "broker"),
        ({"node_id": "1"}, "1", "broker"),
        ({"node_id": "node--1"}, "-1", "bootstrap"),
        ({"node.id": -2}, "-2", "bootstrap"),
        ({"node_id": "node-2147483646"}, "1", "coordinator"),
        ({"node_id": "node-2147473647"}, "10000", "coordinator"),
        ({"node_id": "node-2147473646"}, "2147473646", "broker"),
    ],
)
def test_i4_node_ids_of_all_clients_become_one(sent: dict[str, object], node_id: str, role: str) -> None:
    row = Shard().one(push(1, counter(1, 0, 1, attributes=sent)))
    assert dict(row["attributes"]) == {"node_id": node_id, "node_role": role}
    assert row["flags"] is None


def test_i4_the_same_node_in_another_role_is_another_series() -> None:
    assert series(counter(1, 0, 1, attributes={"node_id": "node-1"})) != series(
        counter(1, 0, 1, attributes={"node_id": "node-2147483646"})
    )


def test_i4_a_node_id_that_is_no_number_keeps_its_text() -> None:
    row = Shard().one(push(1, counter(1, 0, 1, attributes={"node.id": "node-a"})))
    assert dict(row["attributes"]) == {"node_id": "node-a"}


def test_i4_member_id_becomes_group_member_id() -> None:
    row = Shard().one(push(1, counter(1, 0, 1, attributes={"member_id": "m"})))
    assert dict(row["attributes"]) == {"group_member_id": "m"}


@pytest.mark.parametrize("sent", [[("topic", "a"), ("topic", "b")], [("member_id", "a"), ("group_member_id", "b")]])
def test_i4_of_duplicate_keys_the_last_wins_flagged(sent: list[tuple[str, str]]) -> None:
    row = Shard().one(push(1, counter(1, 0, 1, attributes=sent)))
    assert [value for _, value in row["attributes"]] == ["b"]
    assert row["flags"] == ["duplicate_attribute"]


KEYS = st.sampled_from(
    [*NODE_KEYS, "member_id", "group_member_id", "node_role", "topic", "z", "Z", "", "\u00e4", "\U0001f600"]
)
VALUES = st.sampled_from(["node-1", "1", "007", "node--2", "2147483646", "node-a", "", "\u00e4", "\U0001f600"])


@given(st.lists(st.lists(st.tuples(KEYS, VALUES), max_size=6), max_size=20), st.sampled_from([1, 2, 50_000]))
def test_i4_columns_are_normalised_as_one_set_at_a_time(sets: list[list[tuple[str, str]]], at_a_time: int) -> None:
    with mock.patch.object(identity, "PAIRS_AT_A_TIME", at_a_time):
        found = normalise(pa.array(sets, pa.map_(pa.string(), pa.string())))
    found.maps.validate(full=True)
    assert list(zip(found.maps.to_pylist(), found.hashes.tolist(), found.duplicate.tolist(), strict=True)) == [
        one_normalised(pairs) for pairs in sets
    ]


def one_normalised(pairs: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], int, bool]:
    """A set by I4, pair by pair: the pairs by key, their hash, whether a key was given twice."""
    plain: dict[str, str] = {}
    duplicate = False
    for key, value in pairs:
        renamed = {"group_member_id" if key == "member_id" else key: value}
        if key in NODE_KEYS:
            node, role = node_of(value)
            renamed = {"node_id": node} | ({"node_role": role} if role else {})
        duplicate |= any(name in plain for name in renamed)
        plain.update(renamed)
    ordered = sorted(plain.items())
    return ordered, text_hash("".join(f"{len(text)}:{text}" for pair in ordered for text in pair)), duplicate


def test_i4_franz_go_leaves_out_zeros() -> None:
    rows = Shard().points(push(1, counter(None, 0, 1), gauge(None, 1), scope="kgo"))
    assert values_of(rows, "value", "value_int", "delta_status", "flags") == [
        (0.0, 0, "first", ["value_assumed"]),
        (0.0, 0, "value", ["value_assumed"]),
    ]


def test_i4_franz_go_zero_keeps_the_series_int64() -> None:
    shard = Shard()
    shard.run(push(1, counter(None, 0, 1), scope="kgo"))
    assert shard.one(push(2, counter(2**53 + 1, 0, 2), scope="kgo"))["delta_int"] == 2**53 + 1


def test_i4_old_franz_go_counters_are_monotonic_by_name() -> None:
    rows = Shard().points(
        push(
            1,
            counter(5, 0, 1, monotonic=False),
            counter(7, 0, 1, monotonic=False, name="queue.size"),
            scope="kgo",
        )
    )
    assert values_of(rows, "is_monotonic", "delta_status", "delta_int", "flags") == [
        (True, "first", 5, ["monotonic_assumed"]),
        (False, "value", None, None),
    ]


def test_i4_old_and_new_franz_go_counters_are_one_series() -> None:
    old = series(counter(5, 0, 1, monotonic=False), scope="kgo")
    assert old == series(counter(5, 0, 1), scope="kgo")


def test_i4_other_scopes_are_taken_at_their_word() -> None:
    rows = Shard().run(push(1, counter(5, 0, 1, monotonic=False), counter(None, 0, 1, name="a.total"), scope="other"))
    assert values_of(rows.metric_points.to_pylist(), "is_monotonic", "delta_status") == [(False, "value")]
    assert values_of(rows.quarantine.to_pylist(), "reason", "metric") == [("NO_VALUE", "a.total")]
