"""Pushes under another subscription than that of their time, told by their SubscriptionId."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from pipelines.subscriptions import ConfiguredSubscriptions, sync_subscriptions
from tests.lake_tables import table
from udfs.subscription_as_of import pushed_as_of
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
    columns: list[npt.NDArray[np.int64]] = [np.array(column, np.int64) for column in zip(*pushes, strict=True)]
    landed_at = np.array([int(T[minute].timestamp() * 1e6) for minute in columns[1]], np.int64)
    rows = pushed_as_of(columns[0], landed_at, columns[2].astype(np.int32), KNOWN, versions).to_pylist()
    return [(row["subscription_at"], row["subscription_state"]) for row in rows]


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
        (T[3], "agrees"),
        (T[5], "agrees"),
        (T[5], "agrees"),
        (before(4), "older"),
        (before(4), "older"),
        (T[4], "newer"),
        (before(2), "older"),
        (None, "unknown"),  # the orders' subscription doesn't match bills
        (None, "unknown"),  # another client's id
    ]


def test_a_match_that_cannot_be_evaluated_tells_nothing_of_its_time(versions: pa.Table) -> None:
    assert judged(versions, (1, 9, told(1, TWO)), (2, 9, told(2, TWO)), (2, 9, told(2, TWO, ODD))) == [
        (T[9], "agrees"),  # without a software name the odd one doesn't match, whatever its pattern means
        (None, "unknown"),
        (None, "unknown"),
    ]


def test_no_pushes(versions: pa.Table) -> None:
    empty = np.array([], np.int64)
    assert pushed_as_of(empty, empty, empty.astype(np.int32), KNOWN, versions).num_rows == 0
