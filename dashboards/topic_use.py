"""The topic map of a page: rows of question `topic_use` become boxes with links, ribbons, a list, and words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from kafka_telemetry_lake.dashboards.address import MANY, Selection, of_value
from kafka_telemetry_lake.dashboards.show import readable
from kafka_telemetry_lake.dashboards.topic_map import (
    COLUMNS,
    OTHERS,
    READERS,
    TOPICS,
    WRITERS,
    Amount,
    Box,
    Flows,
    Node,
    Ribbon,
    TopicMap,
    added,
    lay_out,
)
from kafka_telemetry_lake.udfs.findings.remarks import MUTED

SEVERITIES = ("error", "warning", "info")  # the worst first
# What a finding is about, by its scope: the kind of node with its subject as name.
KINDS = {"client_id": "client_id", "instance": "client_id", "topic": "topic", "group": "group_id"}
HEADINGS = ("Applications that write", "Topics", "Groups that read")
MOST_LISTED = 6  # of the writers or readers of a topic in the list, and of names in a sentence
MOST_TOPICS = 12  # of the list, which is for phones
MOST_CHARACTERS = 120  # of a name
NO_NAME = "(no client id)"


@dataclass(frozen=True)
class TopicUse:
    """Who uses which topic.

    Attributes:
        written, read: amounts in `unit`, by writer and topic, and by topic and reader.
        unit: bytes; records if nobody tells bytes; empty if nobody tells either.
        applications: whose a group or client id is, where that is known.
        client_ids: of applications and groups.
        most_rows: how many rows it is made of, if there were more; None: it is made of all.
    """

    written: Flows
    read: Flows
    unit: str
    applications: Mapping[Node, tuple[str, ...]]
    client_ids: Mapping[Node, tuple[str, ...]]
    most_rows: int | None = None


def use_of(rows: pd.DataFrame) -> TopicUse:
    """The flows of rows of question `topic_use`.

    A writer is an application, or a client id that has none; a reader is a consumer group, or else the same.
    """
    unit = next((name for name in ("bytes", "records") if rows[name].notna().any()), "")
    amounts = rows[unit] if unit else pd.Series(float("nan"), rows.index)
    names = zip(*(_texts(rows[name]) for name in ("group_id", "application", "client_id")), strict=True)
    nodes = [_node(*each) for each in names]
    flows: dict[str, dict[tuple[Node, Node], Amount]] = {"written": {}, "read": {}}
    for role, topic, node, amount in zip(rows["role"], rows["topic"], nodes, amounts, strict=True):
        ends = (node, Node("topic", topic)) if role == "written" else (Node("topic", topic), node)
        known = None if pd.isna(amount) else float(amount)
        flows[role][ends] = added([known, flows[role].get(ends)])
    # A group has the applications of all of its members, in one text; a client id may have a comma of its own.
    owned = _of_nodes(nodes, [name.split(MANY) for name in _texts(rows["application"])])
    clients = _of_nodes(nodes, [[name] for name in _texts(rows["client_id"])])
    return TopicUse(flows["written"], flows["read"], unit, owned, clients, rows.attrs.get("most"))


def _node(group: str, application: str, client_id: str) -> Node:
    if group:
        return Node("group_id", group)
    return Node("application", application) if application else Node("client_id", client_id)


def _texts(values: pd.Series) -> list[str]:
    return ["" if pd.isna(value) else str(value) for value in values]


def _of_nodes(nodes: Iterable[Node], values: Iterable[list[str]]) -> dict[Node, tuple[str, ...]]:
    """The distinct values that belong to each node, in order."""
    found = dict[Node, set[str]]()
    for node, several in zip(nodes, values, strict=True):
        if named := set(filter(None, several)):
            found.setdefault(node, set()).update(named)
    return {node: tuple(sorted(each)) for node, each in found.items()}


def worst(findings: pd.DataFrame) -> dict[Node, str]:
    """The worst severity of the open findings about each node; muted ones don't count."""
    found = dict[Node, str]()

    def count(node: Node, severity: str) -> None:
        found[node] = min(severity, found.get(node, severity), key=SEVERITIES.index)

    for row in findings.to_dict("records"):
        if row["state"] == MUTED or row["severity"] not in SEVERITIES:
            continue
        if row["scope"] in KINDS:
            count(Node(KINDS[row["scope"]], str(row["subject"])), row["severity"])
        if isinstance(owned := row.get("application"), str) and owned:
            for application in owned.split(MANY):
                count(Node("application", application), row["severity"])
    return found


