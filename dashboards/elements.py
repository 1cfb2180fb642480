"""The dashboard's own elements in the browser: tables whose names are links, navigation, headers, findings.

Each is a Streamlit component of the files in `browser/`: plain JavaScript that sets texts, never HTML.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import streamlit as st

FOLDER = files("kafka_telemetry_lake.dashboards") / "browser"
ROWS = ("table", "foot")  # elements that draw tables


def element(kind: str, data: Mapping[str, Any], key: str | None = None) -> None:
    """Show one of the elements, a file of `browser/`, with its data (JSON)."""
    _component(kind)(data=dict(data), key=key)


@cache
def _component(kind: str) -> Any:
    parts = ("common", "rows", kind) if kind in ROWS else ("common", kind)
    script = "\n".join((FOLDER / f"{name}.js").read_text("utf-8") for name in parts)
    return st.components.v2.component(
        f"telemetry_lake_{kind}", js=script, css=(FOLDER / "style.css").read_text("utf-8")
    )


@cache
def page_style() -> str:
    """CSS for what Streamlit itself draws."""
    return (FOLDER / "page.css").read_text("utf-8")
