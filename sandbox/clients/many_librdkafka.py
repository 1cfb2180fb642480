"""The librdkafka counterpart of ``ManyClients.java``: many clients in one process.

Run as ``python many_librdkafka.py <properties file>``. librdkafka's debug lines go to stderr and contain the client id.
The first ``driver.none`` clients of each kind never rebootstrap; their client ids contain ``none``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

STRATEGY = "metadata.recovery.strategy"


def main(file: str) -> None:
    settings: dict[str, str] = dict(line.split("=", 1) for line in Path(file).read_text("utf-8").splitlines())
    options = {key: settings.pop(key) for key in list(settings) if key.startswith("driver.")}
    topic = options["driver.topic"]
    closing = threading.Event()
    threading.Thread(target=_await_end, args=(closing,), daemon=True).start()
    none = int(options["driver.none"])
    producers = []
    for i in range(int(options["driver.producers"])):
        own = _named(settings, "producer", i, none)
        producers.append(Producer(own, logger=_logger(own["client.id"])))
    consumers = []
    for i in range(int(options["driver.consumers"])):
        own = _named(settings, "consumer", i, none)
        consumers.append(Consumer({**own, "group.id": own["client.id"]}, logger=_logger(own["client.id"])))
        consumers[i].subscribe([topic])
    _report("started")
    turn = 0
    while not closing.wait(0.2):
        for i, producer in enumerate(producers):
            producer.poll(0)
            if i % 3 != 2 or turn % 10 == 0:
                with contextlib.suppress(BufferError):  # the buffer is full while the broker is unreachable
                    producer.produce(topic, bytes(100))
        for consumer in consumers:
            consumer.consume(500, 0)
        turn += 1
    _report("closing")
    for consumer in consumers:
        consumer.close()
    _report("closed")


def _await_end(closing: threading.Event) -> None:
    sys.stdin.buffer.read()
    closing.set()


def _named(settings: dict[str, str], kind: str, number: int, none: int) -> dict[str, Any]:
    if number < none:
        return {**settings, "client.id": f"{settings['client.id']}-none-{kind}-{number}", STRATEGY: "none"}
    return {**settings, "client.id": f"{settings['client.id']}-{kind}-{number}"}


def _logger(name: str) -> logging.Logger:
    logger = logging.getLogger(name)
    logger.setLevel(logging.DEBUG)
    return logger


def _report(event: str) -> None:
    print(json.dumps({"event": event}), flush=True)


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(name)s %(message)s", level=logging.WARNING)
    main(sys.argv[1])
