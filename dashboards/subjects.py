"""Pages about one thing: which one the address names, and what is known of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
import streamlit as st

from kafka_telemetry_lake.dashboards.address import of_value
from kafka_telemetry_lake.dashboards.elements import element
from kafka_telemetry_lake.dashboards.pages import Page
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.selection import Selection
from kafka_telemetry_lake.dashboards.show import plain

MOST_NAMES = 12


def subject(page: Page, query: Mapping[str, list[str]]) -> str | None:
    """The one thing that a page's address is about."""
    if page.about is None:
        return None
    named = query.get(page.about.parameter) or []
    return named[-1] if len(named) == 1 else None


def facts(title: str, values: Mapping[str, tuple[str, Iterable[Any]]], selection: Selection) -> None:
    """Show what is known, given as name to the column whose pages the values have, and values."""
    shown = []
    for name, (column, several) in values.items():
        known = list(dict.fromkeys(str(value) for value in several if not pd.isna(value)))
        if known:
            texts = [{"text": text, "address": of_value(column, text, selection)} for text in known[:MOST_NAMES]]
            if len(known) > MOST_NAMES:
                texts.append({"text": f"{len(known) - MOST_NAMES:,} more", "address": None})
            shown.append({"name": name, "values": texts})
    with st.container(border=True):
        element("facts", {"title": title, "facts": shown})


def about_clients(scene: Scene, title: str = "About it") -> None:
    """What the chosen instances have in common: who uses them, with which software, in which groups."""
    clients = scene.chosen.to_pandas()
    owned = scene.owned()
    facts(
        title,
        {
            "client ids": ("client_id", clients["client_id"].value_counts().index),
            "application": ("application", owned["application"]),
            "owner": ("owner", owned["owner"]),
            "principals": ("principal", clients["principal"].value_counts().index),
            "consumer groups": ("group_id", clients["group_id"].dropna().value_counts().index),
            "versions": ("software", clients["software"].value_counts().index),
            "instances": ("", [f"{len(clients):,}"]),
            "addresses": ("", clients["client_address"].value_counts().index),
        },
        scene.selection,
    )


def missing(what: str, name: str) -> None:
    """Say that a page's subject isn't known in the time range."""
    st.info(plain(f"{what} {name} isn't known in this time range. Widen the range."))
