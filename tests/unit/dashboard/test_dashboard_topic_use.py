"""The rows of the topic map, what is drawn of them, and what is said of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from kafka_telemetry_lake.dashboards import scene
from kafka_telemetry_lake.dashboards.address import Selection
from kafka_telemetry_lake.dashboards.questions import MOST_INSTANCES, filled, question
from kafka_telemetry_lake.dashboards.screens.topic import MAP_NOTE, by_topic
from kafka_telemetry_lake.dashboards.topic_map import MOST_BOXES, Node
from kafka_telemetry_lake.dashboards.topic_use import (
    MOST_CHARACTERS,
    MOST_LISTED,
    MOST_TOPICS,
    picture,
    use_of,
    words,
    worst,
)
from tests.support.captured_lake import HOSTILE
from tests.support.sql_views import answer

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
K = "org.apache.kafka."
SENT, SENT_BYTES = f"{K}producer.topic.record.send.total", f"{K}producer.topic.byte.total"
READ, READ_BYTES = (f"{K}consumer.fetch.manager.{what}.consumed.total" for what in ("records", "bytes"))
SHARED = f"{K}consumer.share.fetch.manager.bytes.consumed.total"
COLUMNS = ["topic", "role", "application", "client_id", "group_id", "records", "bytes"]
Row = dict[str, Any]
NOTHING = pd.DataFrame(columns=["severity", "scope", "subject", "state"])


def point(client: str, metric: str, delta: float, topic: str | None, minute: int = 1, **more: Any) -> Row:
    at = NOON + timedelta(minutes=minute)
    attributes = [] if topic is None else [("topic", topic)]
    of = {"cluster_id": "c", "client_instance_id": client, "client_id": f"{client}-id", "attributes": attributes}
    return of | {"metric": metric, "delta": delta, "delta_status": "delta", "time": at, "landed_at": at} | more


def client(name: str, group: str | None = None) -> Row:
    labels = [] if group is None else [("group_id", group)]
    known = {"cluster_id": "c", "client_instance_id": name, "client_id": f"{name}-id", "state": "active", "step": 1}
    return known | {"labels": labels}


def asked(tables: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The rows of question `topic_use` about everybody, from noon to one o'clock."""
    values: dict[str, Any] = {"start": NOON, "stop": NOON + timedelta(hours=1), "filters": 0}
    sql = filled(question("topic_use", everybody=True).pretty, values)
    return [tuple(row[name] for name in COLUMNS) for row in answer("topic_clients", tables, sql)]


def test_dashboard_topic_use_has_the_bytes_of_the_range_by_application_and_group() -> None:
    tables = {
        "metric_points": [
            point("w", SENT, 10, "orders"),
            point("w", SENT, 5, "orders", minute=59),
            point("w", SENT, 99, "orders", minute=60),
            point("w", SENT, 99, "orders", minute=-1),
            point("w", SENT_BYTES, 300, "orders"),
            point("w", SENT, 15, None),
            point("w", SENT_BYTES, 77, "orders", delta_status="duplicate"),
            point("w2", SENT_BYTES, 40, "orders"),
            point("r", READ, 8, "orders"),
            point("r", READ_BYTES, 200, "orders"),
            point("r", READ, 8, None),
            point("s", SHARED, 7, "orders"),
            point("lone", READ, 0, "orders"),
        ],
        "client_changes": [client("w"), client("w2"), client("r", "billing"), client("s", "sharers")],
        "client_aliases": [{"client_id": name, "application": "shop", "owner": "team"} for name in ("w-id", "w2-id")],
    }
    assert asked(tables) == [
        ("orders", "written", "shop", "w-id", None, 15, 300),
        ("orders", "read", None, "r-id", "billing", 8, 200),
        ("orders", "read", None, "s-id", "sharers", None, 7),
        ("orders", "read", None, "lone-id", None, 0, None),
        ("orders", "written", "shop", "w2-id", None, None, 40),
    ]


