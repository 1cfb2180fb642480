"""The librdkafka counterpart of ``TelemetryClient.java``: a client that runs until its standard input ends.

Run as ``python librdkafka.py producer|consumer <properties file>``. It prints the same events; ``stats`` are
librdkafka's own counters (STATISTICS.md). librdkafka's Python API doesn't expose the client instance id.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer

_COUNTERS = ("txmsgs", "txmsg_bytes", "rxmsgs", "rxmsg_bytes", "tx", "rx")


class _Driver:
    def __init__(self, settings: dict[str, str]) -> None:
        self.options = {key: settings.pop(key) for key in list(settings) if key.startswith("driver.")}
        self.properties: dict[str, Any] = {
            **settings,
            "statistics.interval.ms": 200,
            "stats_cb": self._take_stats,
            "error_cb": self._take_error,
        }
        self.closing = threading.Event()
        self.records = 0
        self.failed = 0
        self.error: str | None = None
        self.stats: dict[str, int] = {}
        threading.Thread(target=self._await_end, daemon=True).start()

    def _await_end(self) -> None:
        sys.stdin.buffer.read()
        self.closing.set()

    def _take_stats(self, text: str) -> None:
        stats = json.loads(text)
        self.stats = {key: stats[key] for key in _COUNTERS}
        self.stats["connects"] = sum(broker["connects"] for broker in stats["brokers"].values())

    def _take_error(self, error: KafkaError) -> None:
        self.error = str(error)

    def take_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.records += 1
        else:
            self.failed += 1
            self.error = str(error)

    def report(self, event: str) -> None:
        counts = {"records": self.records, "failed": self.failed, "error": self.error, "stats": self.stats}
        print(json.dumps({"event": event, **counts}), flush=True)


def _produce(driver: _Driver) -> None:
    producer = Producer(driver.properties)
    driver.report("started")
    topic, records = driver.options["driver.topic"], int(driver.options["driver.records"])
    rate, value = float(driver.options["driver.rate"]), bytes(int(driver.options["driver.value_bytes"]))
    sent, begun = 0, time.monotonic()
    while (records < 0 or sent < records) and not driver.closing.is_set():
        try:
            producer.produce(topic, value, on_delivery=driver.take_delivery)
        except BufferError:
            producer.poll(0.1)
            continue
        sent += 1
        producer.poll(0)
        while rate > 0 and (wait := begun + sent / rate - time.monotonic()) > 0 and not driver.closing.is_set():
            producer.poll(wait)  # returns early, after the first delivery report
    while len(producer) and not driver.closing.is_set():
        producer.flush(0.1)
    driver.report("done")
    while not driver.closing.is_set():
        producer.poll(0.1)
    producer.flush(10)
    driver.report("closing")
    producer.close()


def _consume(driver: _Driver) -> None:
    consumer = Consumer(driver.properties)
    driver.report("started")
    consumer.subscribe([driver.options["driver.topic"]])
    wanted = int(driver.options["driver.records"])
    while not driver.closing.is_set():
        before = driver.records
        for message in consumer.consume(500, 0.1):
            if (error := message.error()) is None:
                driver.records += 1
            else:
                driver.error = str(error)
        if before < wanted <= driver.records:
            driver.report("done")
    driver.report("closing")
    consumer.close()


if __name__ == "__main__":
    lines = Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()
    driver = _Driver(dict(line.split("=", 1) for line in lines))
    {"producer": _produce, "consumer": _consume}[sys.argv[1]](driver)
    driver.report("closed")
