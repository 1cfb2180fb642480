"""The load of `benchmarks.proxy`: connections that push, in a process of their own, and timed produce and fetch."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from confluent_kafka import Producer

from tests.support.telemetry_request import RawClient

PUSHES_PER_S = 300
PUSH_BYTES = 2000
RECORDS_PER_S = 200  # produced, and as many fetches
TOPIC = "work"
FETCHED_BYTES = 4096
_OTHER_FILES = 800  # a broker's and a proxy's own: jars, segments of logs, their other connections


def most_connections() -> int:
    """How many one process can have of which each needs two sockets, as in a proxy. Lets processes have as many."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return (most - _OTHER_FILES) // 2


def before_others(pids: Iterable[int]) -> None:
    """The machine's other work waits for these processes, where that is allowed: they get a real-time priority."""
    with contextlib.suppress(PermissionError):
        for pid in pids:
            for task in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setscheduler(int(task.name), os.SCHED_RR, os.sched_param(5))


def interval_ms(clients: int) -> int:
    """At which so many clients push 300 times a second."""
    return 1000 * clients // PUSHES_PER_S


class Connections:
    """A context manager with client instances, each on a connection of its own. They push only inside ``pushing``.

    Args:
        port: of a broker or proxy at 127.0.0.1.
        asking: whether they ask for a subscription, without which they can't push.
    """

    def __init__(self, port: int, count: int, *, asking: bool) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._count, self._ready, self._pushing, self._ending = count, *(spawning.Event() for _ in range(3))
        self._answers = spawning.Array("q", 2)  # taken, refused
        arguments = (port, count, asking, self._ready, self._pushing, self._ending, self._answers)
        self._process = spawning.Process(target=_connect_and_push, args=arguments)

    def __enter__(self) -> Self:
        self._process.start()
        while not self._ready.wait(1):
            if not self._process.is_alive():
                raise RuntimeError(f"not all of {self._count} connections came up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._process.join()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def taken(self) -> int:
        return int(self._answers[0])

    @property
    def refused(self) -> int:
        return int(self._answers[1])

    @contextmanager
    def pushing(self) -> Iterator[None]:
        """All push in turn, 300 a second together."""
        self._pushing.set()
        try:
            yield
        finally:
            self._pushing.clear()


def _connect_and_push(
    port: int, count: int, asking: bool, ready: Any, pushing: Any, ending: Any, answers: Any
) -> None:  # fmt: skip
    clients = [RawClient(port, f"telemetry-{number}") for number in range(count)]
    subscribed = [client.subscribed() for client in clients] if asking else []
    ready.set()
    payload, number = os.urandom(PUSH_BYTES), 0
    while not ending.is_set():
        if not pushing.wait(0.1):
            continue
        due = time.monotonic()
        while pushing.is_set():
            answers[clients[number].push(subscribed[number], payload) != 0] += 1
            number = (number + 1) % count
            due = max(due + 1.03 / PUSHES_PER_S, time.monotonic())  # late: hardly one is early
            time.sleep(max(0.0, due - time.monotonic()))


def latencies_ms(port: int, seconds: float) -> dict[str, np.ndarray]:
    """``produce``: from each record to its leader's acknowledgement; ``fetch``: of 4 KB that are there. Milliseconds.

    Both at once, 200 a second of each. The first second is left out.
    """
    fetches: list[float] = []
    fetcher = threading.Thread(target=_fetch, args=(port, seconds, fetches))
    fetcher.start()
    produced = produce(port, seconds)
    fetcher.join()
    return {name: 1000 * np.array(took[RECORDS_PER_S:]) for name, took in (("produce", produced), ("fetch", fetches))}


def produce(port: int, seconds: float) -> list[float]:
    """Seconds from each record to its acknowledgement."""
    settings = {"bootstrap.servers": f"127.0.0.1:{port}", "acks": "1", "linger.ms": 0, "enable.metrics.push": False}
    producer, took = Producer(settings), list[float]()
    begun = time.perf_counter()
    for number in range(int(seconds * RECORDS_PER_S)):
        sent = time.perf_counter()
        producer.produce(TOPIC, b"x" * 200, on_delivery=lambda *_, sent=sent: took.append(time.perf_counter() - sent))
        while time.perf_counter() < begun + (number + 1) / RECORDS_PER_S:
            producer.poll(0.002)
    producer.flush(30)
    return took


def _fetch(port: int, seconds: float, took: list[float]) -> None:
    request = fetch_request(TOPIC)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection, connection.makefile("rb") as answers:
        begun = time.perf_counter()
        for number in range(int(seconds * RECORDS_PER_S)):
            sent = time.perf_counter()
            connection.sendall(request)
            answer = answers.read(struct.unpack(">i", answers.read(4))[0])
            took.append(time.perf_counter() - sent)
            assert fetched_bytes(answer, TOPIC) > 0
            time.sleep(max(0.0, begun + (number + 1) / RECORDS_PER_S - time.perf_counter()))


def fetch_request(topic: str) -> bytes:
    """Fetch version 4 of a topic's first partition from its beginning, which waits for nothing."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    body = struct.pack(">iiiib", -1, 0, 1, 1 << 20, 0) + struct.pack(">i", 1) + name
    body += struct.pack(">iiqi", 1, 0, 0, FETCHED_BYTES)
    request = struct.pack(">hhih", 1, 4, 7, 5) + b"fetch" + body
    return struct.pack(">i", len(request)) + request


def fetched_bytes(answer: bytes, topic: str) -> int:
    """The bytes of the records in an answer to ``fetch_request``."""
    error, _, _, aborted = struct.unpack_from(">hqqi", answer, 4 + 4 + 4 + 2 + len(topic) + 4 + 4)
    assert (error, max(aborted, 0)) == (0, 0)
    (size,) = struct.unpack_from(">i", answer, 4 + 4 + 4 + 2 + len(topic) + 4 + 4 + 22)
    return int(size)
