"""Which rows of the tables that people list go, and what is left of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kafka_telemetry_lake.pipelines.forget.rows import Rows
from kafka_telemetry_lake.pipelines.forget.subject import Subject
from kafka_telemetry_lake.pipelines.tables.costs import BROKERS, PRICES
from kafka_telemetry_lake.pipelines.tables.lifecycle import APPLICATION_RULES
from kafka_telemetry_lake.pipelines.tables.table import Table

SELLER = Subject(
    instances=frozenset({"jHecHqLPQj2rnaP7QRzrmg"}),
    principals=frozenset({"User:seller 2"}),
    users=frozenset({"seller 2"}),
    client_ids=frozenset({"shop-app-2", "shop.two"}),
    addresses=frozenset({"10.20.30.42", "0:0:0:0:0:0:0:7", "not an address"}),
    members=frozenset({"member-2"}),
)
PATTERNS = ("client_id", "principal")


def left(table: Table, *rows: dict[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """The rows that an erasure leaves, and in how many it replaced something."""
    values = pa.Table.from_pylist(list(rows), table.schema)
    rule = Rows(SELLER, table.name, table.schema.names)
    read = values.select(rule.columns) if rule.columns else values
    kept, changed = rule.without_mentions(values.filter(pc.invert(rule.erased(read))))
    return kept.to_pylist(), changed


def applications(*rules: dict[str, Any], asked: Sequence[str]) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in asked) for row in left(APPLICATION_RULES, *rules)[0]]


@pytest.mark.parametrize(
    ("pattern", "after"),
    [
        (r"shop-app-2|shop-app-9", "(forgotten)|shop-app-9"),
        (r"shop\-app\-2|shop[.]two", "(forgotten)|(forgotten)"),
        (r"shop\.two.*", "(forgotten).*"),
        (r"User[:](seller\ 2|seller\ 23)", r"User[:]((forgotten)|seller\ 23)"),
        # Longer names are those of others.
        (r"shop-app-2[.]b|my\.shop-app-2|my[.]shop-app-2|shop-app-22", None),
        (r"shop.two\.b|shop\.two[-]b|shop\.two\-b|big\-shop.two|big[-]shop.two", None),
    ],
)
@pytest.mark.parametrize("column", PATTERNS)
def test_an_expression_loses_the_name_however_it_is_escaped(column: str, pattern: str, after: str | None) -> None:
    rows, changed = left(APPLICATION_RULES, {"position": 0, "application": "shop", column: pattern})
    assert ([row[column] for row in rows], changed) == ([after or pattern], 1 if after else 0)


def test_a_rule_of_the_client_alone_goes() -> None:
    """One of its exact names, or of its address alone, however that is written. The others keep every condition."""
    asked = ("position", "principal", "address_range")
    network = {"address_first": "010020030042", "address_last": "010020030042"}
    seven = 31 * "0" + "7"
    assert applications(
        {"position": 0, "principal": "User:seller 2"},
        {"position": 1, "address_range": "10.20.30.42/32"} | network,
        {"position": 2, "address_range": "::7", "address_first": seven, "address_last": seven},
        {"position": 3, "address_range": "10.20.30.42/31"} | network | {"address_last": "010020030043"},
        {"position": 4, "principal": "User:o"},
        asked=asked,
    ) == [(3, None, "10.20.30.42/31"), (4, "User:o", None)]


def test_an_owner_is_forgotten_and_a_group_of_the_same_name_stays() -> None:
    """As its members of other clients do in `group_members`."""
    asked = ("client_id", "application", "owner")
    rules = [{"client_id": "web-.*", "application": "web", "owner": owner} for owner in ("seller 2", "seller 22")]
    assert applications(*rules, asked=asked) == [("web-.*", "web", None), ("web-.*", "web", "seller 22")]
    rule = {"position": 0, "application": "shop", "group_id": "shop-app-2|g"}
    assert applications(rule, asked=("group_id",)) == [("shop-app-2|g",)]


def test_prices_and_brokers_stay_whatever_their_names() -> None:
    """A topic may be called as a client id is: its price is nobody's."""
    price = {"item": "topic", "subject": "shop-app-2", "currency": "EUR", "retention_hours": 1.0}
    rows, changed = left(PRICES, price)
    assert ([row["subject"] for row in rows], changed) == (["shop-app-2"], 0)
    rows, changed = left(BROKERS, {"broker_id": 2, "rack": "shop-app-2"})
    assert ([row["rack"] for row in rows], changed) == (["shop-app-2"], 0)
