"""Starts the client under test: a command, or a client of the sandbox by its name."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import threading
from collections.abc import Callable
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

Close = Callable[[], None]


class NoClientError(CannotRunError):
    """What is to be tested is no command, or one that can't know where the brokers are."""


def check(text: str) -> None:
    """Raises ``NoClientError`` for what `start` can't start."""
    if NAMES.fullmatch(text) is not None:
        return
    words = shlex.split(text)
    if not words or shutil.which(words[0]) is None:
        raise NoClientError(f"{words[0] if words else 'nothing'} is no command, and none of {NAMES_TEXT}")
    if "{bootstrap}" not in text:
        raise NoClientError("the command has no {bootstrap}, in whose place the address of the brokers comes")


def start(text: str, clients: LocalClients, client_id: str, bootstrap_servers: str, folder: Path) -> Close:
    """Starts a client and returns what ends it, and waits for that.

    Args:
        text: a command with ``{bootstrap}`` in it, and perhaps ``{topic}`` and ``{client_id}``; or one of the names
            ``java-VERSION``, ``librdkafka`` and ``franz-go``, which are producers, or consumers with ``-consumer``
            after it.
        clients: of a cluster, over the same bootstrap servers.
        folder: of a command's log.

    Raises:
        ClientUnavailableError: a named client isn't installed.
    """
    if (named := NAMES.fullmatch(text)) is not None:
        client = _named(named, clients, client_id)
        return lambda: _close(client)
    places = {"bootstrap": bootstrap_servers, "topic": TOPIC, "client_id": client_id}
    words = [_filled(word, places) for word in shlex.split(text)]
    process = Process(words, folder / f"{client_id}.log", pipes=True)
    threading.Thread(target=_drain, args=(process, folder / f"{client_id}.out"), daemon=True).start()
    return lambda: _end(process)


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
