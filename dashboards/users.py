"""Who looks at the pages: a proxy says so in a header, or a login with OpenID Connect; else nobody is known."""

from __future__ import annotations

import os

import streamlit as st

from kafka_telemetry_lake.pipelines.query.printable import printable

HEADER = "TELEMETRY_LAKE_USER_HEADER"
LOGIN = "TELEMETRY_LAKE_LOGIN"
MOST_CHARACTERS = 200
CLAIMS = ("email", "preferred_username", "name", "sub")  # of who has logged in: the first there is


def login_required() -> bool:
    """Whether `telemetry-lake dashboard` was started with --user-header or --login-file."""
    return bool(os.environ.get(HEADER)) or logs_in()


def logs_in() -> bool:
    """Whether people log in here, by the provider of --login-file."""
    return os.environ.get(LOGIN) == "1"


def user() -> str | None:
    """The user that the proxy names or that has logged in; None: nobody is expected, or nobody is known yet."""
    if logs_in():
        name = next(filter(None, map(st.user.get, CLAIMS)), None) if st.user.is_logged_in else None
    else:
        name = st.context.headers.get(os.environ[HEADER]) if login_required() else None
    return printable(str(name).strip())[:MOST_CHARACTERS] or None if name else None


def ask_to_log_in() -> None:
    """Say that nothing is shown without a login, and offer it."""
    if logs_in():
        st.info("Please log in: this dashboard shows nothing to who isn't known.")
        st.button("Log in", type="primary", on_click=st.login)
    else:
        st.error("Please log in: this dashboard is to be opened through its proxy.")


def offer_to_log_out() -> None:
    """Say who has logged in here, and offer to end that."""
    if logs_in():
        st.caption("Logged in as")
        st.text(user() or "")
        st.button("Log out", on_click=st.logout)
