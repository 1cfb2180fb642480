"""Lays out who writes which topic and who reads it, as a flow diagram of three columns: writers, topics, readers.

A box stands for a writer, a topic or a reader. A ribbon leads from a writer to a topic, or from a topic to a reader,
and is as wide as its amount: all have the same pixels per unit. Pure arithmetic; `browser/flow.js` draws it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

WRITERS, TOPICS, READERS = COLUMNS = range(3)
MOST_BOXES = 30  # of a column
BOX_PX, GAP_PX = 24, 7  # a box has room for a line of text; between two boxes
THIN_PX = 2.0  # of a ribbon whose amount is unknown
LEAST_PX, PX_A_BOX, MOST_PX = 60, 40, 420  # what the amounts of the fullest column take


class Node(NamedTuple):
    """What a box stands for.

    Attributes:
        kind: the column of answers that has its name, such as `topic`; `others`: all that have no box of their own.
    """

    kind: str
    name: str


OTHERS = Node("others", "all others")
Amount = float | None  # None: unknown
Flows = Mapping[tuple[Node, Node], Amount]  # by left and right node: writer and topic, or topic and reader


@dataclass(frozen=True)
class Box:
    """A box of a column; `y` and `height` in pixels.

    Attributes:
        amount: what it writes or reads; of a topic the greater of both.
        inside: the nodes that it stands for; several if it is that of `OTHERS`.
        written, read: whether a ribbon enters it, and whether one leaves it.
    """

    node: Node
    y: float
    height: float
    amount: Amount
    inside: tuple[Node, ...]
    written: bool
    read: bool


@dataclass(frozen=True)
class Ribbon:
    """A ribbon between two neighbouring columns.

    Attributes:
        column: that of its left end, `WRITERS` or `TOPICS`.
        left, right: places of its boxes in their columns.
        left_y, right_y: of its upper edge, in pixels.
        width: in pixels, the same at both ends; 0 of an amount of 0, `THIN_PX` of an unknown one.
    """

    column: int
    left: int
    right: int
    left_y: float
    right_y: float
    width: float
    amount: Amount


@dataclass(frozen=True)
class TopicMap:
    """A layout; `height` in pixels, `px_a_unit` what a unit of the amounts takes of it (0: no amount is above 0)."""

    columns: tuple[tuple[Box, ...], ...]
    ribbons: tuple[Ribbon, ...]
    height: float
    px_a_unit: float


def lay_out(written: Flows, read: Flows, most: int = MOST_BOXES) -> TopicMap:
    """The layout of these flows; the same flows, in whatever order, have the same layout.

    The smallest of a column become `OTHERS`, if it has more than `most`. Topics stand in the order of their amounts,
    and writers and readers beside their topics.

    Args:
        written: amounts by writer and topic.
        read: amounts by topic and reader.
    """
    flows: tuple[Flows, Flows] = (written, read)
    sizes = [_sizes(flows, column) for column in COLUMNS]
    kept = [_largest(each, most) for each in sizes]
    flows = (_folded(written, kept[WRITERS], kept[TOPICS]), _folded(read, kept[TOPICS], kept[READERS]))
    order = _order(flows)
    fullest = max((sum(_sizes(flows, column).values()) for column in COLUMNS), default=0)
    room = min(MOST_PX, max(LEAST_PX, PX_A_BOX * max(map(len, order))))
    px = room / fullest if fullest > 0 else 0.0
    widths = tuple({ends: _width(amount, px) for ends, amount in flow.items()} for flow in flows)
    heights = [_sizes(widths, column, BOX_PX) for column in COLUMNS]
    lengths = [sum(each.values()) + GAP_PX * max(0, len(each) - 1) for each in heights]
    columns = []
    for column in COLUMNS:
        into, out = _sides(flows, column)
        y, boxes = (max(lengths) - lengths[column]) / 2, list[Box]()
        for node in order[column]:
            known = [amount for side in (into, out) if (amount := side.get(node)) is not None]
            inside = tuple(sorted(sizes[column].keys() - kept[column])) if node == OTHERS else (node,)
            boxes.append(
                Box(node, y, heights[column][node], max(known, default=None), inside, node in into, node in out)
            )
            y += heights[column][node] + GAP_PX
        columns.append(tuple(boxes))
    ribbons = (_ribbons(column, flows[column], widths[column], columns) for column in (WRITERS, TOPICS))
    return TopicMap(tuple(columns), tuple(chain(*ribbons)), max(lengths), px)


def added(amounts: Iterable[Amount]) -> Amount:
    """The sum of the known amounts; None if none is known."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def _sides(flows: tuple[Flows, ...], column: int) -> tuple[dict[Node, Amount], dict[Node, Amount]]:
    """What enters each node of a column, and what leaves it."""
    sides = list[dict[Node, Amount]]()
    for flow, own in ((column - 1, 1), (column, 0)):
        amounts = dict[Node, list[Amount]]()
        for ends, amount in flows[flow].items() if flow in (WRITERS, TOPICS) else ():
            amounts.setdefault(ends[own], []).append(amount)
        sides.append({node: added(each) for node, each in amounts.items()})
    return sides[0], sides[1]