def test_dashboard_topic_use_groups_that_push_nothing_have_rows_without_bytes() -> None:
    member = {"cluster_id": "c", "group_id": "mute", "client_id": "m-id", "valid_to": None, "valid_from": NOON}
    tables = {
        "group_offsets": [
            {"cluster_id": "c", "group_id": group, "topic": topic, "partition": partition}
            for group, topic, partition in (("mute", "t", 0), ("mute", "t", 1), ("billing", "t", 0), ("gone", "t", 0))
        ],
        "group_members": [
            member | {"member_id": "1", "assignment": ["my-orders-0", "my-orders-1", "t-0"]},
            member | {"member_id": "2", "assignment": []},
            member | {"member_id": "3", "valid_to": NOON, "assignment": ["old-0"]},
        ],
        "application_rules": [{"position": 0, "group_id": "mute", "application": "audit"}],
        "metric_points": [point("r", READ_BYTES, 9, "t")],
        "client_changes": [client("r", "billing")],
    }
    assert asked(tables) == [
        ("t", "read", None, "r-id", "billing", None, 9),
        ("my-orders", "read", "audit", None, "mute", None, None),
        ("t", "read", None, None, "gone", None, None),
        ("t", "read", "audit", None, "mute", None, None),
    ]


def test_dashboard_topic_use_a_dot_that_consumers_write_as_underscore_counts_once() -> None:
    read = (("new", 5, "a.b"), ("new", 5, "a_b"), ("old", 3, "a_b"), ("old", 2, "x_y"))
    points = [point(client, READ_BYTES, amount, topic) for client, amount, topic in read]
    points += [point("w", SENT_BYTES, 8, "a.b"), point("w", SENT_BYTES, 1, "x_y")]
    found = {(row[3], row[6], row[0]) for row in asked({"metric_points": points})}
    of_old_and_new = {("new-id", 5, "a.b"), ("old-id", 3, "a.b"), ("old-id", 2, "x_y")}
    assert found == of_old_and_new | {("w-id", 8, "a.b"), ("w-id", 1, "x_y")}


def rows(*each: tuple[Any, ...]) -> pd.DataFrame:
    return pd.DataFrame(each, columns=COLUMNS).astype({"records": float, "bytes": float})


SOME = rows(
    ("orders", "written", "shop", "shop-1", None, 10, 600),
    ("orders", "written", "shop", "shop-2", None, 5, 200),
    ("orders", "written", None, "script", None, 1, 50),
    ("orders", "read", "bank", "bank-1", "billing", 15, 800),
    ("orders", "read", None, None, "mute", None, None),
    ("bills", "written", "bank", "bank-2", None, 2, 100),
    ("logs", "read", "shop", "shop-3", None, 4, 90),
)


def test_dashboard_topic_use_writers_are_applications_and_readers_groups() -> None:
    use = use_of(SOME)
    shop, orders = Node("application", "shop"), Node("topic", "orders")
    assert use.unit == "bytes"
    assert use.written == {
        (shop, orders): 800,
        (Node("client_id", "script"), orders): 50,
        (Node("application", "bank"), Node("topic", "bills")): 100,
    }
    assert use.read == {
        (orders, Node("group_id", "billing")): 800,
        (orders, Node("group_id", "mute")): None,
        (Node("topic", "logs"), shop): 90,
    }
    assert use.client_ids[shop] == ("shop-1", "shop-2", "shop-3")
    assert use.applications[Node("group_id", "billing")] == ("bank",)


def findings(*each: tuple[str, str, str, str], **more: Any) -> pd.DataFrame:
    return pd.DataFrame(each, columns=["severity", "scope", "subject", "state"]).assign(**more)


def test_dashboard_topic_use_a_box_has_the_worst_open_finding_about_it_and_its_client_ids() -> None:
    found = worst(
        findings(
            ("warning", "client_id", "shop-2", "open"),
            ("info", "instance", "shop-1", "open"),
            ("error", "client_id", "script", "muted"),
            ("info", "topic", "orders", "open"),
            ("warning", "topic", "orders", "acknowledged"),
            ("error", "group", "mute", "open"),
            ("error", "group", "orders", "open"),
            ("warning", "client_id", "bank-1", "open"),
        )
    )
    drawn = picture(use_of(SOME), found, Selection())
    signs = [{box["name"]: box["severity"] for box in column} for column in drawn["columns"]]
    assert signs == [
        {"shop": "warning", "script": None, "bank": None},
        {"orders": "warning", "bills": None, "logs": None},
        {"billing": "warning", "mute": "error", "shop": "warning"},
    ]
    # A ribbon has the colour of its outer end: a topic's trouble isn't that of all who use it.
    assert {each["title"]: each["severity"] for each in drawn["ribbons"]} == {
        "shop → orders: 800 bytes": "warning",
        "script → orders: 50 bytes": None,
        "bank → bills: 100 bytes": None,
        "orders → billing: 800 bytes": "warning",
        "orders → mute: unknown": "error",
        "logs → shop: 90 bytes": "warning",
    }
    owned = worst(findings(("error", "client_id", "elsewhere", "open"), application="lab, bank"))
    assert owned[Node("application", "bank")] == owned[Node("application", "lab")] == "error"