def of_nodes(nodes: Iterable[Node], use: TopicUse, found: Mapping[Node, str]) -> str | None:
    """The worst severity of what is open about some nodes or one of their client ids."""
    about = {each for node in nodes for each in (node, *_clients(node, use))}
    return min((found[each] for each in about if each in found), key=SEVERITIES.index, default=None)


def _clients(node: Node, use: TopicUse) -> Iterable[Node]:
    return (Node("client_id", name) for name in use.client_ids.get(node, ()))


def picture(use: TopicUse, found: Mapping[Node, str], selection: Selection) -> dict[str, Any]:
    """What the element `flow` draws."""
    laid = lay_out(use.written, use.read)
    columns = [[_box(box, column, use, found, selection) for box in laid.columns[column]] for column in COLUMNS]
    ribbons = []
    for ribbon in laid.ribbons:
        outer = columns[WRITERS][ribbon.left] if ribbon.column == WRITERS else columns[READERS][ribbon.right]
        ribbons.append(
            {
                "column": ribbon.column,
                "left": ribbon.left,
                "right": ribbon.right,
                "left_y": round(ribbon.left_y, 2),
                "right_y": round(ribbon.right_y, 2),
                "width": round(ribbon.width, 2),
                "severity": outer["severity"],
                "known": ribbon.amount is not None,
                "title": f"{columns[ribbon.column][ribbon.left]['name']} → "
                f"{columns[ribbon.column + 1][ribbon.right]['name']}: {_amount(ribbon.amount, use.unit)}",
            }
        )
    return {
        "headings": HEADINGS,
        "lacks": [f"no {end} {'selected' if selection.filters else 'known'}" for end in ("writer", "reader")],
        "height": round(laid.height, 2),
        "columns": columns,
        "ribbons": ribbons,
        "list": [_listed(place, laid, columns, use.unit) for place in range(len(columns[TOPICS]))[:MOST_TOPICS]],
        "rest": max(0, len(columns[TOPICS]) - MOST_TOPICS),
    }


def _box(box: Box, column: int, use: TopicUse, found: Mapping[Node, str], selection: Selection) -> dict[str, Any]:
    others = box.node == OTHERS
    name = f"{OTHERS.name} ({len(box.inside):,})" if others else _name(box.node)
    more = MANY.join(use.applications.get(box.node, ())) if box.node.kind == "group_id" else ""
    if box.node.kind == "client_id":
        more = "client id"
    if column == READERS and box.node.kind == "application":
        more = "without a group"
    return {
        "name": name,
        "more": more,
        "address": None if others else of_value(box.node.kind, box.node.name, selection),
        "amount": _amount(box.amount, use.unit),
        "severity": of_nodes(box.inside, use, found),
        "y": round(box.y, 2),
        "height": round(box.height, 2),
        "unwritten": column == TOPICS and not box.written,
        "unread": column == TOPICS and not box.read,
    }


def _listed(place: int, laid: TopicMap, columns: list[list[dict[str, Any]]], unit: str) -> dict[str, Any]:
    """A topic of the list: its writers and readers, the largest first, with their shares of the widest ribbon."""
    widest = max((ribbon.width for ribbon in laid.ribbons), default=0) or 1

    def side(column: int) -> dict[str, Any]:
        def is_own(ribbon: Ribbon) -> bool:
            return ribbon.column == column and place == (ribbon.right if column == WRITERS else ribbon.left)

        own = sorted(filter(is_own, laid.ribbons), key=lambda ribbon: -(ribbon.amount or 0))
        shown = []
        for ribbon in own[:MOST_LISTED]:
            box = columns[WRITERS][ribbon.left] if column == WRITERS else columns[READERS][ribbon.right]
            kept = {key: box[key] for key in ("name", "more", "address", "severity")}
            share = 0 if ribbon.amount is None else round(100 * ribbon.width / widest, 1)
            shown.append(kept | {"amount": _amount(ribbon.amount, unit), "share": share})
        return {"shown": shown, "rest": max(0, len(own) - MOST_LISTED)}

    return {"topic": columns[TOPICS][place], "writers": side(WRITERS), "readers": side(TOPICS)}


