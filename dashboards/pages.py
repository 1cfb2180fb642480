"""The pages: each one's address, title, group in the navigation, what it is about, and which module shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import Any, cast


@dataclass(frozen=True)
class About:
    """What a page is about if its address has this parameter once; without it, the page lists all.

    Attributes:
        parameter: of the address.
        noun: what the thing is called, with a capital letter.
    """

    parameter: str
    noun: str


@dataclass(frozen=True)
class Page:
    """A page of the dashboard.

    Attributes:
        path: of its address; the first page has none.
        group: title of the navigation's group.
        screen: module of package `screens` whose function `page(scene)` shows it.
        columns: columns of answers whose values link to this page, to the parameter that names the value.
    """

    path: str
    title: str
    group: str
    screen: str
    about: About | None = None
    columns: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def show(self) -> Callable[[Any], None]:
        """What shows the page of a `Scene`; imported when a visitor opens it first."""
        module = import_module(f"kafka_telemetry_lake.dashboards.screens.{self.screen}")
        return cast(Callable[[Any], None], module.page)


_CLIENTS, _SUBJECTS, _LIMITS = "Clients", "Who and what", "Limits and telemetry"

PAGES = (
    Page("", "Problems", "", "problems"),
    Page("findings", "Open findings", "", "findings", columns={"finding": "finding"}),
    Page("fleet", "Fleet", _CLIENTS, "fleet"),
    Page("client-id", "Client ids", _CLIENTS, "client_id", About("client", "Client id"), {"client_id": "client"}),
    Page(
        "client",
        "One client",
        _CLIENTS,
        "client",
        About("instance", "Client instance"),
        {"client_instance_id": "instance", "worst_instance": "instance"},
    ),
    Page("producers", "Producers", _CLIENTS, "producers"),
    Page("consumers", "Consumers and groups", _CLIENTS, "consumers"),
    Page("connections", "Connections and rebootstraps", _CLIENTS, "connections"),
    Page("lifecycle", "Lifecycle", _CLIENTS, "lifecycle"),
    Page("version", "Versions", _CLIENTS, "version", About("version", "Version"), {"software": "version"}),
    Page(
        "application",
        "Applications and owners",
        _SUBJECTS,
        "application",
        About("application", "Application"),
        {"application": "application", "owner": "owner"},
    ),
    Page("principal", "Principals", _SUBJECTS, "principal", About("principal", "Principal"),
         {"principal": "principal"}),
    Page("topic", "Topics", _SUBJECTS, "topic", About("topic", "Topic"), {"topic": "topic"}),
    Page("group", "Groups", _SUBJECTS, "group", About("group", "Consumer group"),
         {"group_id": "group", "reader_groups": "group"}),
    Page("quotas", "Quotas", _LIMITS, "quotas"),
    Page("what-if-quota", "What would a quota do?", _LIMITS, "what_if_quota"),
    Page("broker", "Brokers", _LIMITS, "broker", About("broker", "Broker"), {"broker_id": "broker"}),
    Page("subscriptions", "Subscriptions", _LIMITS, "subscriptions"),
    Page("coverage", "Who pushes", _LIMITS, "coverage"),
    Page("conformance", "Libraries and KIP-714", _LIMITS, "conformance"),
    Page("pipeline", "Pipeline health", _LIMITS, "health"),
    Page("search", "Search", "Look up", "search"),
)  # fmt: skip
BY_PATH = {page.path: page for page in PAGES}
OF_COLUMN = {column: (page.path, parameter) for page in PAGES for column, parameter in page.columns.items()}


def subject(page: Page, query: Mapping[str, list[str]]) -> str | None:
    """The one thing that a page's address is about."""
    if page.about is None:
        return None
    named = query.get(page.about.parameter) or []
    return named[-1] if len(named) == 1 else None
