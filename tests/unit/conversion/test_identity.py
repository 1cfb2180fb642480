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
    CLIENT,
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

PINNED = [7629248266026408437, 229235451143031365, 2633985997666020080]


SERIES = "cluster_id", "client_instance_id", "series_id"
# xxh3-64 and the mixing of hashes have no key, so whoever wants a name of a certain hash finds one in a moment. The
# first pair has the id of `requests.total` without attributes, the second one, sent by OTHER_CLIENT, the hash that its
# series of CLIENT has in the state.
FORGED = ("nO/%]=X_", {"k": "2933"})
FORGED_OF_ANOTHER = ("J)Sv2PJw", {"k": "183"})


def series(*metrics: pb.Metric, **columns: Any) -> set[tuple[Any, ...]]:
    rows = Shard().points(push(1, *metrics, **columns))
    return set(values_of(rows, *SERIES))


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


def test_i1_clients_share_the_ids_of_equal_series_and_no_totals() -> None:
    shard = Shard()
    first, second = (
        shard.points(push(1, counter(10, 0, 1)), push(2, counter(70, 0, 1), client_instance_id=OTHER_CLIENT)),
        shard.points(push(3, counter(13, 0, 2)), push(4, counter(78, 0, 2), client_instance_id=OTHER_CLIENT)),
    )
    assert len(set(values_of([*first, *second], "series_id"))) == 1
    assert len(set(values_of([*first, *second], *SERIES))) == 2
    assert values_of(second, "client_instance_id", "delta_int") == [(CLIENT, 3), (OTHER_CLIENT, 8)]


def test_i1_a_forged_name_is_no_series_of_another_client() -> None:
    """A client may mix up its own series, but no other client's, not even in one batch."""
    (name, attributes), (other, of_other) = FORGED, FORGED_OF_ANOTHER
    (own,) = series(counter(1, 0, 1))
    assert series(counter(1, 0, 1, name=name, attributes=attributes)) == {own}
    shard = Shard()
    shard.run(push(1, counter(10, 0, 1)))
    forged = push(2, counter(1000, 0, 2, name=other, attributes=of_other), client_instance_id=OTHER_CLIENT)
    rows = shard.points(forged, push(3, counter(13, 0, 3)))
    assert values_of(rows, "client_instance_id", "delta_status", "delta_int") == [
        (OTHER_CLIENT, "first", 1000),
        (CLIENT, "converted", 3),
    ]
    rows = shard.points(
        push(4, counter(14, 0, 4)),
        push(5, counter(1002, 0, 5, name=other, attributes=of_other), client_instance_id=OTHER_CLIENT),
    )
    assert values_of(rows, "client_instance_id", "delta_status", "delta_int") == [
        (CLIENT, "converted", 1),
        (OTHER_CLIENT, "converted", 2),
    ]


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
        ({"node.id": "node-a"}, "node-a", None),
    ],
)
def test_i4_node_ids_of_all_clients_become_one(sent: dict[str, object], node_id: str, role: str | None) -> None:
    row = Shard().one(push(1, counter(1, 0, 1, attributes=sent)))
    assert dict(row["attributes"]) == {"node_id": node_id} | ({} if role is None else {"node_role": role})
    assert row["flags"] is None


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


def test_i4_old_franz_go_counters_are_monotonic_by_name() -> None:
    old = [counter(5, 0, 1, monotonic=False), counter(7, 0, 1, monotonic=False, name="queue.size")]
    rows = Shard().points(push(1, *old, scope="kgo"))
    assert values_of(rows, "is_monotonic", "delta_status", "delta_int", "flags") == [
        (True, "first", 5, ["monotonic_assumed"]),
        (False, "value", None, None),
    ]
    assert series(old[0], scope="kgo") == series(counter(5, 0, 1), scope="kgo")


def test_i4_other_scopes_are_taken_at_their_word() -> None:
    rows = Shard().run(push(1, counter(5, 0, 1, monotonic=False), counter(None, 0, 1, name="a.total"), scope="other"))
    assert values_of(rows.metric_points.to_pylist(), "is_monotonic", "delta_status") == [(False, "value")]
    assert values_of(rows.quarantine.to_pylist(), "reason", "metric") == [("NO_VALUE", "a.total")]
