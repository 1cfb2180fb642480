"""One real Kafka client as a process."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kafka_telemetry_lake.sandbox.cluster.process import Process
from kafka_telemetry_lake.sandbox.patience import PATIENCE_S
from kafka_telemetry_lake.udfs.errors import CannotRunError


class ClientError(CannotRunError):
    """A client exited or didn't report an expected event in time; the message contains the end of its log."""


class Client:
    """A client process that prints events as JSON objects, one per line, and closes normally when its stdin ends.

    ``settings`` are written to a properties file, whose path is the command's last argument.
    """

    def __init__(
        self, client_id: str, command: Sequence[str | Path], settings: Mapping[str, object], log: Path
    ) -> None:
        self.client_id = client_id
        self.log = log
        file = log.with_suffix(".properties")
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        self._process = Process([*command, file], log, pipes=True)
        self._events: dict[str, dict[str, Any]] = {}
        self._changed = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(ValueError):  # the client was killed, which closes the pipe
            for line in self._process.stdout:
                if not line.startswith(b"{"):
                    continue  # JVM warnings go to stdout too
                event = json.loads(line)
                with self._changed:
                    self._events[event["event"]] = event
                    self._changed.notify_all()
        with self._changed:
            self._events.setdefault("", {})
            self._changed.notify_all()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.running

    def wait_for(self, event: str, limit: float = PATIENCE_S) -> dict[str, Any]:
        """Waits for ``started``, ``done``, ``closing`` or ``closed`` and returns it. Raises ``ClientError``."""
        deadline = time.monotonic() + limit
        with self._changed:
            while event not in self._events:
                if "" in self._events:
                    raise ClientError(f"{self.client_id} ended without {event!r}:\n{self._log_tail()}")
                if not self._changed.wait(deadline - time.monotonic()):
                    raise ClientError(f"{self.client_id}: no {event!r} in {limit:.0f} s:\n{self._log_tail()}")
            return self._events[event]

    @property
    def client_instance_id(self) -> str | None:
        """Waits until the client has reported it; None if its library doesn't expose it or telemetry is off."""
        instance_id: str | None = self.wait_for("started").get("client_instance_id")
        return instance_id

    def close(self, limit: float = PATIENCE_S) -> dict[str, Any]:
        """Closes the client normally and returns its own counts from just before that. Raises ``ClientError``.

        Keys are ``records``, ``failed`` and ``error`` (the last error's text). Java adds ``sums``, a list of
        {metric, attributes, value} under KIP-714's names, with client_id; librdkafka adds ``stats``.
        """
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self.wait_for("closed", limit)
        if not self._process.wait(limit):
            raise ClientError(f"{self.client_id} didn't end in {limit:.0f} s:\n{self._log_tail()}")
        return self.wait_for("closing")

    def kill(self) -> None:
        """SIGKILL: the client has no time for a terminating push."""
        self._process.kill()

    def pause(self) -> None:
        """SIGSTOP, until ``resume``: the client is silent, but its connections stay open."""
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    def _log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])