def _amount(amount: Amount, unit: str) -> str:
    return "unknown" if amount is None else readable(amount, unit)


def words(use: TopicUse, found: Mapping[Node, str], selection: Selection) -> str:
    """What the map shows: totals, the largest flows, what is wrong, topics that nobody writes or reads, unknowns."""
    writers, readers = {ends[0] for ends in use.written}, {ends[1] for ends in use.read}
    written, read = {ends[1] for ends in use.written}, {ends[0] for ends in use.read}
    said = [_totals(use)]
    if use.most_rows is not None:
        said.append(
            f"The smallest are left out beyond {use.most_rows:,} rows: "
            "numbers of writers, readers and amounts are too low."
        )
    for what, flows, between in (("written", use.written, "to"), ("read", use.read, "by")):
        known = {ends: amount for ends, amount in flows.items() if amount}
        if known:
            one, other = max(known, key=lambda ends: (known[ends], ends))
            said.append(f"Most {what}: {_name(one)} {between} {_name(other)}, {readable(known[one, other], use.unit)}.")
    said += _wrong({*writers, *readers, *written, *read}, use, found)
    nobody = "None of the selected clients is known to" if selection.filters else "Nobody is known to"
    for verb, topics in (("read", written - read), ("write", read - written)):
        if topics:
            said.append(f"{nobody} {verb} {_names(map(_name, topics))}.")
    if both := _owners(writers, use) & _owners(readers, use):
        said.append(f"Both write and read: {_names(both)}.")
    return " ".join([*said, _of_unknown(use)]).strip()


def _totals(use: TopicUse) -> str:
    """How many write and read how much of how many topics; a side without flows is left out.

    Bytes of both sides can't be compared: producers count them as they send them, consumers after decompression.
    """
    sides = list[str]()
    for flows, end, noun, verb, of, how in (
        (use.written, 0, "writer", "wrote", "to", "compressed"),
        (use.read, 1, "reader", "read", "of", "decompressed"),
    ):
        who, topics = (
            _count({ends[place] for ends in flows}, what) for place, what in ((end, noun), (1 - end, "topic"))
        )
        total = added(flows.values())
        amount = f"an unknown number of {use.unit}" if total is None else readable(total, use.unit)
        if total is not None and use.unit == "bytes":
            amount += f" ({how})"
        if flows:
            sides.append(f"{who} {verb} {amount} {of} {topics}" if use.unit else f"{who} of {topics}")
    return f"{'' if use.unit else 'Known: '}{'; '.join(sides)}."


def _wrong(nodes: set[Node], use: TopicUse, found: Mapping[Node, str]) -> list[str]:
    by_severity = dict[str, list[str]]()
    for node in nodes:
        if severity := of_nodes([node], use, found):
            by_severity.setdefault(severity, []).append(_name(node))
    return [
        f"With an open {each}: {_names(by_severity[each])}." for each in ("error", "warning") if each in by_severity
    ]


def _owners(nodes: Iterable[Node], use: TopicUse) -> set[str]:
    """The applications of some nodes, or the client ids of those that have none."""
    return {
        name
        for node in nodes
        for name in (use.applications.get(node, ()) if node.kind == "group_id" else (_name(node),))
    }


def _of_unknown(use: TopicUse) -> str:
    amounts = [*use.written.values(), *use.read.values()]
    unknown = amounts.count(None)
    if not use.unit:
        return "Neither bytes nor records are known: all ribbons are equally thin."
    said = "No client tells bytes: ribbons are as wide as records. " if use.unit == "records" else ""
    if unknown:
        said += f"Of {unknown:,} of {len(amounts):,} flows the {use.unit} are unknown: their ribbons are thin, dashed."
    return said


def _name(node: Node) -> str:
    """The name of a node, of a long one the beginning: a client id may have thousands of characters."""
    name = node.name or NO_NAME
    return name if len(name) <= MOST_CHARACTERS else f"{name[: MOST_CHARACTERS - 1]}…"


def _names(names: Iterable[str]) -> str:
    """Some names, the first of them in full."""
    known = sorted(names)
    more = len(known) - MOST_LISTED
    return ", ".join(known[:MOST_LISTED]) + (f" and {more:,} more" if more > 0 else "")


def _count(nodes: set[Node], noun: str) -> str:
    return f"{len(nodes):,} {noun}{'' if len(nodes) == 1 else 's'}"
