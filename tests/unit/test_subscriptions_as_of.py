"""Pushes under another subscription than that of their time, told by their SubscriptionId."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipelines.client_matches import CLIENT_ATTRIBUTES
from pipelines.subscriptions import ConfiguredSubscriptions, sync_subscriptions
from tests.lake_tables import table
from udfs.subscription_as_of import told_subscriptions
from udfs.subscription_id import checksums, instance_hashes
from udfs.subscriptions import CLIENTS, Subscription

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
        sync_subscriptions(str(lake), T[minute], ConfiguredSubscriptions("c1", tuple(subscriptions)))
    return table(lake, "subscriptions")


def told(client: int, *matching: Subscription) -> int:
    """The SubscriptionId that a broker gives a client for the subscriptions that match it."""
    (checksum,) = checksums(matching)
    (own,) = instance_hashes(KNOWN["client_instance_id"].slice(client, 1)).view(np.uint32).tolist()
    return int(np.uint32(checksum ^ own).view(np.int32))


def judged(versions: pa.Table, *pushes: tuple[int, int, int]) -> list[tuple[datetime | None, str]]:
    """Pushes of (client, minute, SubscriptionId)."""
    rows = [
        {"cluster_id": "c1", **ROWS[client], "subscription_id": told, "client_attributes_id": number}
        for number, (client, _, told) in enumerate(pushes)
    ]
    found = told_subscriptions(pa.Table.from_pylist(rows, CLIENT_ATTRIBUTES.schema), versions).to_pylist()
    return [_at(found, number, T[minute]) for number, (_, minute, _) in enumerate(pushes)]


def _at(found: list[dict[str, Any]], client: int, landed_at: datetime) -> tuple[datetime | None, str]:
    (row,) = [
        row
        for row in found
        if row["client_attributes_id"] == client
        and (row["landed_from"] is None or landed_at >= row["landed_from"])
        and (row["landed_to"] is None or landed_at < row["landed_to"])
    ]
    return row["subscription_at"], row["subscription_state"]


def before(minute: int) -> datetime:
    return datetime(2026, 11, 21, 12, minute - 1, 59, 999_999, tzinfo=UTC)


def test_ids_against_those_of_the_time(versions: pa.Table) -> None:
    assert judged(
        versions,
        (0, 3, told(0, ONE)),
        (1, 5, told(1, TWO)),
        (0, 5, told(0, TWO, ORDERS_ONLY)),
        (1, 5, told(1, ONE)),
        (0, 5, told(0, ONE)),
        (1, 3, told(1, TWO)),
        (1, 3, told(1)),
        (1, 5, told(1, TWO, ORDERS_ONLY)),
        (1, 5, told(0, TWO)),
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


def test_a_match_that_cannot_be_evaluated_tells_nothing_of_its_time(versions: pa.Table) -> None:
    assert judged(versions, (1, 9, told(1, TWO)), (2, 9, told(2, TWO)), (2, 9, told(2, TWO, ODD))) == [
        (None, "agrees"),  # without a software name the odd one doesn't match, whatever its pattern means
        (None, "unknown"),
        (None, "unknown"),
    ]


def test_no_clients_and_no_history(versions: pa.Table) -> None:
    assert judged(versions) == []
    assert judged(versions.slice(0, 0), (1, 3, told(1)), (1, 3, told(1, ONE))) == [(None, "agrees"), (None, "unknown")]
