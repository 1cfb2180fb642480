"""Answers of a lake, shared by all who look: nobody asks what somebody else is asking, and nobody's question runs on.

A question runs in a thread of its own, while the page's script waits for it, and says what is asked and for how long.
If a visitor leaves the page, changes what it shows or cancels it, Streamlit ends the script, and with the last script
that waits for a question the question ends.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Protocol

import pyarrow as pa
import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from kafka_telemetry_lake.dashboards.show import page_state, plain
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

MOST_BYTES = 512 << 20  # of kept answers
AGAIN_S = 0.05  # an interrupt before the query has begun has no effect


class LakeError(TelemetryLakeError):
    """The lake can't be read; the message says what the user can do."""


class Interruptible(Protocol):
    """What a question runs on, such as a cursor of DuckDB."""

    def interrupt(self) -> None: ...


class EndedError(TelemetryLakeError):
    """Nobody waits for the answer any more."""


class Asked:
    """A question that is running, or has an answer."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.waiting = 0
        self.done = threading.Event()
        self.answer: pa.Table | None = None
        self.error: BaseException | None = None
        self._ended = threading.Event()
        self._runs_on: Interruptible | None = None

    def runs_on(self, cursor: Interruptible) -> None:
        """Say what the question runs on, before it does.

        Raises:
            EndedError: nobody waits for it.
        """
        self._runs_on = cursor
        if self._ended.is_set():
            raise EndedError

    def end(self) -> None:
        """Interrupt the question, until it has ended."""
        self._ended.set()
        threading.Thread(target=self._interrupt, daemon=True).start()

    @property
    def is_ended(self) -> bool:
        return self._ended.is_set()

    def _interrupt(self) -> None:
        while not self.done.wait(AGAIN_S):
            if self._runs_on is not None:
                self._runs_on.interrupt()


class Answers:
    """Keeps answers by key, those that were asked for last. Safe for use by many threads."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes, self._bytes = most_bytes, 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, pa.Table] = OrderedDict()
        self._running: dict[Hashable, Asked] = {}

    def kept(self, key: Hashable) -> pa.Table | None:
        """The answer, if it is known."""
        with self._lock:
            if (answer := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
            return answer

    @contextmanager
    def asked(self, key: Hashable, ask: Callable[[Asked], pa.Table]) -> Iterator[Asked]:
        """Ask, unless somebody else does already; the question ends when all who asked have left the context."""
        with self._lock:
            running = self._running.get(key)
            if running is None or running.is_ended:
                running = self._running[key] = Asked()
                threading.Thread(target=self._run, args=(key, running, ask), daemon=True).start()
            running.waiting += 1
        try:
            yield running
        finally:
            with self._lock:
                running.waiting -= 1
                if not running.waiting and not running.done.is_set():
                    running.end()

    def _run(self, key: Hashable, running: Asked, ask: Callable[[Asked], pa.Table]) -> None:
        try:
            running.answer = ask(running)
        except BaseException as error:  # whoever waits raises it
            running.error = error
        with self._lock:
            if self._running.get(key) is running:
                del self._running[key]
            if running.answer is not None and key not in self._kept:
                self._keep(key, running.answer)
        running.done.set()

    def _keep(self, key: Hashable, answer: pa.Table) -> None:
        self._kept[key] = answer
        self._bytes += answer.nbytes
        while self._bytes > self._most_bytes and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.nbytes


ANSWERS = Answers()
CANCEL = "cancel"  # key of the button; page.css shows it while a script has run for a second
ASK_AGAIN = "ask-again"  # begins the keys of the buttons; page.css hides that of an earlier script
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
    if page_state().cancelled == key:
        raise CancelledError(asks())
    page_state().waits_for = key
    with ANSWERS.asked(key, ask) as asked:
        if not asked.done.wait(QUIET_S):
            _wait(asks(), asked)
    page_state().waits_for = None
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
    page_state().waits_for = None  # of a script that was ended while it waited
    st.button("Cancel", key=CANCEL, on_click=_cancel, help="End the question that this page waits for.")


def _cancel() -> None:
    state = page_state()
    state.cancelled, state.waits_for = state.waits_for, None


def show_cancelled(cancelled: CancelledError, place: str = "page") -> None:
    """Say what was cancelled, and offer to ask it again; once in each place of a page."""
    st.info(plain(f"Cancelled: {cancelled}"), icon=":material/cancel:")
    st.button("Ask again", key=f"{ASK_AGAIN}-{place}", on_click=_ask_again)


def _ask_again() -> None:
    page_state().cancelled = None