def test_dashboard_topic_use_every_box_leads_to_its_page_and_those_without_readers_say_so() -> None:
    (writers, topics, readers), selection = picture(use_of(SOME), {}, Selection("7d"))["columns"], "range=7d"
    assert {box["name"]: box["address"] for box in (*writers, *topics)} == {
        "shop": f"application?{selection}&application=shop",
        "script": f"client-id?{selection}&client=script",
        "bank": f"application?{selection}&application=bank",
        "orders": f"topic?{selection}&topic=orders",
        "bills": f"topic?{selection}&topic=bills",
        "logs": f"topic?{selection}&topic=logs",
    }
    assert [(box["name"], box["more"], box["address"], box["amount"]) for box in readers] == [
        ("billing", "bank", f"group?{selection}&group=billing", "800 bytes"),
        ("mute", "", f"group?{selection}&group=mute", "unknown"),
        ("shop", "without a group", f"application?{selection}&application=shop", "90 bytes"),
    ]
    lacks = {box["name"]: (box["unwritten"], box["unread"]) for box in topics}
    assert lacks == {"orders": (False, False), "bills": (False, True), "logs": (True, False)}
    assert not any(box["unwritten"] or box["unread"] for box in (*writers, *readers))


def test_dashboard_topic_use_words_have_totals_and_what_is_unknown() -> None:
    found = {Node("client_id", "script"): "error", Node("client_id", "bank-1"): "warning"}
    said = words(use_of(SOME), found, Selection())
    assert said == (
        "3 writers wrote 950 bytes (compressed) to 2 topics; 3 readers read 890 bytes (decompressed) of 2 topics. "
        "Most written: shop to orders, 800 bytes. Most read: orders by billing, 800 bytes. "
        "With an open error: script. With an open warning: billing. "
        "Nobody is known to read bills. Nobody is known to write logs. Both write and read: bank, shop. "
        "Of 1 of 6 flows the bytes are unknown: their ribbons are thin, dashed."
    )
    assert "compressed" in MAP_NOTE
    assert picture(use_of(SOME), found, Selection())["lacks"] == ["no writer known", "no reader known"]
    of_shop = Selection(filters=(("application", ("shop",)),))
    assert "None of the selected clients is known to read bills." in words(use_of(SOME), found, of_shop)
    assert picture(use_of(SOME), found, of_shop)["lacks"] == ["no writer selected", "no reader selected"]


@pytest.mark.parametrize(
    ("records", "unit", "said"),
    [
        (7, "records", "No client tells bytes: ribbons are as wide as records."),
        (None, "", "all ribbons are equally thin"),
    ],
)
def test_dashboard_topic_use_without_bytes_shows_records_or_equal_ribbons(
    records: float | None, unit: str, said: str
) -> None:
    use = use_of(rows(("t", "written", None, "w", None, records, None), ("t", "read", None, None, "g", None, None)))
    assert use.unit == unit
    assert said in words(use, {}, Selection())
    (known, unknown) = picture(use, {}, Selection())["ribbons"]
    assert (known["known"], unknown["known"]) == (records is not None, False)


def test_dashboard_topic_use_a_side_that_nobody_is_known_of_is_left_out() -> None:
    synced = words(use_of(rows(("t", "read", None, None, "g", None, None))), {}, Selection())
    assert synced == (
        "Known: 1 reader of 1 topic. Nobody is known to write t. "
        "Neither bytes nor records are known: all ribbons are equally thin."
    )
    writers = rows(("t", "written", None, "w", None, 7, None), ("u", "written", None, "w", None, None, None))
    assert words(use_of(writers), {}, Selection()).startswith("1 writer wrote 7 records to 2 topics. Most written")
    mute = rows(("t", "written", None, "w", None, None, 9), ("t", "read", None, None, "g", None, None))
    said = "1 writer wrote 9 bytes (compressed) to 1 topic; 1 reader read an unknown number of bytes of 1 topic."
    assert words(use_of(mute), {}, Selection()).startswith(said)


