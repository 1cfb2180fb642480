"""Starts the client under test: a command, or a client of the sandbox by its name."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_telemetry_lake.sandbox.clients import Client, ClientError, Library, LocalClients
from kafka_telemetry_lake.sandbox.clients.franz_go import franz_go_driver
from kafka_telemetry_lake.sandbox.cluster.process import Process
from kafka_telemetry_lake.udfs.errors import CannotRunError

TOPIC = "conformance"
RACK = "rack-1"
RATE = 20  # records/s of a producer of the sandbox
NAMES = re.compile(
    r"(?P<library>java-(?P<version>3\.9\.1|4\.3\.1|4\.4\.0)|librdkafka|franz-go)(?P<consumer>-consumer)?"
)
NAMES_TEXT = "java-3.9.1, java-4.3.1, java-4.4.0, librdkafka, franz-go, and each with -consumer"
_END_S = 5.0  # until a client that goes on although its standard input has ended gets a signal
_KILL_S = 20.0
_DRAIN_S = 2.0  # for the rest of the output of one that has ended


@dataclass(frozen=True)
class Started:
    """A client that was started.

    Attributes:
        close: tells it to end, and waits for that.
        running: whether it runs.
        code: its exit status, or the negated number of the signal that ended it; None: it isn't known.
        logs: files of what it wrote.
    """

    client_id: str
    close: Callable[[], None]
    running: Callable[[], bool]
    code: Callable[[], int | None]
    logs: Sequence[Path]

    def ended(self) -> str | None:
        """How it ended, with the last line that it wrote; None: it runs."""
        if self.running():
            return None
        texts = (file.read_text(errors="replace") for file in self.logs if file.exists())
        lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
        code = self.code()
        how = "" if code is None else f", exit code {code}"
        return f"{self.client_id} ended by itself{how}: {lines[-1] if lines else 'it wrote nothing'}"


class NoClientError(CannotRunError):
    """What is to be tested is no command, or one that can't know where the brokers are."""


def check(text: str) -> None:
    """Raises ``NoClientError`` for what `start` can't start."""
    if NAMES.fullmatch(text) is not None:
        return
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise NoClientError(f"the command can't be split into words: {error}") from None
    if not words or shutil.which(words[0]) is None:
        raise NoClientError(f"{words[0] if words else 'nothing'} is no command, and none of {NAMES_TEXT}")
    if "{bootstrap}" not in text:
        raise NoClientError("the command has no {bootstrap}, in whose place the address of the brokers comes")


def start(text: str, clients: LocalClients, client_id: str, bootstrap_servers: str, folder: Path) -> Started:
    """Starts a client.

    Args:
        text: a command with ``{bootstrap}`` in it, and perhaps ``{topic}`` and ``{client_id}``; or one of the names
            ``java-VERSION``, ``librdkafka`` and ``franz-go``, which are producers, or consumers with ``-consumer``
            after it.
        clients: of a cluster, over the same bootstrap servers.
        folder: of a command's log.

    Raises:
        ClientUnavailableError: a named client isn't installed.
        NoClientError: the command's file is no program.
    """
    if (named := NAMES.fullmatch(text)) is not None:
        client = _named(named, clients, client_id)
        return Started(client_id, lambda: _close(client), lambda: client.running, lambda: None, [client.log])
    places = {"bootstrap": bootstrap_servers, "topic": TOPIC, "client_id": client_id}
    words = [_filled(word, places) for word in shlex.split(text)]
    log, output = folder / f"{client_id}.log", folder / f"{client_id}.out"
    try:
        process = Process(words, log, pipes=True)
    except OSError as error:
        raise NoClientError(f"{words[0]} can't be started: {error}") from None
    drain = threading.Thread(target=_drain, args=(process, output), daemon=True)
    drain.start()

    def running() -> bool:
        if process.running:
            return True
        drain.join(_DRAIN_S)  # so that its last words are there
        return False

    return Started(client_id, lambda: _end(process), running, lambda: process.returncode, [output, log])


def _filled(word: str, places: dict[str, str]) -> str:
    for name, value in places.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def _named(named: re.Match[str], clients: LocalClients, client_id: str) -> Client:
    role = "consumer" if named["consumer"] else "producer"
    if named["library"] == "franz-go":
        settings = {
            "driver.topic": TOPIC, "driver.records": 0 if named["consumer"] else -1, "driver.rate": RATE,
            "driver.value_bytes": 100, "group.id": client_id,
        }  # fmt: skip
        return clients.start(client_id, [franz_go_driver(), role], settings)
    library: Library = "java" if named["version"] else "librdkafka"
    version = named["version"] or "4.3.1"  # which a client of librdkafka ignores
    rack = {"client.rack": RACK}
    if named["consumer"]:
        return clients.consumer(library, TOPIC, client_id, group=client_id, properties=rack, version=version)
    return clients.producer(library, TOPIC, client_id, rate=RATE, properties=rack, version=version)


def _close(client: Client) -> None:
    try:
        client.close(_KILL_S)
    except ClientError:  # it couldn't, without its cluster
        client.kill()


def _drain(process: Process, file: Path) -> None:
    with contextlib.suppress(ValueError), file.open("wb") as output:  # it was killed, which closes the pipe
        shutil.copyfileobj(process.stdout, output)


def _end(process: Process) -> None:
    with contextlib.suppress(OSError):
        process.stdin.close()
    if not process.wait(_END_S):
        process.stop(_KILL_S)
