"""How a page waits for an answer: what takes long says what is asked, and for how long, and can be cancelled."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

import pyarrow as pa
import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from kafka_telemetry_lake.dashboards.answers import Answers, Asked
from kafka_telemetry_lake.dashboards.lake import LakeError
from kafka_telemetry_lake.dashboards.show import plain

ANSWERS = Answers()
CANCEL = "cancel"  # key of the button; page.css shows it while a script has run for a second
ASK_AGAIN = "ask-again"  # begins the keys of the buttons; page.css hides that of an earlier script
_WAITS, _CANCELLED = "question that is waited for", "question that was cancelled"
QUIET_S, LOOK_S, SAID_S = 0.3, 0.2, 1.0


class CancelledError(LakeError):
    """The visitor has cancelled this question; the message says which."""


def answer(key: Hashable, asks: Callable[[], str], ask: Callable[[Asked], pa.Table]) -> pa.Table:
    """The answer to a question, kept under this key.

    Args:
        key: the lake, its versions, the question and its parameters.
        asks: the question in words.

    Raises:
        LakeError: the lake can't be read.
        CancelledError: the visitor has cancelled this question before.
    """
    if (known := ANSWERS.kept(key)) is not None:
        return known
    if get_script_run_ctx(suppress_warning=True) is None:  # of no visitor: see `prepare`
        with ANSWERS.asked(key, ask) as asked:
            asked.done.wait()
        return _given(asked)
    if st.session_state.get(_CANCELLED) == key:
        raise CancelledError(asks())
    st.session_state[_WAITS] = key
    with ANSWERS.asked(key, ask) as asked:
        if not asked.done.wait(QUIET_S):
            _wait(asks(), asked)
    st.session_state.pop(_WAITS, None)
    return _given(asked)


def _given(asked: Asked) -> pa.Table:
    if asked.error is not None:
        raise asked.error
    assert asked.answer is not None
    return asked.answer


def _wait(question: str, asked: Asked) -> None:
    """Wait in steps, between which Streamlit can end this script."""
    place = st.empty()
    while not asked.done.wait(LOOK_S):
        seconds = time.monotonic() - asked.began
        if seconds < SAID_S:
            place.empty()
        else:
            place.info(plain(f"{question} Asked for {seconds:.0f} s."), icon=":material/hourglass_empty:")
    place.empty()


def cancel_button() -> None:
    """A button that ends the question that this page waits for. Outside of fragments, whose clicks wait for its end."""
    st.session_state.pop(_WAITS, None)  # of a script that was ended while it waited
    st.button("Cancel", key=CANCEL, on_click=_cancel, help="End the question that this page waits for.")


def _cancel() -> None:
    st.session_state[_CANCELLED] = st.session_state.pop(_WAITS, None)


def show_cancelled(cancelled: CancelledError, place: str = "page") -> None:
    """Say what was cancelled, and offer to ask it again; once in each place of a page."""
    st.info(plain(f"Cancelled: {cancelled}"), icon=":material/cancel:")
    st.button("Ask again", key=f"{ASK_AGAIN}-{place}", on_click=lambda: st.session_state.pop(_CANCELLED, None))