def _sizes(flows: tuple[Flows, ...], column: int, least: float = 0) -> dict[Node, float]:
    """The greater of what enters and what leaves each node of a column, and at least this."""
    into, out = _sides(flows, column)
    return {node: max(into.get(node) or 0, out.get(node) or 0, least) for node in into | out}


def _largest(sizes: Mapping[Node, float], most: int) -> set[Node]:
    if len(sizes) <= most:
        return set(sizes)
    return set(sorted(sizes, key=lambda node: (-sizes[node], node))[: most - 1])


def _folded(flow: Flows, left: set[Node], right: set[Node]) -> Flows:
    """The flows between the nodes that have boxes, and those of the others added up."""
    amounts = dict[tuple[Node, Node], list[Amount]]()
    for (one, other), amount in sorted(flow.items()):
        ends = (one if one in left else OTHERS, other if other in right else OTHERS)
        amounts.setdefault(ends, []).append(amount)
    return {ends: added(each) for ends, each in amounts.items()}


def _order(flows: tuple[Flows, Flows]) -> list[list[Node]]:
    """The nodes of each column from above: topics by size, writers and readers by where their topics are on average."""
    sizes = [_sizes(flows, column) for column in COLUMNS]
    topics = sorted(sizes[TOPICS], key=lambda node: (node == OTHERS, -sizes[TOPICS][node], node))
    place = {topic: index for index, topic in enumerate(topics)}

    def beside(column: int) -> list[Node]:
        flow, own = (flows[WRITERS], 0) if column == WRITERS else (flows[TOPICS], 1)
        places = dict[Node, list[tuple[float, float]]]()
        for ends, amount in flow.items():
            # What is 0 or unknown must have a place too; beside other amounts it hardly counts.
            places.setdefault(ends[own], []).append((place[ends[1 - own]], (amount or 0) + 1e-9))
        mean = {node: sum(at * by for at, by in each) / sum(by for _, by in each) for node, each in places.items()}
        return sorted(mean, key=lambda node: (node == OTHERS, mean[node], -sizes[column][node], node))

    return [beside(WRITERS), topics, beside(READERS)]


def _width(amount: Amount, px_a_unit: float) -> float:
    return THIN_PX if amount is None else max(0.0, amount) * px_a_unit


def _ribbons(column: int, flow: Flows, widths: Flows, columns: list[tuple[Box, ...]]) -> list[Ribbon]:
    """The ribbons from a column to the next. At a box they lie below each other, in the order of where they lead to."""
    places = [{box.node: index for index, box in enumerate(columns[column + side])} for side in (0, 1)]
    y = [dict[tuple[Node, Node], float](), dict[tuple[Node, Node], float]()]
    for side in (0, 1):
        for box in columns[column + side]:
            own = [ends for ends in flow if ends[side] == box.node]
            total = sum(widths[ends] or 0 for ends in own)
            at = box.y + (box.height - total) / 2
            for ends in sorted(own, key=lambda ends: places[1 - side][ends[1 - side]]):
                y[side][ends] = at
                at += widths[ends] or 0
    ordered = sorted(flow, key=lambda ends: (places[0][ends[0]], places[1][ends[1]]))
    return [
        Ribbon(column, places[0][ends[0]], places[1][ends[1]], y[0][ends], y[1][ends], widths[ends] or 0, flow[ends])
        for ends in ordered
    ]
