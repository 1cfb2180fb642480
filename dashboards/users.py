"""Who looks at the pages: a proxy that authenticates says so in a header. Without one nobody is known."""

from __future__ import annotations

import os

import streamlit as st

from kafka_telemetry_lake.pipelines.query.printable import printable

HEADER = "TELEMETRY_LAKE_USER_HEADER"
MOST_CHARACTERS = 200


def login_required() -> bool:
    """Whether `telemetry-lake dashboard` was started with --user-header."""
    return bool(os.environ.get(HEADER))


def user() -> str | None:
    """The user that the proxy names; None: no header is expected, or it is missing."""
    name = st.context.headers.get(os.environ[HEADER]) if login_required() else None
    return printable(name.strip())[:MOST_CHARACTERS] or None if name else None