def test_dashboard_topic_use_a_group_of_several_applications_belongs_to_each() -> None:
    of_both = rows(("t", "written", "shop", "w", None, 1, 1), ("t", "read", "bill, shop", None, "g", None, None))
    use = use_of(of_both)
    assert use.applications[Node("group_id", "g")] == ("bill", "shop")
    assert "Both write and read: shop." in words(use, {}, Selection())
    assert picture(use, {}, Selection())["columns"][2][0]["more"] == "bill, shop"
    assert use_of(rows(("t", "written", None, "a, b", None, 1, 1))).client_ids == {Node("client_id", "a, b"): ("a, b",)}


def test_dashboard_topic_use_of_too_many_rows_each_topic_and_group_keeps_its_largest_and_the_words_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert question("topic_use").most == MOST_INSTANCES
    points = [point(f"w{n}", SENT_BYTES, 100 + n, "orders") for n in range(9)]
    points += [point("r", READ_BYTES, 2, "orders"), point("s", SENT_BYTES, 1, "bills")]
    offsets = [{"cluster_id": "c", "group_id": "mute", "topic": "logs", "partition": 0}]
    found = asked({"metric_points": points, "group_offsets": offsets, "client_changes": [client("r", "billing")]})
    assert [(row[0], row[1], row[4], row[6]) for row in found[:5]] == [
        ("orders", "written", None, 108),
        ("orders", "read", "billing", 2),
        ("bills", "written", None, 1),
        ("logs", "read", "mute", None),
        ("orders", "written", None, 107),
    ]
    monkeypatch.setattr(scene, "st", SimpleNamespace(caption=lambda _: None))
    whole = rows(*found)
    said = "The smallest are left out beyond 5 rows: numbers of writers, readers and amounts are too low."
    assert said in words(use_of(scene.first(whole, 5)), {}, Selection())
    assert "left out" not in words(use_of(scene.first(whole, len(whole))), {}, Selection())


def test_dashboard_topic_use_hostile_and_many_names_are_bounded() -> None:
    many: list[tuple[Any, ...]] = [("fan", "read", None, "", f"group {n}", 1, n) for n in range(2000)]
    many += [(f"{HOSTILE}{n}", "written", None, f"{'x' * 3000}{n}", None, 1, n) for n in range(2000)]
    many.append(("fan", "read", None, "", None, 1, 1))
    drawn = picture(use_of(rows(*many)), {Node("topic", f"{HOSTILE}0"): "error"}, Selection())
    assert [len(column) for column in drawn["columns"]] == [MOST_BOXES] * 3
    assert drawn["columns"][0][-1]["name"] == "all others (1,971)"
    assert (drawn["columns"][1][-1]["severity"], drawn["columns"][1][-1]["address"]) == ("error", None)
    assert len(drawn["list"]) == MOST_TOPICS
    assert drawn["rest"] == MOST_BOXES - MOST_TOPICS
    fan = next(each for each in drawn["list"] if each["topic"]["name"] == "fan")
    assert len(fan["readers"]["shown"]) == MOST_LISTED
    assert fan["readers"]["rest"] == MOST_BOXES - MOST_LISTED
    assert drawn["ribbons"][0]["left"] < MOST_BOXES
    assert "%3Cimg" in str(drawn["columns"][1][1]["address"])
    assert len(drawn["columns"][0][0]["name"]) == MOST_CHARACTERS
    assert len(words(use_of(rows(*many)), {}, Selection())) < 20 * MOST_CHARACTERS
    nameless = {"name": "(no client id)", "more": "client id", "address": None, "amount": "1 bytes", "severity": None}
    assert picture(use_of(rows(("t", "read", None, "", None, 1, 1))), {}, Selection())["columns"][2][0] == {
        **nameless,
        **{"y": 0, "height": 60, "unwritten": False, "unread": False},
    }


def test_dashboard_topic_use_adds_up_to_the_table_of_topics() -> None:
    found = by_topic(SOME).astype(object)
    found = found.where(found.notna(), None)
    written, read = ["writers", "records_written", "bytes_written"], ["readers", "records_read", "bytes_read", "groups"]
    assert [tuple(row) for row in found[["topic", *written, *read]].itertuples(index=False)] == [
        ("orders", 3, 16, 850, 1, 15, 800, 2),
        ("bills", 1, 2, 100, None, None, None, None),
        ("logs", None, None, None, 1, 4, 90, 0),
    ]
    assert by_topic(SOME.head(0)).empty
