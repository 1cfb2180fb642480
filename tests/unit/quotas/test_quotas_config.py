"""Configured quotas as the cluster's Admin tells them, and their history in table `quotas`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from kafka_telemetry_lake.pipelines.lake.config_history import check
from kafka_telemetry_lake.pipelines.quotas.configured import (
    ConfiguredQuotas,
    _unknown_types,
    configured_quotas,
)
from kafka_telemetry_lake.pipelines.tables.quotas import QUOTAS
from kafka_telemetry_lake.udfs.quotas.limits import effective_quota
from tests.support.config_polls import record_quotas
from tests.support.lake_tables import table

T = [datetime(2026, 11, 21, 12, minute, tzinfo=UTC) for minute in range(3)]


def test_entities_and_their_limits_become_rows() -> None:
    rows = configured_quotas(
        [
            ({"user": "ann", "client-id": "app"}, {"producer_byte_rate": 10.0, "consumer_byte_rate": 20.0}),
            ({"user": None, "client-id": None}, {"request_percentage": 50.0}),
            ({"user": "ann"}, {"controller_mutation_rate": 5.0}),
            ({"client-id": None}, {"some_future_rate": 1.0}),
            ({"ip": "10.0.0.1"}, {"connection_creation_rate": 3.0}),
            ({"ip": None}, {"connection_creation_rate": 4.0}),
            ({"galaxy": "milky way", "user": "ann"}, {"producer_byte_rate": 1.0}),
        ]
    )
    assert [tuple(row[name] for name in (*QUOTAS.keys, *QUOTAS.values)) for row in rows] == [
        ("ann", "app", "", "produce", 10.0),
        ("ann", "app", "", "fetch", 20.0),
        ("<default>", "<default>", "", "request", 50.0),
        ("ann", "", "", "controller_mutation", 5.0),
        ("", "<default>", "", "some_future_rate", 1.0),
        ("", "", "10.0.0.1", "connection", 3.0),
        ("", "", "<default>", "connection", 4.0),
    ]


def test_entities_of_unknown_types_are_named_once() -> None:
    known: tuple[dict[str, str | None], dict[str, float]] = ({"user": "ann"}, {"producer_byte_rate": 1.0})
    assert list(_unknown_types([known])) == []
    unknown: list[dict[str, str | None]] = [{"galaxy": "x", "user": "ann"}, {"galaxy": "y"}, {"moon": None}]
    assert list(_unknown_types([known, *((entity, {}) for entity in unknown)])) == [
        "quotas: 3 of entities with types that aren't known here are left out: galaxy, moon"
    ]


def test_the_history_tells_which_quota_was_in_force_when(tmp_path: Path) -> None:
    def poll(n: int, *entities: tuple[dict[str, str | None], dict[str, float]]) -> None:
        found = ConfiguredQuotas("c", tuple(configured_quotas(entities)))
        assert bool(check(QUOTAS, str(tmp_path), found.cluster_id, found.quotas, T[n])) == bool(
            record_quotas(str(tmp_path), T[n], found)
        )

    default: tuple[dict[str, str | None], dict[str, float]] = ({"client-id": None}, {"producer_byte_rate": 100.0})
    poll(0, default)
    poll(1, default, ({"client-id": "mirror"}, {"producer_byte_rate": 1e18}))
    poll(2, ({"client-id": "mirror"}, {"producer_byte_rate": 1e18}))

    def limits(at: datetime) -> dict[tuple[str, str], float]:
        rows = table(tmp_path, "quotas").to_pylist()
        return {
            (row["user"], row["client_id"]): row["quota_limit"]
            for row in rows
            if row["valid_from"] <= at and (row["valid_to"] is None or at < row["valid_to"])
        }

    assert [effective_quota(limits(at), "ann", "mirror").limit for at in T] == [100.0, 1e18, 1e18]
    assert [effective_quota(limits(at), "ann", "app").limit for at in T] == [100.0, 100.0, None]
    assert {row["cluster_id"] for row in table(tmp_path, "quotas").to_pylist()} == {"c"}
