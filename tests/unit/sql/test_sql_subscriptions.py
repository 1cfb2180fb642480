"""The subscriptions' views, over hand-made pushes of three clients and the history of three polls."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_telemetry_lake.pipelines.query.views import needed
from kafka_telemetry_lake.pipelines.subscriptions.configured import ConfiguredSubscriptions
from kafka_telemetry_lake.pipelines.tables.subscriptions import CLIENT_ATTRIBUTES
from kafka_telemetry_lake.udfs.subscriptions.history import client_matches
from kafka_telemetry_lake.udfs.subscriptions.matching import ATTRIBUTES, Subscription, client_attributes_ids
from tests.support.config_polls import record_subscriptions
from tests.support.lake_tables import table
from tests.support.sql_views import Rows, answer, told

T = [datetime(2026, 11, 21, 12, minute, tzinfo=UTC) for minute in range(20)]
KEY = {"source": "kafka", "topic": "t", "partition": 0, "cluster_id": "c1"}
POLLS = {
    0: [Subscription("all", ("*",), 1000, (("client_id", "orders-.*"),)), Subscription("none", (), 500)],
    4: [Subscription("producers", ("p.",), 900_000, (("client_software_name", "java"),))],
    8: [
        Subscription("producers", ("p.", "q."), 900_000, (("client_software_name", "java"),)),
        Subscription("odd", ("c.",), 1000, (("client_id", r"\borders"),)),
    ],
}
ORDERS = {"client_id": "orders-1", "client_software_name": "java", "client_software_version": "4"}
BILLS = {"client_id": "bills", "client_software_name": "java", "client_software_version": "4"}
OTHER = {"client_id": "other", "client_software_name": None, "client_software_version": None}
# Minute, client, metrics.
PUSHES: list[tuple[int, dict[str, Any], list[str]]] = [
    (1, ORDERS, ["p.a", "c.b"]),
    (1, BILLS, ["p.a"]),
    (5, ORDERS, ["p.a", "c.b"]),
    (9, BILLS, ["p.a", "q.b"]),
    (9, ORDERS, ["c.b"]),
    (6, OTHER, ["p.a"]),
    (5, ORDERS | {"subscription_id": 7}, ["c.b"]),
    (4, ORDERS, ["p.a"]),
]
Ask = Callable[..., list[tuple[Any, ...]]]


def of_cluster(times: dict[str, int | None], **more: Any) -> dict[str, Any]:
    """A row with times in minutes after noon."""
    return {"cluster_id": "c1", **{name: None if at is None else T[at] for name, at in times.items()}, **more}


def tables(folder: Path) -> dict[str, Rows]:
    """The lake's tables that the views read. The subscriptions of minute 1 were announced to the client with id 7."""
    for minute, subscriptions in POLLS.items():
        record_subscriptions(str(folder), T[minute], ConfiguredSubscriptions("c1", tuple(subscriptions)))
    versions = table(folder, "subscriptions")
    clients = pa.Table.from_pylist([{"cluster_id": "c1", **client} for _, client, _ in PUSHES], ATTRIBUTES)
    ids = client_attributes_ids(clients).tolist()
    pushes, outcomes, points = [], [], []
    for offset, (minute, client, metrics) in enumerate(PUSHES):
        key = {**KEY, "offset": offset, "landed_at": T[minute]}
        size = {"payload_bytes": 1500, "compression_type": "none" if client is BILLS else "zstd"}
        pushes.append({**key, **client, "client_instance_id": client["client_id"], **size})
        outcome = {"client_attributes_id": ids[offset], "points": len(metrics), "decompressed_bytes": 3000}
        own = {"client_instance_id": client["client_id"], "client_id": client["client_id"], "outcome": "points"}
        outcomes.append({**key, **outcome, **own})
        points += [{**key, "metric": metric} for metric in metrics]
    distinct = clients.append_column("client_attributes_id", pa.array(ids)).to_pylist()
    distinct = list({row["client_attributes_id"]: row for row in distinct}.values())
    attributes = pa.Table.from_pylist(distinct, CLIENT_ATTRIBUTES.schema)
    spans: list[tuple[dict[str, int | None], str]] = [
        ({"landed_to": 4}, "agrees"),
        ({"landed_from": 4, "subscription_at": 1}, "older"),
    ]
    return {
        "subscriptions": versions.to_pylist(),
        "client_matches": client_matches(attributes, versions).to_pylist(),
        "announced_subscriptions": [
            of_cluster(span, client_attributes_id=ids[6], subscription_state=state) for span, state in spans
        ],
        "pushes": pushes,
        "push_outcomes": outcomes,
        "metric_points": points,
    }


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    content = tables(tmp_path_factory.mktemp("lake"))

    def asked(view: str, columns: str) -> list[tuple[Any, ...]]:
        below = {name: content[name] for name in needed([view])[1] if name in content}
        return told(view, below, columns)

    return asked


