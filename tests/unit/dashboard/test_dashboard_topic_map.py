"""The layout of the topic map: ribbons are as wide as what they stand for, and nothing is lost where boxes are few."""

from __future__ import annotations

from collections import defaultdict

import pytest

from kafka_telemetry_lake.dashboards.topic_map import (
    BOX_PX,
    COLUMNS,
    GAP_PX,
    MOST_BOXES,
    MOST_PX,
    OTHERS,
    PX_A_BOX,
    THIN_PX,
    TOPICS,
    WRITERS,
    Amount,
    Node,
    TopicMap,
    lay_out,
)

Pairs = dict[tuple[str, str], Amount]


def laid(written: Pairs, read: Pairs, most: int = MOST_BOXES) -> TopicMap:
    """The layout of flows between names: of applications, topics and groups."""
    return lay_out(
        {(Node("application", app), Node("topic", topic)): amount for (app, topic), amount in written.items()},
        {(Node("topic", topic), Node("group_id", group)): amount for (topic, group), amount in read.items()},
        most,
    )


def names(found: TopicMap) -> list[list[str]]:
    return [[box.node.name for box in column] for column in found.columns]


def widths(found: TopicMap) -> dict[tuple[str, str], float]:
    """The width of each ribbon, by the names at its ends."""
    columns = names(found)
    return {
        (columns[each.column][each.left], columns[each.column + 1][each.right]): each.width for each in found.ribbons
    }


WRITTEN: Pairs = {("shop", "orders"): 600, ("shop", "carts"): 100, ("bank", "bills"): 300}
READ: Pairs = {("orders", "billing"): 600, ("orders", "audit"): 600, ("bills", "audit"): 250}


def test_dashboard_topic_map_ribbons_are_as_wide_as_their_amounts() -> None:
    found = laid(WRITTEN, READ)
    # The topics' column is the fullest, 1,200 and 300 and 100; three boxes make room for 120 px.
    assert found.px_a_unit == pytest.approx(3 * PX_A_BOX / 1600)
    assert widths(found) == {
        ends: pytest.approx(amount * found.px_a_unit) for ends, amount in {**WRITTEN, **READ}.items() if amount
    }
    assert names(found) == [["shop", "bank"], ["orders", "bills", "carts"], ["billing", "audit"]]
    amounts = [[box.amount for box in column] for column in found.columns]
    assert amounts == [[700, 300], [1200, 300, 100], [600, 850]]  # of a topic the greater of both sides
    assert [(box.written, box.read) for box in found.columns[TOPICS]] == [(True, True), (True, True), (True, False)]


def test_dashboard_topic_map_boxes_hold_their_ribbons_and_never_overlap() -> None:
    found = laid({**WRITTEN, ("idle", "orders"): 0}, READ)
    for column in COLUMNS:
        below = 0.0
        for place, box in enumerate(found.columns[column]):
            assert box.y >= below - 1e-9
            below = box.y + box.height + GAP_PX
            assert box.height >= BOX_PX
            for of, end, y in ((column - 1, "right", "right_y"), (column, "left", "left_y")):
                own = [each for each in found.ribbons if each.column == of and getattr(each, end) == place]
                own.sort(key=lambda ribbon: getattr(ribbon, y))
                edge = box.y
                for ribbon in own:
                    assert getattr(ribbon, y) >= edge - 1e-9
                    edge = getattr(ribbon, y) + ribbon.width
                assert edge <= box.y + box.height + 1e-9
        assert below - GAP_PX <= found.height + 1e-9


