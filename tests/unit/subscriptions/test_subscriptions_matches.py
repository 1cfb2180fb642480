"""The caches of who matches which subscription: updates for new clients or versions equal a rebuild."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kafka_telemetry_lake.pipelines.events.subscriptions import add_subscription_events
from kafka_telemetry_lake.pipelines.lake import follower
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.query.query_errors import QueryError
from kafka_telemetry_lake.pipelines.subscriptions import client_matches
from kafka_telemetry_lake.pipelines.subscriptions.client_matches import update_client_matches
from kafka_telemetry_lake.pipelines.subscriptions.configured import ConfiguredSubscriptions
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS, METRIC_POINTS, PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.pipelines.tables.subscriptions import CACHE_TABLES
from kafka_telemetry_lake.pipelines.upkeep.maintenance import Maintenance, MaintenanceSettings
from kafka_telemetry_lake.udfs.subscriptions.matching import Subscription, client_attributes_ids
from kafka_telemetry_lake.udfs.subscriptions.subscription_id import checksums, instance_hashes
from tests.support.application_lake import put
from tests.support.config_polls import record_subscriptions
from tests.support.expired_logs import expire_logs
from tests.support.lake_tables import table

pytestmark = pytest.mark.lake

T = [datetime(2026, 11, 21, 12, minute, tzinfo=UTC) for minute in range(20)]
A, B = Subscription("a", ("x.",), 1000), Subscription("It's b", ("*",), 500, (("client_id", "orders-.*"),))
INSTANCE = "jHecHqLPQj2rnaP7QRzrmg"


def sync(lake: Path, minute: int, *subscriptions: Subscription) -> None:
    record_subscriptions(str(lake), T[minute], ConfiguredSubscriptions("c1", subscriptions))


def id_of(subscription: Subscription) -> int:
    (crc,) = checksums((subscription,))
    return int(np.uint32(crc ^ instance_hashes(pa.array([INSTANCE])).view(np.uint32)[0]).view(np.int32))


def push(lake: Path, *client_ids: str | None, minute: int = 1, subscription_id: int | None = None) -> None:
    """Land a push per client id with a point of x.y, as ingest would leave it."""
    first = DeltaTable(PUSHES.uri(str(lake))).count() if (lake / "pushes").exists() else 0
    place = {"source": "kafka", "cluster_id": "c1", "topic": "t", "partition": 0, "landed_date": T[0].date()}
    of = {"client_instance_id": INSTANCE, "client_port": 9, "subscription_id": subscription_id}
    pushes: list[dict[str, Any]] = [
        place | of | {"offset": first + n, "client_id": name, "landed_at": T[minute] + timedelta(seconds=n)}
        for n, name in enumerate(client_ids)
    ]
    put(lake, PUSHES, pushes)
    ids = client_attributes_ids(pa.Table.from_pylist(pushes, PUSHES.stored)).tolist()
    outcome = {"points": 1, "outcome": "points"}
    judged = [row | outcome | {"client_attributes_id": id_} for row, id_ in zip(pushes, ids, strict=True)]
    put(lake, PUSH_OUTCOMES, judged)
    put(lake, METRIC_POINTS, [row | {"metric": "x.y"} for row in pushes])
    CLIENT_EVENTS.create(str(lake))


def versions(lake: Path) -> list[int]:
    return [DeltaTable(str(lake / cache.name)).version() for cache in CACHE_TABLES]


def rows(lake: Path, name: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table(lake, name).to_pylist()), key=str)


def ask(lake: Path, sql: str) -> list[tuple[Any, ...]]:
    found = run_query(str(lake), sql).read_all()
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def asked(lake: Path) -> list[tuple[Any, ...]]:
    return ask(lake, 'SELECT "offset", subscription FROM subscription_metrics ORDER BY ALL')


def test_what_is_kept_is_what_is_made_anew(tmp_path: Path) -> None:
    push(tmp_path, "orders-1", None)
    sync(tmp_path, 0, A)
    update_client_matches(str(tmp_path))
    push(tmp_path, "bills", subscription_id=id_of(A))
    update_client_matches(str(tmp_path))
    sync(tmp_path, 2, A, B)
    update_client_matches(str(tmp_path))
    push(tmp_path, "orders-1", "orders-9", minute=4, subscription_id=id_of(A))
    update_client_matches(str(tmp_path))
    updated = {cache.name: rows(tmp_path, cache.name) for cache in CACHE_TABLES}
    assert [len(found) for found in updated.values()] == [5, 5 + 3, 3 * 3]
    anew = tmp_path / "anew"
    for name in ("pushes", "subscriptions"):
        source = DeltaTable(str(tmp_path / name))
        write_deltalake(str(anew / name), source.to_pyarrow_table(), schema_mode=None)
    update_client_matches(str(anew))
    assert {cache.name: rows(anew, cache.name) for cache in CACHE_TABLES} == updated
    # The push of orders-1 at 4 was made under `a` alone, as its id says.
    states = ask(tmp_path, 'SELECT "offset", subscription_state FROM push_subscription_times ORDER BY ALL')
    assert states == [(0, None), (1, None), (2, "agrees"), (3, "older"), (4, "older")]
    assert [name for offset, name in asked(tmp_path) if offset >= 3] == ["a", "a"]


def test_nothing_new_is_no_commit_and_after_a_crash_between_two_tables_the_next_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert update_client_matches(str(tmp_path)) == 0
    assert not (tmp_path / "client_attributes").exists()
    sync(tmp_path, 0, A)
    push(tmp_path, "orders-1")
    update_client_matches(str(tmp_path))
    before = versions(tmp_path)
    assert update_client_matches(str(tmp_path)) == 0
    assert versions(tmp_path) == before
    push(tmp_path, "orders-2")
    cut_off(tmp_path, monkeypatch)
    assert len(rows(tmp_path, "client_attributes")) == 2
    update_client_matches(str(tmp_path))
    assert asked(tmp_path) == [(0, "a"), (1, "a")]


def test_files_rewritten_or_a_log_that_is_gone_add_no_client_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(tmp_path, 0, A)
    push(tmp_path, "orders-1")
    push(tmp_path, "orders-2")
    update_client_matches(str(tmp_path))
    pushes = DeltaTable(str(tmp_path / "pushes"))
    assert pushes.optimize.compact()["numFilesAdded"] == 1
    assert update_client_matches(str(tmp_path)) == 0
    push(tmp_path, "orders-3")
    forget(tmp_path, "pushes")
    assert update_client_matches(str(tmp_path)) == 1
    assert len(rows(tmp_path, "client_attributes")) == len(rows(tmp_path, "client_matches")) == 3
    push(tmp_path, "orders-4")
    cut_off(tmp_path, monkeypatch)
    forget(tmp_path, "client_attributes")
    assert update_client_matches(str(tmp_path)) == 0
    assert len(rows(tmp_path, "client_attributes")) == len(rows(tmp_path, "client_matches")) == 4


def forget(lake: Path, name: str) -> None:
    """Leave of a table's log what retention leaves: a checkpoint and the newest commit."""
    DeltaTable(str(lake / name)).create_checkpoint()
    for file in sorted((lake / name / "_delta_log").glob("*.json"))[:-1]:
        file.unlink()


