"""The navigation of the sidebar: the pages by what a reader looks for, each in the same time range and filters."""

from __future__ import annotations

from kafka_telemetry_lake.dashboards.address import address, with_query
from kafka_telemetry_lake.dashboards.elements import element
from kafka_telemetry_lake.dashboards.selection import FINDING_FILTERS, SUBJECTS, Selection

# Title of a group: its pages, as path to title.
GROUPS: dict[str, dict[str, str]] = {
    "": {"": "Problems", "findings": "Open findings"},
    "Clients": {
        "fleet": "Fleet",
        "client-id": "Client ids",
        "client": "One client",
        "producers": "Producers",
        "consumers": "Consumers and groups",
        "connections": "Connections and rebootstraps",
        "lifecycle": "Lifecycle",
        "version": "Versions",
    },
    "Who and what": {
        "application": "Applications and owners",
        "principal": "Principals",
        "topic": "Topics",
        "group": "Groups",
    },
    "Limits and telemetry": {
        "quotas": "Quotas",
        "broker": "Brokers",
        "subscriptions": "Subscriptions",
        "pipeline": "Pipeline health",
    },
    "Look up": {"search": "Search"},
}
TITLES = {path: title for pages in GROUPS.values() for path, title in pages.items()}


def navigation(here: str, selection: Selection, query: dict[str, list[str]], errors: int) -> None:
    """Show the navigation; `errors` is the number of open findings of that severity."""
    kept = {key: value for key, value in query.items() if key not in (*SUBJECTS, *FINDING_FILTERS)}
    groups = [
        {
            "title": group,
            "pages": [
                {
                    "title": title,
                    "address": with_query(path, kept),
                    "here": path == here,
                    "count": f"{errors:,}" if errors and path == "findings" else "",
                    "meaning": "open errors that nobody looks after",
                }
                for path, title in pages.items()
            ],
        }
        for group, pages in GROUPS.items()
    ]
    searched = (query.get("q") or [""])[-1]
    element("nav", {"groups": groups, "search": {"address": address("search", selection), "q": searched}}, key="nav")