def test_dashboard_topic_map_small_ones_become_all_others_and_the_sums_stay() -> None:
    written: Pairs = {(f"app{n:02d}", f"topic{n % 40:02d}"): float(100 - n) for n in range(50)}
    read: Pairs = {(f"topic{n % 40:02d}", f"group{n:02d}"): 2.0 * n for n in range(70)}
    found = laid(written, read)
    assert [len(column) for column in found.columns] == [MOST_BOXES] * 3
    assert [len(column[-1].inside) for column in found.columns] == [50 - 29, 40 - 29, 70 - 29]
    assert all(column[-1].node == OTHERS for column in found.columns)
    sums: dict[int, float] = defaultdict(float)
    for ribbon in found.ribbons:
        sums[ribbon.column] += ribbon.amount or 0
    all_written, all_read = (sum(each or 0 for each in pairs.values()) for pairs in (written, read))
    assert sums == {WRITERS: all_written, TOPICS: all_read}
    kept = {box.node.name for box in found.columns[WRITERS]}
    assert kept == {f"app{n:02d}" for n in range(29)} | {OTHERS.name}
    assert {"app29", "app49"} <= {node.name for node in found.columns[WRITERS][-1].inside}
    # The fullest column takes as many pixels as there are for amounts.
    fullest = max(sum(box.amount or 0 for box in column) for column in found.columns)
    assert found.px_a_unit * fullest == pytest.approx(MOST_PX)
    exactly = laid({(f"app{n}", "t"): 1 for n in range(MOST_BOXES)}, {})
    assert OTHERS.name not in names(exactly)[WRITERS]


def test_dashboard_topic_map_is_the_same_in_whatever_order_the_flows_come() -> None:
    written: Pairs = {(f"app{n % 7}", f"topic{n % 11}"): float(n % 5) for n in range(40)}
    read: Pairs = {(f"topic{n % 11}", f"group{n % 6}"): None if n % 3 else float(n) for n in range(40)}
    backwards = laid(dict(reversed(written.items())), dict(reversed(read.items())), most=5)
    assert laid(written, read, most=5) == backwards


def test_dashboard_topic_map_unknown_amounts_are_thin_and_zeros_have_no_width() -> None:
    found = laid({("shop", "orders"): None, ("bank", "orders"): 0}, {("orders", "billing"): 50})
    assert widths(found) == {("shop", "orders"): THIN_PX, ("bank", "orders"): 0, ("orders", "billing"): 2 * PX_A_BOX}
    assert [box.amount for box in found.columns[WRITERS]] == [0, None]
    assert found.columns[TOPICS][0].amount == 50
    unknown = laid({("shop", "orders"): None}, {("orders", "billing"): None})
    assert (unknown.px_a_unit, set(widths(unknown).values()), unknown.height) == (0, {THIN_PX}, BOX_PX)
    zero = laid({("shop", "orders"): 0}, {("orders", "billing"): 0})
    assert (zero.px_a_unit, set(widths(zero).values())) == (0, {0})


def test_dashboard_topic_map_of_one_end_alone_and_of_nothing() -> None:
    nobody_reads = laid({("shop", "orders"): 5}, {})
    assert names(nobody_reads) == [["shop"], ["orders"], []]
    assert [(box.written, box.read) for box in nobody_reads.columns[TOPICS]] == [(True, False)]
    nobody_writes = laid({}, {("orders", "billing"): 5})
    assert names(nobody_writes) == [[], ["orders"], ["billing"]]
    assert (laid({}, {}).height, laid({}, {}).ribbons) == (0, ())


def test_dashboard_topic_map_who_writes_and_reads_stands_on_both_sides() -> None:
    """A cycle of topics through an application has no arrow back: its reading is in the third column."""
    both = Node("application", "shop")
    orders, bills = Node("topic", "orders"), Node("topic", "bills")
    found = lay_out({(both, orders): 1, (both, bills): 2}, {(orders, both): 1, (bills, both): 2})
    assert [[box.node for box in column] for column in found.columns] == [[both], [bills, orders], [both]]
    ends = [(each.column, each.left, each.right) for each in found.ribbons]
    assert ends == [(WRITERS, 0, 0), (WRITERS, 0, 1), (TOPICS, 0, 0), (TOPICS, 1, 0)]


def test_dashboard_topic_map_writers_stand_beside_their_topics() -> None:
    written: Pairs = {("a", "small"): 1, ("b", "middle"): 5, ("c", "large"): 9}
    assert names(laid(written, {}))[WRITERS] == ["c", "b", "a"]