def cut_off(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that adds the clients, and is killed before they are matched."""
    with monkeypatch.context() as broken:
        broken.setattr(client_matches, "_update", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            update_client_matches(str(lake))


def test_each_subscription_in_force_has_a_view(tmp_path: Path) -> None:
    sync(tmp_path, 0, A, B)
    push(tmp_path, "orders-1", "bills")
    update_client_matches(str(tmp_path))
    assert ask(tmp_path, 'SELECT "offset", metric FROM subscription_a ORDER BY ALL') == [(0, "x.y"), (1, "x.y")]
    assert ask(tmp_path, 'SELECT "offset", metric FROM subscription_it_s_b_b4babf0b ORDER BY ALL') == [(0, "x.y")]
    sync(tmp_path, 2, B)
    with pytest.raises(QueryError, match="subscription_a"):
        ask(tmp_path, "SELECT * FROM subscription_a")


def events(lake: Path) -> list[tuple[Any, ...]]:
    found = table(lake, "client_events").select(["event", "offset", "client_id", "at", "detail"])
    return sorted(tuple(row.values()) for row in found.to_pylist())


def test_a_client_behind_a_change_is_an_event(tmp_path: Path) -> None:
    sync(tmp_path, 0, A)
    sync(tmp_path, 2, B)
    push(tmp_path, "orders-1", minute=1, subscription_id=id_of(A))
    push(tmp_path, "orders-1", "orders-1", minute=3, subscription_id=id_of(A))
    update_client_matches(str(tmp_path))
    assert add_subscription_events(str(tmp_path)) == 1
    detail = [("pushed_as_of", "2026-11-21 12:01:59.999999")]
    assert events(tmp_path) == [("subscription_changed", 1, "orders-1", T[3], detail)]


def test_days_of_pushes_that_retention_dropped_before_their_events_were_added_are_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(tmp_path, 0, Subscription("a", ("x.",), 5000))
    push(tmp_path, "orders-1", "orders-1")
    with monkeypatch.context() as then:
        then.setattr(follower, "utc_now", lambda: T[1])
        assert add_subscription_events(str(tmp_path)) == 1
    push(tmp_path, "orders-1", "orders-1", minute=2)
    first, found = T[1].date(), list[dict[str, Any]]()
    for day, expected in ((first, 0), (first + timedelta(days=3), 1)):
        settings = MaintenanceSettings({"push_outcomes": 1}, 64 << 20, 168, 7)
        Maintenance(str(tmp_path), str(tmp_path / "_checkpoints"), settings, day).maintain("push_outcomes")
        lake = shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-{day}"))
        expire_logs(lake)
        for _ in range(2):
            add_subscription_events(str(lake))
        found = table(lake, "lost_records").to_pylist() if (lake / "lost_records").exists() else []
        assert len(found) == expected
    (row,) = found
    assert [row[name] for name in ("source", "topic", "reason", "first_date", "last_date")] == [
        "subscription_events", "push_outcomes", "dropped", first, first + timedelta(days=2),
    ]  # fmt: skip


@pytest.mark.slow
def test_many_small_files_become_one_and_no_row_is_lost_or_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_matches, "MOST_FILES", 3)
    sync(tmp_path, 0, A)
    for number in range(12):
        push(tmp_path, f"orders-{number}")
        assert update_client_matches(str(tmp_path)) == 1
    for name in ("client_attributes", "client_matches"):
        assert len(DeltaTable(str(tmp_path / name)).file_uris()) <= 4
        assert len(rows(tmp_path, name)) == len(set(rows(tmp_path, name))) == 12