def test_m8_points_per_subscription_as_of_the_push(ask: Ask) -> None:
    """Of each point who asked for it; the same by subscription; and what nobody asked for (M2, M3)."""
    points = ask("point_subscriptions", '"offset", metric, subscriptions')
    assert points == [
        (0, "c.b", ["all"]),
        (0, "p.a", ["all"]),
        (1, "p.a", []),
        (2, "c.b", []),
        (2, "p.a", ["producers"]),
        (3, "p.a", ["producers"]),
        (3, "q.b", ["producers"]),
        (4, "c.b", None),  # may have been asked for by `odd`, whose pattern isn't translated
        (5, "p.a", []),
        (6, "c.b", ["all"]),  # pushed under the subscription of minute 1
        (7, "p.a", ["producers"]),  # landed at the poll that saw the change
    ]
    by_subscription = [(offset, metric, name) for offset, metric, names in points for name in names or ()]
    assert ask("subscription_metrics", '"offset", metric, subscription') == by_subscription
    assert ask("unsubscribed_metrics", '"offset", metric') == [each[:2] for each in points if each[2] == []]


def test_m7_what_lies_between_polls_is_uncertain(ask: Ask) -> None:
    spans = ask("subscription_uncertain_spans", "since, until")
    assert spans == [(datetime(1970, 1, 1, tzinfo=UTC), T[0]), (T[0], T[4]), (T[4], T[8])]
    columns = '"offset", subscription_state, subscription_uncertain'
    assert ask("push_subscription_times", columns) == [
        (0, None, True),
        (1, None, True),
        (2, None, True),
        (3, None, False),
        (4, None, False),
        (5, None, True),
        (6, "older", False),  # its id tells
        (7, None, False),
    ]


def test_m7_spans_that_overlap_are_one() -> None:
    """Such as those of two clocks' polls: a push lies in at most one span."""
    names = ("not_seen_at", "valid_from", "last_seen_at", "valid_to")
    spans = [(1, 3), (2, 5, 9, 10), (4, 6), (6, 7), (11, 12)]
    versions = [of_cluster(dict(zip(names, span, strict=False))) for span in spans]
    versions[-1]["cluster_id"] = "c2"
    assert told("subscription_uncertain_spans", {"subscriptions": versions}, "cluster_id, since, until") == [
        ("c1", T[1], T[6]),
        ("c1", T[6], T[7]),
        ("c1", T[9], T[10]),
        ("c2", T[11], T[12]),
    ]


def test_changes(ask: Ask) -> None:
    assert ask("subscription_changes", '"at", not_before, change, subscription') == [
        (T[0], None, "created", "all"),
        (T[0], None, "created", "none"),
        (T[4], T[0], "created", "producers"),
        (T[4], T[0], "deleted", "all"),
        (T[4], T[0], "deleted", "none"),
        (T[8], T[4], "changed", "producers"),
        (T[8], T[4], "created", "odd"),
    ]


