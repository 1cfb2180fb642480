"""Which subscriptions were in force at a push, how surely, and whom each version matched."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_telemetry_lake.pipelines.lake.config_history import check
from kafka_telemetry_lake.pipelines.subscriptions.configured import (
    ConfiguredSubscriptions,
)
from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS
from kafka_telemetry_lake.udfs.subscriptions.history import (
    CLIENT_MATCHES,
    Timeline,
    client_matches,
    subscription_of,
    timeline,
)
from kafka_telemetry_lake.udfs.subscriptions.matching import ATTRIBUTES, Subscription, client_attributes_ids
from tests.support.config_polls import record_subscriptions
from tests.support.lake_tables import table

T = [datetime(2026, 11, 21, 12, minute, tzinfo=UTC) for minute in range(20)]
A1, A2 = Subscription("a", ("x.",), 1000), Subscription("a", ("y.", "x."), 1000, (("client_id", "orders-.*"),))
B = Subscription("b", ("*",), 500, (("client_id", r"\bx"),))


def micros(*times: datetime) -> Any:
    return np.array([int(time.timestamp() * 1e6) for time in times], np.int64)


def sync(lake: Path, at: datetime, *subscriptions: Subscription) -> bool:
    return bool(record_subscriptions(str(lake), at, ConfiguredSubscriptions("c1", subscriptions)))


def history(lake: Path) -> pa.Table:
    return table(lake, "subscriptions").sort_by([("valid_from", "ascending"), ("name", "ascending")])


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Looks at 0 (nothing), 2 (a), 4 (the same), 6 (a changed, b), 8 (the same), 10 (b is gone)."""
    for minute, subscriptions in ((0, []), (2, [A1]), (4, [A1]), (6, [A2, B]), (8, [A2, B]), (10, [A2])):
        sync(tmp_path, T[minute], *subscriptions)
    return tmp_path


def test_m6_history_is_what_was_configured(lake: Path) -> None:
    rows = history(lake).to_pylist()
    assert [subscription_of(row) for row in rows] == [A1, A2, B]
    times = [tuple(row[key] for key in ("not_seen_at", "valid_from", "last_seen_at", "valid_to")) for row in rows]
    assert times == [(T[0], T[2], T[4], T[6]), (T[4], T[6], None, None), (T[4], T[6], T[8], T[10])]


def test_order_of_match_entries_is_no_change_and_a_poll_without_one_commits_nothing(lake: Path) -> None:
    entries = (("client_id", "a"), ("client_software_name", "b"))
    before = table(lake, "subscriptions").num_rows
    assert sync(lake, T[11], A2, Subscription("c", ("m",), 100, entries))
    assert not sync(lake, T[12], Subscription("c", ("m",), 100, entries), A2)
    stored = next(subscription_of(row) for row in history(lake).to_pylist() if row["name"] == "c")
    same = ConfiguredSubscriptions("c1", (A2, stored))
    assert not check(SUBSCRIPTIONS, str(lake), "c1", same.rows(), T[13])
    assert table(lake, "subscriptions").num_rows == before + 1


def names_at(lake: Path, when: Timeline, minute: float) -> list[str]:
    rows = history(lake).to_pylist()
    (epoch,) = when.epochs(micros(T[0]) + int(minute * 60e6))
    return [f"{rows[row]['name']}{len(rows[row]['metrics'])}" for row in when.in_force[epoch]]


def test_m8_in_force_as_of_the_push(lake: Path) -> None:
    when = timeline(history(lake))
    names = {minute: names_at(lake, when, minute) for minute in (-1, 0, 1.99, 2, 5.99, 6, 9.99, 10, 60)}
    a1, a2_b, a2 = ["a1"], ["a2", "b1"], ["a2"]
    assert names == {-1: [], 0: [], 1.99: [], 2: a1, 5.99: a1, 6: a2_b, 9.99: a2_b, 10: a2, 60: a2}


def test_history_without_versions() -> None:
    when = timeline(SUBSCRIPTIONS.schema.empty_table())
    assert when.in_force == ((),)
    assert when.epochs(micros(T[0])).tolist() == [0]


def clients(*rows: dict[str, Any]) -> pa.Table:
    found = pa.Table.from_pylist([{"cluster_id": "c1", **row} for row in rows], ATTRIBUTES)
    return found.append_column("client_attributes_id", pa.array(client_attributes_ids(found)))


def test_client_matches(lake: Path) -> None:
    ours = [{"client_id": name} for name in ("orders-1", "bills", None)]
    known = clients(*ours, {"client_id": "a", "cluster_id": "c2"})
    ids = dict(zip(known["client_attributes_id"].to_pylist(), ("orders", "bills", "none", "elsewhere"), strict=True))
    found = client_matches(known, history(lake))
    assert found.schema == CLIENT_MATCHES
    columns = ("name", "valid_from", "matches")
    assert {(ids[row["client_attributes_id"]], *(row[it] for it in columns)) for row in found.to_pylist()} == {
        *((name, "a", T[2], True) for name in ("orders", "bills", "none")),
        ("orders", "a", T[6], True),
        *((name, "b", T[6], None) for name in ("orders", "bills")),
    }


def test_client_attributes_ids_tell_null_from_empty_and_columns_apart() -> None:
    rows: list[dict[str, Any]] = [{"client_id": ""}, {"client_id": None}, {"client_id": "a"}]
    rows += [{"client_software_name": "a"}]
    more = [("client_port", 1), ("client_port", 0), ("subscription_id", 1), ("cluster_id", "c2")]
    rows += [{"client_id": "a", name: value} for name, value in more]
    ids = client_attributes_ids(clients(*rows)).tolist()
    assert len(set(ids)) == len(rows)
    assert client_attributes_ids(clients(*rows, *rows).slice(5)).tolist() == (ids + ids)[5:]
    assert ids[4] == 899527660803133829  # stored: it must not change
