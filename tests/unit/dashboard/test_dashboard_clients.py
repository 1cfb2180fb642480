"""What a page needs to know of all clients is counted; who they are is listed where a page needs each of them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kafka_telemetry_lake.dashboards.address import Selection
from kafka_telemetry_lake.dashboards.clients import NONE, SelectedClients, totals_of
from kafka_telemetry_lake.dashboards.lake import LakeReader
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from tests.support.asked_questions import note_questions

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def lake_of(folder: Path, *pushes: dict[str, Any]) -> LakeReader:
    rows = [{"landed_date": NOON.date(), "client_id": "a", "cluster_id": "c"} | push for push in pushes]
    write_deltalake(PUSHES.create(str(folder)), pa.Table.from_pylist(rows, PUSHES.stored), mode="append")
    return LakeReader(str(folder))


def clients_of(lake: LakeReader, selection: Selection | None = None) -> SelectedClients:
    return SelectedClients(lake, lake.versions(), selection or Selection(), NOON, NOON + HOUR)


def test_what_is_counted_is_what_the_list_adds_up_to(tmp_path: Path) -> None:
    chance = random.Random(7)
    pushes = [
        {
            "client_instance_id": f"i{number}", "client_id": f"client-{number % 7}" if number % 5 else None,
            "cluster_id": ("east", "west", None)[number % 3], "landed_at": NOON + chance.random() * HOUR,
            "push_interval_ms": (1000, 60_000, 60_000, 300_000, 0, None)[number % 6],
        }
        for number in range(40)
        for _ in range(chance.randrange(1, 20))
    ]  # fmt: skip
    pushes += [{"landed_at": NOON}, {"client_instance_id": "early", "landed_at": NOON - HOUR}]
    clients = clients_of(lake_of(tmp_path, *pushes))
    assert clients.instances.num_rows == 40
    assert clients.known == totals_of(clients.instances)
    assert clients.known.client_ids == 8
    assert clients.known.clusters == ("east", "west")
    assert 0 < clients.known.landed < clients.known.due


def test_due_is_what_the_interval_lets_expect_and_nobody_lands_more() -> None:
    rows = pa.Table.from_pylist(
        [
            {"cluster_id": "c", "client_id": client, "pushes": pushes, "push_interval_ms": interval,
             "first_push": NOON, "last_push": NOON + minutes * timedelta(minutes=1)}
            for client, pushes, interval, minutes in
            (("on time", 11, 60_000, 10), ("half", 6, 60_000, 10), ("twice", 21, 60_000, 10), ("unknown", 5, 0, 10))
        ]
    )  # fmt: skip
    totals = totals_of(rows)
    assert (totals.instances, totals.pushes, totals.due, totals.landed) == (4, 43, 30, 25)
    assert totals.push_interval_ms == 60_000


def test_of_nobody_there_is_nothing(tmp_path: Path) -> None:
    clients = clients_of(lake_of(tmp_path, {"client_instance_id": "early", "landed_at": NOON - HOUR}))
    assert clients.known == clients.shown == totals_of(clients.instances) == NONE


def test_filters_count_those_that_pass_and_only_they_need_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = {"landed_at": NOON, "push_interval_ms": 1000}
    lake = lake_of(tmp_path, {"client_instance_id": "1", **at}, {"client_instance_id": "2", "client_id": "b", **at})
    asked = note_questions(monkeypatch)
    assert clients_of(lake).shown.instances == 2
    assert asked == ["totals"]
    filtered = clients_of(lake, Selection(filters=(("client", ("b",)),)))
    assert (filtered.shown.instances, filtered.known.instances) == (1, 2)
    assert filtered.chosen["client_instance_id"].to_pylist() == ["2"]
    assert asked == ["totals", "instances"]