def test_coverage_tells_who_never_delivered_a_prefix(ask: Ask) -> None:
    columns = "subscription, prefix, client_software_name, client_software_version, asked, delivering, metrics"
    assert ask("subscription_coverage", columns) == [
        ("all", "*", "java", "4", 1, 1, 2),
        ("producers", "p.", "java", "4", 2, 2, 1),
        ("producers", "q.", "java", "4", 2, 1, 1),
    ]


def test_franz_go_takes_a_star_for_a_prefix_and_coverage_shows_it() -> None:
    """Its pushes are heartbeats (tests/kafka/test_clients_franz_go.py)."""
    push = {**KEY, "offset": 0, "landed_at": T[1]}
    version = {"name": "all", "valid_from": T[0], "cluster_id": "c1"}
    tables: dict[str, Rows] = {
        "subscriptions": [{**version, "metrics": ["*"], "interval_ms": 1000}],
        "client_matches": [{**version, "client_attributes_id": 1, "matches": True}],
        "pushes": [{**push, "client_instance_id": "x", "client_software_name": "kgo"}],
        "push_outcomes": [{**push, "client_attributes_id": 1, "outcome": "heartbeat", "points": 0}],
    }
    found = told("subscription_coverage", tables, "prefix, client_software_name, asked, delivering")
    assert found == [("*", "kgo", 1, 0)]


def test_cost(ask: Ask) -> None:
    columns = (
        "subscription, client_id, pushes, points, payload_bytes, decompressed_bytes, compression_ratio, "
        "large_uncompressed"
    )
    assert ask("subscription_cost", columns) == [
        ("all", "orders-1", 2, 3, 3000, 6000, 2.0, 0),
        ("producers", "bills", 1, 2, 1500, 3000, 2.0, 1),
        ("producers", "orders-1", 2, 2, 2250, 4500, 2.0, 0),
    ]


def test_a_client_that_works_with_an_older_subscription_is_one_event(ask: Ask) -> None:
    events = ask("subscription_events", 'event, "offset", client_id, "at", detail')
    assert [row for row in events if "changed" in row[0]] == [
        ("subscription_changed", 6, "orders-1", T[5], [("pushed_as_of", "2026-11-21 12:01:00.000000")]),
    ]


INTERVAL = 10_000
NEW = ("client_port", 2)
LAST = ("terminating", True)


def pushed(*pushes: tuple[Any, ...]) -> dict[str, Rows]:
    """Pushes of (seconds, and any of client=, and columns of pushes)."""
    rows: list[dict[str, Any]] = []
    for offset, (seconds, *more) in enumerate(pushes):
        row: dict[str, Any] = {"client": 1, "push_interval_ms": INTERVAL, "terminating": False, "client_port": 1}
        row |= dict(more)
        row["client_instance_id"] = f"client-{row.pop('client')}"
        rows.append({**KEY, "offset": offset, "landed_at": T[0] + timedelta(seconds=seconds), **row})
    outcomes = [
        {**KEY, "offset": row["offset"], "landed_at": row["landed_at"], "outcome": row.pop("outcome", "points")}
        for row in rows
    ]
    return {"pushes": rows, "push_outcomes": outcomes}


def judged(*pushes: tuple[Any, ...]) -> list[dict[str, Any]]:
    return answer("push_discipline", pushed(*pushes), 'SELECT * FROM push_discipline ORDER BY "offset"')


def early(*pushes: tuple[Any, ...]) -> list[tuple[bool | None, str | None]]:
    """Of all but the first push, which nothing tells."""
    (first, *others) = [(row["early"], row["early_reason"]) for row in judged(*pushes)]
    assert first == (None, None)
    return others


def missed(*pushes: tuple[Any, ...]) -> list[int | None]:
    (first, *others) = [row["missed"] for row in judged(*pushes)]
    assert first is None
    return others


