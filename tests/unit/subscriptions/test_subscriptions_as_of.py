"""Pushes under another subscription than that of their time, identified by their SubscriptionId; also real ones."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from kafka_telemetry_lake.pipelines.subscriptions.configured import ConfiguredSubscriptions
from kafka_telemetry_lake.pipelines.tables.subscriptions import CLIENT_ATTRIBUTES
from kafka_telemetry_lake.udfs.subscriptions.as_of import announced_subscriptions
from kafka_telemetry_lake.udfs.subscriptions.matching import CLIENTS, Subscription
from kafka_telemetry_lake.udfs.subscriptions.subscription_id import (
    checksums,
    instance_hashes,
    requested_texts,
    subscription_checksums,
)
from tests.support.config_polls import record_subscriptions
from tests.support.lake_tables import table
from tests.support.landing_records import captured

T = [datetime(2026, 11, 21, 12, minute, tzinfo=UTC) for minute in range(20)]
ONE, TWO = Subscription("s", ("p.",), 1000), Subscription("s", ("p.", "q."), 1000)
ORDERS_ONLY = Subscription("o", ("*",), 500, (("client_id", "orders"),))
ODD = Subscription("odd", ("*",), 500, (("client_software_name", r"\bx"),))
ROWS = [
    {"client_instance_id": "jHecHqLPQj2rnaP7QRzrmg", "client_id": "orders"},
    {"client_instance_id": "AAAAAAAAAAEAAAAAAAAAAg", "client_id": "bills"},
    {"client_instance_id": "AAAAAAAAAAEAAAAAAAAAAw", "client_id": "bills", "client_software_name": "x"},
]
KNOWN = pa.Table.from_pylist(ROWS, CLIENTS)


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """Nothing until 2, then one; from 4 two and another for orders; from 8 an odd one too."""
    lake = tmp_path_factory.mktemp("lake")
    for minute, subscriptions in ((0, []), (2, [ONE]), (4, [TWO, ORDERS_ONLY]), (8, [TWO, ORDERS_ONLY, ODD])):
        record_subscriptions(str(lake), T[minute], ConfiguredSubscriptions("c1", tuple(subscriptions)))
    return table(lake, "subscriptions")


def id_of(client: int, *matching: Subscription) -> int:
    """The SubscriptionId that a broker gives a client for the subscriptions that match it."""
    (checksum,) = checksums(matching)
    (own,) = instance_hashes(KNOWN["client_instance_id"].slice(client, 1)).view(np.uint32).tolist()
    return int(np.uint32(checksum ^ own).view(np.int32))


def judged(versions: pa.Table, *pushes: tuple[int, int, int]) -> list[tuple[datetime | None, str]]:
    """Pushes of (client, minute, SubscriptionId)."""
    rows = [
        {"cluster_id": "c1", **ROWS[client], "subscription_id": subscription_id, "client_attributes_id": number}
        for number, (client, _, subscription_id) in enumerate(pushes)
    ]
    found = announced_subscriptions(pa.Table.from_pylist(rows, CLIENT_ATTRIBUTES.schema), versions).to_pylist()
    states = []
    for number, (_, minute, _) in enumerate(pushes):
        spans = [row for row in found if row["client_attributes_id"] == number]
        (row,) = (row for row in spans if (row["landed_from"] or T[0]) <= T[minute] < (row["landed_to"] or T[-1]))
        states.append((row["subscription_at"], row["subscription_state"]))
    return states


def before(minute: int) -> datetime:
    return datetime(2026, 11, 21, 12, minute - 1, 59, 999_999, tzinfo=UTC)


def test_m10_ids_against_those_of_the_time(versions: pa.Table) -> None:
    assert judged(
        versions,
        (0, 3, id_of(0, ONE)),
        (1, 5, id_of(1, TWO)),
        (0, 5, id_of(0, TWO, ORDERS_ONLY)),
        (1, 5, id_of(1, ONE)),
        (0, 5, id_of(0, ONE)),
        (1, 3, id_of(1, TWO)),
        (1, 3, id_of(1)),
        (1, 5, id_of(1, TWO, ORDERS_ONLY)),
        (1, 5, id_of(0, TWO)),
    ) == [
        (None, "agrees"),
        (None, "agrees"),
        (None, "agrees"),
        (before(4), "older"),
        (before(4), "older"),
        (T[4], "newer"),
        (before(2), "older"),
        (None, "unknown"),  # the orders' subscription doesn't match bills
        (None, "unknown"),  # another client's id
    ]


def test_m10_a_match_that_cannot_be_evaluated_tells_nothing_of_its_time(versions: pa.Table) -> None:
    assert judged(versions, (1, 9, id_of(1, TWO)), (2, 9, id_of(2, TWO)), (2, 9, id_of(2, TWO, ODD))) == [
        (None, "agrees"),  # without a software name the odd one doesn't match, whatever its pattern means
        (None, "unknown"),
        (None, "unknown"),
    ]


def test_m10_of_an_older_and_a_newer_time_that_agree_the_older_counts(tmp_path: Path) -> None:
    """One until 4, two until 6, then one again: it is more likely that the client hasn't heard of the change."""
    for minute, subscription in ((0, ONE), (4, TWO), (6, ONE), (8, TWO), (10, ONE)):
        record_subscriptions(str(tmp_path), T[minute], ConfiguredSubscriptions("c1", (subscription,)))
    versions = table(tmp_path, "subscriptions")
    states = judged(versions, (0, 5, id_of(0, ONE)), (0, 9, id_of(0, ONE)))
    assert states == [(before(4), "older"), (before(8), "older")]


