"""The navigation of the sidebar: the pages by what a reader looks for, each in the same time range and filters."""

from __future__ import annotations

from itertools import groupby

from kafka_telemetry_lake.dashboards.address import address, with_query
from kafka_telemetry_lake.dashboards.elements import element
from kafka_telemetry_lake.dashboards.pages import PAGES
from kafka_telemetry_lake.dashboards.selection import FINDING_FILTERS, SUBJECTS, Selection


def navigation(here: str, selection: Selection, query: dict[str, list[str]], errors: int) -> None:
    """Show the navigation; `errors` is the number of open findings of that severity."""
    kept = {key: value for key, value in query.items() if key not in (*SUBJECTS, *FINDING_FILTERS)}
    groups = [
        {
            "title": group,
            "pages": [
                {
                    "title": page.title,
                    "address": with_query(page.path, kept),
                    "here": page.path == here,
                    "count": f"{errors:,}" if errors and page.path == "findings" else "",
                    "meaning": "open errors that nobody looks after",
                }
                for page in pages
            ],
        }
        for group, pages in groupby(PAGES, lambda page: page.group)
    ]
    searched = (query.get("q") or [""])[-1]
    element("nav", {"groups": groups, "search": {"address": address("search", selection), "q": searched}}, key="nav")
