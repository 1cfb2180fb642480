"""All captured pushes of real clients carry the id of one subscription: everything, every second."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_telemetry_lake.pipelines.subscriptions.configured import ConfiguredSubscriptions
from kafka_telemetry_lake.pipelines.tables.subscriptions import CLIENT_ATTRIBUTES
from kafka_telemetry_lake.udfs.subscriptions.as_of import announced_subscriptions
from kafka_telemetry_lake.udfs.subscriptions.matching import Subscription
from kafka_telemetry_lake.udfs.subscriptions.subscription_id import (
    checksums,
    instance_hashes,
    requested_texts,
    subscription_checksums,
)
from tests.support.config_polls import record_subscriptions
from tests.support.lake_tables import table
from tests.support.landing_records import captured

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
    others = [
        (Subscription("s", ("*",), 1001),),
        (Subscription("s", ("org.apache.kafka.",), 1000),),
        (),
        (EVERYTHING, Subscription("faster", (), 500)),
    ]
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
        at = datetime(2026, 11, 21, 12, minute, tzinfo=UTC)
        record_subscriptions(str(tmp_path), at, ConfiguredSubscriptions("c1", (subscription,)))
    spans = announced_subscriptions(known, table(tmp_path, "subscriptions")).to_pylist()
    states = {(row["landed_from"] and row["landed_from"].minute, row["subscription_state"]) for row in spans}
    # Before the first poll nothing is known to be in force; the id tells that there was.
    assert states == {(None, "newer"), (0, "agrees"), (1, "older")}
    assert len(spans) == 3 * len(rows) > 3 * 20
