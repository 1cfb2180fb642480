"""A client instance belongs to its principal, and a principal has a budget for each hour."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_telemetry_lake.udfs.conversion.state import ShardState
from kafka_telemetry_lake.udfs.limits import Limits
from tests.support.otlp_builder import CLIENT, OTHER_CLIENT, Shard, counter, delta, gauge, push, values_of

HOUR = 3600


def of(principal: str | None, offset: int, *metrics: Any, **columns: Any) -> dict[str, Any]:
    return push(offset, *metrics, principal=principal, **columns)


def rejected(rows: Any) -> list[Any]:
    return values_of(rows.quarantine.to_pylist(), "offset", "scope", "reason")


def test_a_push_of_another_principal_is_quarantined_and_changes_nothing_of_the_client() -> None:
    shard, undisturbed = Shard(), Shard()
    for each in (shard, undisturbed):
        each.run(of("User:alice", 1, counter(10, 0, 1)))
    bad = shard.run(
        of("User:mallory", 2, counter(90, 0, 3000), terminating=True),
        of("User:mallory", 3, terminating=True),
        of("User:mallory", 4, delta(4, 0, 3), landed=2 * HOUR),
    )
    assert rejected(bad) == [(offset, "push", "INVALID_REQUEST") for offset in (2, 3, 4)]
    (row, *_) = bad.quarantine.to_pylist()
    assert row["detail"] == "the principal is another than that of the client instance's earlier pushes"
    assert row["payload"] is not None
    assert bad.metric_points.num_rows == bad.client_events.num_rows == 0
    key = undisturbed.state.clients["client"].to_numpy()
    mine = shard.state.rows_of(key)
    for name in ("clients", "recent_pushes", "numbers"):
        assert getattr(mine, name).equals(getattr(undisturbed.state, name))
    assert shard.one(of("User:alice", 5, counter(12, 0, 5)))["delta_int"] == 2


def test_the_first_known_principal_is_the_clients_in_the_order_of_offsets() -> None:
    pushes = [of(None, 1, gauge(1, 1)), of("User:a", 2, gauge(1, 2)), of("User:b", 3, gauge(1, 3)),
              of(None, 4, gauge(1, 4)), of("User:a", 5, gauge(1, 5))]  # fmt: skip
    assert rejected(Shard().run(*reversed(pushes))) == [(3, "push", "INVALID_REQUEST")]
    one_by_one = Shard()
    assert [rejected(one_by_one.run(each)) for each in pushes] == [[], [], [(3, "push", "INVALID_REQUEST")], [], []]


def test_a_day_after_its_last_push_a_client_is_anybodys() -> None:
    for landed, expected in ((24 * HOUR + 1, [(2, "push", "INVALID_REQUEST")]), (24 * HOUR + 2, [])):
        shard = Shard()
        shard.run(of("User:a", 1, gauge(1, 1), landed=1))
        assert rejected(shard.run(of("User:b", 2, gauge(1, 2), landed=landed))) == expected
    assert rejected(shard.run(of("User:a", 3, gauge(1, 3), landed=landed + 1))) == [(3, "push", "INVALID_REQUEST")]


def test_clients_of_one_principal_and_equal_ids_of_two_clusters_do_not_conflict() -> None:
    rows = Shard().run(
        of("User:a", 1, gauge(1, 1)),
        of("User:a", 2, gauge(1, 2), client_instance_id=OTHER_CLIENT),
        of("User:b", 3, gauge(1, 3), cluster_id="other"),
    )
    assert rejected(rows) == []


def test_a_principals_bytes_of_an_hour_end_at_the_bound() -> None:
    sizes = [len(of("User:a", i, gauge(1, i))["payload"]) for i in (1, 2)]
    for bound, expected in ((sum(sizes), []), (sum(sizes) - 1, [(2, "push", "THROTTLING_QUOTA_EXCEEDED")])):
        for batches in (1, 2):
            shard = Shard(Limits(principal_bytes_per_hour=bound))
            pushes = [of("User:a", 1, gauge(1, 1)), of("User:a", 2, gauge(1, 2), client_instance_id=OTHER_CLIENT)]
            rows = [shard.run(*pushes)] if batches == 1 else [shard.run(each) for each in pushes]
            assert [row for each in rows for row in rejected(each)] == expected
            assert rejected(shard.run(of("User:b", 3, gauge(1, 3), client_instance_id="z"))) == []
            assert rejected(shard.run(of(None, 4, gauge(1, 4), client_instance_id="y"))) == []
            assert rejected(shard.run(of("User:a", 5, gauge(1, HOUR), landed=HOUR))) == []
    (row,) = rows[-1].quarantine.to_pylist()
    assert row["detail"] == f"landed bytes of the principal in this hour: more than {bound} in this shard"
    assert row["payload"] is None  # table pushes has it


def test_new_series_beyond_a_principals_bound_are_rejected_and_known_ones_go_on() -> None:
    for batches in (1, 2):
        shard = Shard(Limits(principal_series_per_hour=3))
        pushes = [
            of("User:a", 1, *(counter(1, 0, 1, name=f"m{i}") for i in range(2))),
            of("User:a", 2, *(counter(1, 0, 2, name=f"m{i}") for i in range(3)), client_instance_id=OTHER_CLIENT),
        ]
        rows = [shard.run(*pushes)] if batches == 1 else [shard.run(each) for each in pushes]
        found = [row for each in rows for row in each.quarantine.to_pylist()]
        assert values_of(found, "offset", "reason") == [(2, "TOO_MANY_SERIES_OF_PRINCIPAL")]
        assert found[0]["detail"] == "2 points of series beyond the limit of a principal"
        later = shard.run(of("User:a", 3, *(counter(5, 0, 3, name=f"m{i}") for i in range(3))))
        assert values_of(later.metric_points.to_pylist(), "metric", "delta_int") == [("m0", 4), ("m1", 4)]
        assert rejected(later) == [(3, "point", "TOO_MANY_SERIES_OF_PRINCIPAL")]
        next_hour = shard.run(of("User:a", 4, counter(5, 0, 4, name="m2"), landed=HOUR))
        assert rejected(next_hour) == []


def test_texts_of_new_series_are_counted_once_and_bounded() -> None:
    metrics = [counter(1, 0, 1, name="a" * 10), counter(1, 0, 1, name="b" * 11)]
    for bound, expected in ((21, 0), (20, 1)):
        shard = Shard(Limits(principal_text_bytes_per_hour=bound))
        assert len(rejected(shard.run(of("User:a", 1, *metrics)))) == expected
        assert len(rejected(shard.run(of("User:a", 2, *metrics)))) == expected


def test_a_shard_has_an_equal_share_and_0_is_no_bound() -> None:
    limits = Limits(principal_series_per_hour=100, principal_text_bytes_per_hour=1, principal_bytes_per_hour=0)
    shared = limits.of_shard(8)
    assert shared.principal_series_per_hour == 12
    assert shared.principal_text_bytes_per_hour == 1
    assert shared.principal_bytes_per_hour == 0
    none = Limits(principal_series_per_hour=0, principal_text_bytes_per_hour=0, principal_bytes_per_hour=0)
    assert rejected(Shard(none).run(of("User:a", 1, counter(1, 0, 1)))) == []


def test_a_million_ordinary_clients_under_one_principal_pass() -> None:
    limits, clients, series = Limits(), 1_000_000, 40
    assert limits.principal_series_per_hour >= 2 * clients * series
    assert limits.principal_text_bytes_per_hour >= clients * series * 500
    assert limits.principal_bytes_per_hour >= 4 * (37 << 30)


def test_budgets_keep_a_day_and_go_when_the_principal_does() -> None:
    shard = Shard()
    for hour in range(30):
        shard.run(of("User:a", hour, counter(hour, 0, hour * HOUR + 1), landed=hour * HOUR + 1))
    hours = shard.state.budgets["hour"].to_pylist()
    assert hours == list(range(hours[0], hours[0] + 24))
    assert shard.state.budgets["series"].to_pylist() == [0] * 24  # one series, of the first hour
    shard.run(push(99, gauge(1, 1), landed=60 * HOUR, client_instance_id=OTHER_CLIENT))
    assert shard.state.budgets.num_rows == 0
    shard.run(push(100, gauge(1, 1), landed=33 * 24 * HOUR, client_instance_id=OTHER_CLIENT))
    assert shard.state.clients.num_rows == 1


@pytest.mark.parametrize("principal", [None, "User:a"])
def test_state_of_principals_survives_its_bytes(principal: str | None) -> None:
    shard = Shard()
    shard.run(of(principal, 1, counter(1, 0, 1), client_instance_id=CLIENT))
    again = ShardState.from_bytes(shard.state.to_bytes())
    assert again.budgets.equals(shard.state.budgets)
    assert again.clients.num_rows == (1 if principal is None else 2)
