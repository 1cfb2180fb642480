"""The same pushes by a receiver that tells address, port, listener and broker, and by one in a proxy, which has none.

Every view gives the same rows, but for what needs one of the four: there it says that it is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from kafka_telemetry_lake.pipelines.query.views import views
from kafka_telemetry_lake.pipelines.subscriptions.client_matches import update_client_matches
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.groups import GROUP_MEMBERS
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS
from tests.support.captured_lake import push_row, write_lake
from tests.support.erasable_lake import append
from tests.support.lake_tables import table
from tests.support.landing_records import captured

pytestmark = pytest.mark.lake

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
PLACES = ("client_address", "client_port", "listener", "broker_id")
Row = dict[str, Any]
Answers = dict[str, pa.Table]

NULL, FEWER, MORE, OTHER = "NULL", "as many or fewer", "as much or more", "another id or hash"
EXAMPLE = "another instance, or NULL"
ALONE = "a cause of the client alone, or unknown"
FITS: dict[str, Callable[[Any, Any], bool]] = {
    NULL: lambda _, without: without is None,
    FEWER: lambda known, without: 0 <= without <= known,
    MORE: lambda known, without: known <= without <= 1,
    OTHER: lambda known, without: isinstance(known, int) and isinstance(without, int),
    EXAMPLE: lambda known, without: isinstance(known, str) and isinstance(without, str | None),
    ALONE: lambda known, without: (
        known in ("process_gone", "nothing_to_restore")
        and without in ("closed_without_flag", "killed_or_cut_off", "unknown")
    ),
}
_MISSED = {"missed_pushes": FEWER, "coverage": MORE}
_PLACE = dict.fromkeys(("client_address", "client_port", "broker_id", "brokers", "duplicated"), NULL)
_HASHES = dict.fromkeys(("origin", "connection", "connection_before", "signals_port"), OTHER)
# By view and column: what it says where the place that it needs is unknown.
LACKS: dict[str, dict[str, str]] = {
    "clients": _PLACE | _MISSED,
    "client_ownership": _PLACE | _MISSED | _HASHES | {"missed_ms": FEWER},
    "client_liveness": _MISSED | {"client_address": NULL, "duplicated": NULL, "likely_cause": ALONE},
    "client_conformance": {"broken": FEWER, "instances": FEWER, "example": EXAMPLE},
    "connect_workers": dict.fromkeys(("client_address", "connectors", "tasks", "groups_of_address"), NULL),
    "consumer_group_members": {"client_instance_id": NULL},
    "coverage": _MISSED,
    "instance_hours": {"duplicates": FEWER},
    "point_subscriptions": {"subscriptions": NULL},
    "push_discipline": {"missed": FEWER},
    "push_subscription_times": {"client_attributes_id": OTHER},
    "push_subscriptions": {"matches": NULL},
    "streams_processes": {"client_address": NULL},
    "telemetry_coverage": {"listener": NULL},
    "unowned_clients": {"addresses": NULL},
}


def _is_of_a_twin(known: Row | None, _: Row | None) -> bool:
    return known is not None and known["finding"] == "duplicate_instance"


def _is_of_one_host(known: Row | None, _: Row | None) -> bool:
    return known is not None and known["subscription"] == "one-host"


# By view: whether a row that only one of both has may be missing.
MISSING: dict[str, Callable[[Row | None, Row | None], bool]] = {
    **dict.fromkeys(("finding_groups", "finding_savings", "findings", "instance_findings"), _is_of_a_twin),
    **dict.fromkeys(("subscription_cost", "subscription_coverage", "subscription_metrics"), _is_of_one_host),
    "push_subscriptions": lambda known, without: (
        known is None and without is not None and without["subscription"] == "one-host" and without["matches"] is None
    ),
}


def pushes() -> list[Row]:
    """Pushes of a few captured clients from two hosts to two brokers: one of each was lost, some ids have a twin."""
    by_instance: dict[str, list[Row]] = {}
    for record in captured().to_pylist():
        row = push_row(record)
        by_instance.setdefault(row["client_instance_id"], []).append(row)
    rows = []
    for number, (_, own) in enumerate(sorted(by_instance.items())):
        if number % 9 or len(own) < 5:
            continue
        for place, row in enumerate(own[:8]):
            twin = number % 2 and place % 2
            known = {"client_address": f"10.0.{number % 4}.{9 if twin else 1}", "client_port": 6000 if twin else 5000}
            if place != 3:
                rows.append(row | known | {"cluster_id": "c", "listener": "EXTERNAL", "broker_id": 1 + number % 4})
    return rows


def client(name: str, state: str = "active", **more: Any) -> Row:
    usual: Row = {
        "cluster_id": "c", "client_instance_id": name, "client_id": name, "state": state, "step": 1,
        "client_software_name": "apache-kafka-java", "client_software_version": "4.3.1", "push_interval_ms": 1000,
        "first_seen": NOON, "last_seen": NOON, "landed_at": NOON, "labels": [], "pushes": 1,
        "silent_at": NOON + timedelta(minutes=1) if state == "silent" else None,
        "client_address": "10.0.2.1", "client_port": 5000, "broker_id": 1, "brokers": [1], "duplicated": False,
    }  # fmt: skip
    return usual | more


def made_clients() -> list[Row]:
    """Clients that the captured ones lack: a Connect worker and a task, silent ones, members that look alike."""
    c = {"client_software_name": "librdkafka", "client_software_version": "2.12.1"}
    alike: Row = {"client_id": "alike", "labels": [("group_id", "g")], **c}
    return [
        *(client(f"etl-{topic}", labels=[("group_id", "etl")]) for topic in ("configs", "offsets", "statuses")),
        client("connector-producer-a-0"),
        client("named-StreamThread-1-restore-consumer", "silent"),
        client("gone-1", "silent", client_address="10.0.3.1"),
        client("gone-2", "silent", client_address="10.0.3.1", **c),
        client("alike-1", client_address="10.0.4.1", **alike), client("alike-2", client_address="10.0.4.2", **alike),
    ]  # fmt: skip


def made_lake(folder: Path, *, known: bool) -> Path:
    def of(row: Row) -> Row:
        if known:
            return row
        without = dict.fromkeys({*PLACES, "brokers", "duplicated"} & row.keys())
        return row | without

    lake = write_lake(folder, pa.Table.from_pylist([of(row) for row in pushes()], PUSHES.schema))
    version = {"cluster_id": "c", "valid_from": NOON - timedelta(days=1), "interval_ms": 1000}
    append(
        SUBSCRIPTIONS, lake,
        version | {"name": "all", "metrics": ["*"], "match": {}},
        version | {"name": "one-host", "metrics": ["*"], "match": {"client_source_address": r"10\.0\.0\.1"}},
    )  # fmt: skip
    update_client_matches(str(lake))
    Lifecycle(str(lake)).catch_up()
    append(CLIENT_CHANGES, lake, *map(of, made_clients()))
    member = {"cluster_id": "c", "group_id": "g", "client_id": "alike", "valid_from": NOON, "assignment": []}
    append(GROUP_MEMBERS, lake, *(member | {"member_id": f"m-{n}", "host": f"10.0.4.{n}"} for n in (1, 2)))
    return lake


def answers(lake: Path) -> Answers:
    """The rows of every view."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, schema in CATALOG.items():
            connection.register(name, table(lake, name) if (lake / name).exists() else schema.empty_table())
        for view in views().values():
            connection.execute(f'CREATE TEMP VIEW "{view.name}" AS {view.duckdb}')
        return {name: connection.sql(f'SELECT * FROM "{name}"').to_arrow_table() for name in views()}


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Answers, Answers]:
    folder = tmp_path_factory.mktemp("places")
    return answers(made_lake(folder / "known", known=True)), answers(made_lake(folder / "without", known=False))


