"""The tables that a page of the dashboard shows."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import pandas as pd
import pytest


class ShownTable(NamedTuple):
    rows: pd.DataFrame | None
    columns: dict[str, str]
    note: str
    none: str


def note_tables(monkeypatch: pytest.MonkeyPatch, screen: ModuleType) -> dict[str, ShownTable]:
    """The tables that a screen shows from now on, by their title; a dict that grows."""
    shown = dict[str, ShownTable]()

    def table(rows: Any, columns: dict[str, str], title: str, note: str = "", none: str = "") -> None:
        assert rows is None or set(columns) <= set(rows.columns)
        shown[title] = ShownTable(rows, columns, note, none)

    monkeypatch.setattr(screen, "table", table)
    if hasattr(screen, "every_column"):
        monkeypatch.setattr(screen, "every_column", lambda rows, *texts: table(rows, {}, *texts))
    return shown
