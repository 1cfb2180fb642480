"""The quotas' views over a few rows each."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.quota_samples import at, quota
from tests.support.quota_samples import usage_window as window
from tests.support.sql_views import answer, told
from tests.unit.quotas.test_quotas_precedence import LEVELS

EXEMPT = float(2**63 - 1)
Row = dict[str, Any]


def full(second: float, throttle_ms: float = 5.0, **fields: Any) -> Row:
    return window(second, **{"throttled": True, "used_percent": 100.0, "throttle_ms": throttle_ms} | fields)


def client(name: str, principal: str | None, client_id: str | None, first: float = -3600, last: float = 3600) -> Row:
    """A row of client_changes, which view clients takes."""
    seen = {"first_seen": at(first), "last_seen": at(last), "step": 1, "state": "active"}
    return {"cluster_id": "c", "client_instance_id": name, "client_id": client_id, "principal": principal} | seen


def test_q14_windows_hold_the_source_that_is_trusted_most() -> None:
    rows = [
        window(0, source="client", used_percent=40.0),
        window(0, source="broker", used_percent=50.0),
        window(0, source="evidence", broker_id=None),
        window(0, source="client", used_percent=30.0, broker_id=2),
        window(10, source="evidence", broker_id=None),
        window(10, source="evidence", broker_id=None, client_id="other"),
        window(10, source="client", client_id="other"),
        window(0, source="client", window_seconds=60),
    ]
    columns = "client_id, window_start, window_seconds, broker_id, source"
    assert told("quota_windows", {"quota_usage": rows}, columns) == [
        ("app", at(0), 10, 1, "broker"),
        ("app", at(0), 10, 2, "client"),
        ("app", at(0), 60, 1, "client"),
        ("app", at(10), 10, None, "evidence"),
        ("other", at(10), 10, 1, "client"),
    ]


def test_headroom_is_of_the_newest_window_of_each_broker() -> None:
    rows = [
        window(0, observed_rate=90.0, used_percent=90.0),
        window(10, observed_rate=20.0, used_percent=20.0),
        window(10, observed_rate=130.0, used_percent=100.0, broker_id=2),
        window(0, observed_rate=130.0, window_seconds=60),
        window(10, user="ann", client_id="", quota_limit=None, used_percent=None),
        window(-590, user="bob"),
        window(-600, user="bea"),
    ]
    columns = '"user", client_id, shared, broker_id, window_start, used_percent, headroom'
    assert told("quota_headroom", {"quota_usage": rows}, columns) == [
        ("", "app", "all users", 1, at(10), 20.0, 80.0),
        ("", "app", "all users", 2, at(10), 100.0, 0.0),
        ("ann", "", "all client ids", 1, at(10), None, None),
        ("bob", "app", None, 1, at(-590), 50.0, 50.0),
    ]


@pytest.mark.parametrize("level", range(1, 9))
def test_q8_the_most_specific_quota_limits_a_client(level: int) -> None:
    quotas = [quota(*entity, float(n)) for n, (entity, _) in enumerate(LEVELS, 1) if n >= level]
    others = [quota("v", "app", 99.0), quota("ann", "d", 99.0), quota("ann", "app", 99.0, ended=0.0)]
    tables = {"client_changes": [client("i", "User:ann", "app")], "quotas": [*others, *quotas]}
    columns = 'level, quota_limit, bucket_user, bucket_client_id, quota_user, quota_client_id, "user"'
    found = told("client_quotas", tables, columns, "quota_type = 'produce'")
    entity, bucket = LEVELS[level - 1]
    assert found == [(level, float(level), *bucket, *entity, "ann")]


def test_q9_unlimited_are_those_without_a_quota_and_the_exempt() -> None:
    quotas = [
        quota("", "<default>", 100.0),
        quota("ann", "", EXEMPT, begun=-10),
        quota("", "<default>", float("inf"), quota_type="fetch"),
        quota("", "", 1.0, ip="10.0.0.1", quota_type="request"),
    ]
    clients = [client("a", "User:ann", "x"), client("b", "User:bob", "x"), client("n", None, None)]
    columns = "client_instance_id, quota_type, exempted_by, exempted_since"
    assert told("unlimited_clients", {"client_changes": clients, "quotas": quotas}, columns) == [
        ("a", "fetch", "user= client-id=<default>", at(-7200)),
        ("a", "produce", "user=ann client-id=", at(-10)),
        ("a", "request", None, None),
        ("b", "fetch", "user= client-id=<default>", at(-7200)),
        ("b", "request", None, None),
        ("n", "fetch", "user= client-id=<default>", at(-7200)),
        ("n", "request", None, None),
    ]


def test_history_tells_the_limit_before_and_what_is_measured() -> None:
    rows = [
        quota("ann", "", 100.0, 0, 60),
        quota("ann", "", 200.0, 60, not_seen_at=at(50)),
        quota("ann", "", 5.0, 60, quota_type="controller_mutation"),
        quota("", "", 9.0, 60, ip="10.0.0.1", quota_type="connection"),
    ]
    columns = "quota_type, limit_before, quota_limit, not_before, measured"
    assert told("quota_history", {"quotas": rows}, columns) == [
        ("connection", None, 9.0, None, False),
        ("controller_mutation", None, 5.0, None, False),
        ("produce", 100.0, 200.0, at(50), True),
        ("produce", None, 100.0, None, True),
    ]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([quota("ann", "", 1.0, 0)], (True, at(0), 1, [])),
        ([quota("ann", "", 1.0, 0, 60), quota("ann", "", 2.0, 60)], (True, at(0), 1, [])),
        ([quota("ann", "", 1.0, 0, 60), quota("bob", "", 2.0, 30)], (True, at(0), 1, [])),
        ([quota("ann", "", 1.0, 0, 60), quota("bob", "", 2.0, 90)], (True, at(90), 1, [])),
        ([quota("ann", "", 1.0, 0, 60), quota("bob", "", 2.0, 30, 50)], (False, at(60), 0, [])),
        ([quota("ann", "", EXEMPT, 5)], (False, at(5), 0, ["user=ann client-id="])),
        (
            [quota("ann", "", EXEMPT, 5), quota("", "b", EXEMPT, 5), quota("", "<default>", 1.0, 9)],
            (True, at(9), 1, ["user= client-id=b", "user=ann client-id="]),
        ),
        ([quota("ann", "", EXEMPT, 5, 6), quota("ann", "", 7.0, 6)], (True, at(6), 1, [])),
    ],
)
def test_enforcement_is_on_or_off_since(rows: list[Row], expected: tuple[Any, ...]) -> None:
    found = told("quota_enforcement", {"quotas": rows}, "quota_type, enforced, since, limits, exempt")
    assert found == [("produce", *expected)]


def test_changes_tell_the_use_before_and_after() -> None:
    quotas = [
        quota("ann", "", 100.0, -7200, 1000, last_seen_at=at(990)),
        quota("ann", "", 200.0, 1000, 2000, not_seen_at=at(990), last_seen_at=at(1995)),
    ]
    mine: dict[str, Any] = {"user": "ann", "client_id": ""}
    rows = [
        full(300, **mine, observed_rate=1.0),  # more than ten minutes before
        full(400, **mine, observed_rate=110.0),
        full(410, **mine, observed_rate=130.0, broker_id=2),
        full(980, **mine, observed_rate=120.0),
        full(984, **mine, observed_rate=130.0),  # after the last poll that found it, which isn't when it ended
        full(986, **mine, observed_rate=1.0, status="limit_changed"),
        full(1000, **mine, observed_rate=1.0),  # of a broker that doesn't know it yet
        window(992, **mine, observed_rate=170.0, quota_limit=200.0, used_percent=85.0),
        full(992, **mine, source="evidence", broker_id=None, quota_limit=200.0),
        window(1010, **mine, observed_rate=150.0, quota_limit=200.0, used_percent=75.0),
        window(1020, user="bob", client_id="", quota_limit=200.0),
        window(2010, **mine, observed_rate=300.0, quota_limit=None, used_percent=None),
    ]
    columns = (
        '"at", not_before, limit_before, limit_after, rate_before, rate_after, used_percent_before, used_percent_after'
    )
    tables = {"quotas": quotas, "quota_usage": rows}
    assert told("quota_changes", tables, columns) == [
        (at(-7200), at(-7200), None, 100.0, None, None, None, None),
        (at(1000), at(990), 100.0, 200.0, 122.5, 160.0, 100.0, 80.0),
        (at(2000), at(1995), 200.0, None, None, 300.0, None, None),
    ]
    columns = "throttled_windows_before, throttled_windows_after"
    assert told("quota_changes", tables, columns, "limit_before = 100") == [(4, 0)]


def test_a_change_of_the_default_counts_the_buckets_that_had_its_limit() -> None:
    quotas = [quota("", "<default>", 100.0, 0, 60, last_seen_at=at(60)), quota("", "<default>", EXEMPT, 60)]
    rows = [
        window(0, observed_rate=10.0),
        window(0, observed_rate=30.0, client_id="other"),
        window(0, observed_rate=999.0, client_id="own", quota_limit=777.0),
        window(0, observed_rate=999.0, user="ann", client_id=""),
        window(60, observed_rate=500.0, quota_limit=None),
    ]
    tables = {"quotas": quotas, "quota_usage": rows}
    found = told("quota_changes", tables, "rate_before, rate_after, limit_after", "limit_before = 100")
    assert found == [(20.0, 500.0, EXEMPT)]


def test_q15_stretches_of_throttling() -> None:
    rows = [
        full(0, 5.0, delay_s=1.0),
        full(0, 9.0, delay_s=3.0, broker_id=2),
        window(10),
        full(70, 7.0),
        full(150, 2.0),
        full(0, window_seconds=60),
        full(0, client_id="", user="ann", source="evidence", broker_id=None),
        window(200, client_id="calm"),
    ]
    columns = (
        '"user", client_id, shared, since, until, throttled_s, ongoing, brokers, max_throttle_ms, max_delay_s, '
        "sources, client_instance_ids"
    )
    assert told("throttled_clients", {"quota_usage": rows}, columns) == [
        ("", "app", "all users", at(0), at(80), 20, False, [1, 2], 9.0, 3.0, ["broker"], []),
        ("", "app", "all users", at(150), at(160), 10, True, [1], 2.0, None, ["broker"], []),
        ("ann", "", "all client ids", at(0), at(10), 10, False, [], 5.0, None, ["evidence"], []),
    ]


def instances(clients: list[Row], quotas: list[Row], **bucket: Any) -> list[str]:
    tables = {"quota_usage": [full(0, **bucket)], "client_changes": clients, "quotas": quotas}
    (row,) = answer("throttled_clients", tables)
    ids: list[str] = row["client_instance_ids"]
    return ids


def test_q15_the_client_instances_behind_a_bucket_are_those_that_brokers_count_in_it() -> None:
    clients = [
        client("ann-app", "User:ann=smith é", "app"),
        client("ann-other", "User:ann=smith é", "other"),
        client("bob-app", "User:bob", "app"),
        client("gone", "User:ann=smith é", "app", -3600, -600),
        client("later", "User:ann=smith é", "app", 610),
    ]
    ann = "ann=smith é"
    assert instances(clients, [], user=ann, client_id="") == ["ann-app", "ann-other"]
    assert instances(clients, [], user="", client_id="app") == ["ann-app", "bob-app"]
    assert instances(clients, [], user=ann, client_id="app") == ["ann-app"]
    # One that has its own quota isn't counted with the rest of its user, nor of its client id.
    own = [quota(ann, "app", 5.0), quota(ann, "", 9.0), quota("", "app", 9.0)]
    assert instances(clients, own, user=ann, client_id="") == ["ann-other"]
    assert instances(clients, own, user="", client_id="app") == ["bob-app"]
    assert instances(clients, own, user=ann, client_id="app") == ["ann-app"]
    # What counts is what was configured then.
    before_and_after = [quota(ann, "app", 5.0, -7200, 5), quota(ann, "app", 5.0, 20), quota(ann, "", 9.0)]
    assert instances(clients, before_and_after, user=ann, client_id="") == ["ann-app", "ann-other"]
    then = [quota(ann, "app", 5.0, -7200, 20), quota(ann, "", 9.0)]
    assert instances(clients, then, user=ann, client_id="") == ["ann-other"]


def test_the_error_of_estimates() -> None:
    rows = [
        window(0, observed_rate=100.0),
        window(0, observed_rate=110.0, source="client"),
        window(10, observed_rate=110.0, source="client"),
        window(20, observed_rate=0.0),
        window(20, observed_rate=110.0, source="client"),
        window(0, observed_rate=110.0, source="client", broker_id=2),
    ]
    found = told("quota_estimate_error", {"quota_usage": rows}, "window_start, error")
    assert found == [(at(0), pytest.approx(0.1))]