def differences(known: pa.Table, without: pa.Table, columns: Iterable[str]) -> list[tuple[Row | None, Row | None]]:
    """Rows that are in one of both only, in pairs that agree in all but these columns."""
    with duckdb.connect() as connection:
        connection.register("known", known)
        connection.register("without", without)
        left, right = (
            connection.sql(f"FROM {one} EXCEPT ALL FROM {other}").to_arrow_table().to_pylist()
            for one, other in (("known", "without"), ("without", "known"))
        )

    def rest(row: Row) -> str:
        return str({name: value for name, value in row.items() if name not in columns})

    unpaired: dict[str, list[Row]] = {}
    for row in right:
        unpaired.setdefault(rest(row), []).append(row)
    pairs: list[tuple[Row | None, Row | None]] = []
    for row in left:
        partners = unpaired.get(rest(row))
        pairs.append((row, partners.pop(0) if partners else None))
    return [*pairs, *((None, row) for rows in unpaired.values() for row in rows)]


@pytest.mark.slow
def test_views_say_unknown_where_they_need_what_a_proxy_does_not_know(lakes: tuple[Answers, Answers]) -> None:
    seen: dict[str, set[str]] = {}
    for view in views():
        lacks = LACKS.get(view, {})
        for known, without in differences(lakes[0][view], lakes[1][view], lacks):
            if known is None or without is None:
                missing = MISSING.get(view)
                assert missing is not None, (view, known, without)
                assert missing(known, without), (view, known, without)
                seen.setdefault(view, set()).add("")
                continue
            for column, said in lacks.items():
                if known[column] != without[column]:
                    assert FITS[said](known[column], without[column]), (view, column, known, without)
                    seen.setdefault(view, set()).add(column)
    assert seen == {
        view: {*LACKS.get(view, {}), *[""] * (view in MISSING)} for view in sorted(LACKS.keys() | MISSING.keys())
    }


def test_docs_name_each_view_that_lacks_something() -> None:
    page = (Path(__file__).parents[3] / "docs" / "landing.md").read_text("utf-8")
    table_of_views = page.partition("compared view by view")[2].partition("\n\n**")[0]
    assert set(re.findall("^[|] `([a-z_]+)` [|]", table_of_views, re.MULTILINE)) == {*LACKS, *MISSING}