def test_no_clients_and_no_history(versions: pa.Table) -> None:
    assert judged(versions) == []
    states = judged(versions.slice(0, 0), (1, 3, id_of(1)), (1, 3, id_of(1, ONE)))
    assert states == [(None, "agrees"), (None, "unknown")]


EVERYTHING = Subscription("everything", ("*",), 1000)


def clients_and_ids() -> tuple[pa.Array, npt.NDArray[np.int32]]:
    """Client instance ids and SubscriptionIds of the captured pushes."""
    pushes = captured()["headers"].to_pylist()
    headers = [{header["key"]: header["value"].decode() for header in push} for push in pushes]
    ids = np.array([int(push["subscription_id"]) for push in headers], np.int32)
    return pa.array([push["client_instance_id"] for push in headers]), ids


def test_m9_captured_ids_are_those_of_everything_each_second() -> None:
    clients, ids = clients_and_ids()
    assert len(ids) == 1415
    assert len(set(ids.tolist())) > 20  # one per client
    (checksum,) = checksums((EVERYTHING,))
    assert (subscription_checksums(ids, instance_hashes(clients)) == checksum).all()


def test_another_interval_or_set_has_other_ids() -> None:
    others: list[tuple[Subscription, ...]] = [(), (EVERYTHING, Subscription("faster", (), 500))]
    others += [(Subscription("s", ("*",), 1001),), (Subscription("s", ("org.apache.kafka.",), 1000),)]
    assert not checksums((EVERYTHING,)) & {each for other in others for each in checksums(other)}
    assert checksums((EVERYTHING, Subscription("slower", ("a",), 300_000))) == checksums((EVERYTHING,))


def test_texts_of_the_set() -> None:
    assert requested_texts((EVERYTHING,)) == {"[*]"}
    assert requested_texts(()) == {"[]"}
    # "Aa" and "BB" have one hash code: the first one in stays first, and brokers differ in who is first.
    assert requested_texts((Subscription("s", ("BB", "Aa")),)) == {"[BB, Aa]"}
    assert requested_texts((Subscription("s", ("BB",)), Subscription("t", ("Aa",)))) == {"[BB, Aa]", "[Aa, BB]"}


def test_captured_pushes_agree_with_their_subscription_and_are_older_after_a_change(tmp_path: Path) -> None:
    clients, ids = clients_and_ids()
    columns = {"client_instance_id": clients, "subscription_id": pa.array(ids)}
    pushed = pa.table(columns).group_by(["client_instance_id", "subscription_id"]).aggregate([]).to_pylist()
    rows = [{**row, "cluster_id": "c1", "client_attributes_id": number} for number, row in enumerate(pushed)]
    known = pa.Table.from_pylist(rows, CLIENT_ATTRIBUTES.schema)
    changed = Subscription("everything", ("*",), 2000)
    for minute, subscription in ((0, EVERYTHING), (1, changed)):
        record_subscriptions(str(tmp_path), T[minute], ConfiguredSubscriptions("c1", (subscription,)))
    spans = announced_subscriptions(known, table(tmp_path, "subscriptions")).to_pylist()
    states = {(row["landed_from"] and row["landed_from"].minute, row["subscription_state"]) for row in spans}
    # Before the first poll nothing is known to be in force; the id tells that there was.
    assert states == {(None, "newer"), (0, "agrees"), (1, "older")}
    assert len(spans) == 3 * len(rows) > 3 * 20