def test_m11_gaps_and_what_they_are_held_against() -> None:
    rows = judged((0,), (10,), (25.5,), (3, ("client", 2)), (13, ("client", 2)))
    assert [row["gap_ms"] for row in rows] == [None, 10_000, 15_500, None, 10_000]
    assert [row["expected_ms"] for row in rows] == [None, INTERVAL, INTERVAL, None, INTERVAL]


@pytest.mark.parametrize(("gap", "expected"), [(9.9, False), (9.899, True), (5, True), (10, False), (0, True)])
def test_m11_early_is_before_the_interval_less_the_tolerance(gap: float, expected: bool) -> None:
    assert early((0,), (gap,)) == [(expected, None)]


def test_m11_one_early_push_per_connection_is_accepted() -> None:
    assert early((0,), (1, NEW), (2, NEW), (3,)) == [(True, "new_connection"), (True, None), (True, None)]
    assert early((0,), (1, ("client_port", None))) == [(True, "connection_unknown")]


def test_m11_terminating_push_is_exempt_once() -> None:
    assert early((0,), (1, LAST), (2, LAST), (12, LAST)) == [(True, "terminating"), (True, None), (False, None)]


def test_m11_changed_interval_starts_anew() -> None:
    faster = ("push_interval_ms", 2000)
    assert early((0,), (1, faster), (2, faster)) == [(True, "interval_changed"), (True, None)]
    assert early((0,), (2, faster)) == [(False, None)]  # compared with the shorter of the two intervals


def test_m11_unknown_interval_is_not_judged() -> None:
    rows = judged((0,), (1, ("push_interval_ms", 0)), (2,))
    unknown = [(row["gap_ms"], row["early"], row["missed"]) for row in rows]
    assert unknown == [(None, None, None), (1000, None, None), (1000, None, None)]


def test_m11_a_redelivered_push_counts_once() -> None:
    assert [row["gap_ms"] for row in judged((0,), (1, ("outcome", "duplicate")), (10,))] == [None, 10_000]


@pytest.mark.parametrize(("gap", "expected"), [(10, 0), (15, 0), (19.8, 0), (19.9, 1), (20, 1), (30, 2), (305, 29)])
def test_l9_missed_pushes(gap: float, expected: int) -> None:
    assert missed((0,), (gap,)) == [expected]


@pytest.mark.parametrize(("gap", "expected"), [(20, 0), (24.8, 0), (25, 1), (35, 2)])
def test_l9_missed_pushes_leave_room_for_the_jitter_of_a_new_start(gap: float, expected: int) -> None:
    assert missed((0,), (gap, NEW)) == missed((0,), (gap, ("push_interval_ms", 9999))) == [expected]


def test_l9_missed_pushes_are_held_against_the_longer_of_two_intervals() -> None:
    for gap, interval in ((12, 2000), (40, 30_000)):
        assert missed((0,), (gap, ("push_interval_ms", interval))) == [0]


def test_l9_nothing_is_missed_after_a_terminating_push() -> None:
    assert missed((0, LAST), (100,), (120,)) == [0, 1]


def test_an_interval_that_no_receiver_tells_is_that_of_the_subscriptions(ask: Ask) -> None:
    """`none` asks all for nothing every 500 ms, until 4; at 9 nobody can say whom `odd` matches."""
    pushes = ask("push_discipline", '"offset", push_interval_ms')
    assert pushes == [(0, 500), (1, 500), (2, 300_000), (3, None), (4, None), (5, None), (6, 500), (7, 300_000)]


def test_m11_early_pushes_are_events() -> None:
    assert told("subscription_events", pushed((0,), (1,), (2, NEW)), 'event, "offset", "at", detail') == [
        ("early_push", 1, T[0] + timedelta(seconds=1), [("gap_ms", "1000"), ("expected_ms", "10000")]),
    ]
