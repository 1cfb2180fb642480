"""Runs what follows a table in a thread next to the job's streams, monitored and stopped like a Spark query."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping


class FollowerThread:
    """Follows a table until it is stopped; then it processes the remaining rows and ends.

    Args:
        catch_up: processes everything that is in the table.
        pause_s: seconds to wait between two steps.
        step: what it does until it is stopped; by default it catches up each time.
    """

    def __init__(
        self, name: str, catch_up: Callable[[], None], pause_s: float, step: Callable[[], None] | None = None
    ) -> None:
        self.name = name
        self._catch_up, self._pause_s, self._step = catch_up, pause_s, step or catch_up
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def isActive(self) -> bool:  # noqa: N802  # as StreamingQuery has it
        return self._thread.is_alive()

    @property
    def status(self) -> Mapping[str, bool]:
        return {"isTriggerActive": False}  # `stop` itself waits for the step

    def exception(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._step()
            while not self._stop.wait(self._pause_s):
                self._step()
            self._catch_up()
        except Exception as error:  # the job reports it, whatever it is
            self._error = error
