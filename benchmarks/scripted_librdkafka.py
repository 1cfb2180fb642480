"""The librdkafka counterpart of ``ScriptedClients.java``: it reads the same scripts.

Run as ``python scripted_librdkafka.py <properties file>``, whose ``driver.scripts`` names the file of scripts.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

BEGIN = time.monotonic()
Script = dict[str, Any]


def main(file: str) -> None:
    settings = dict(line.split("=", 1) for line in Path(file).read_text("utf-8").splitlines())
    for script in json.loads(Path(settings["driver.scripts"]).read_text("utf-8")):
        threading.Thread(target=_follow, args=(script,), daemon=True).start()
    print(json.dumps({"event": "started"}), flush=True)
    sys.stdin.buffer.read()
    print(json.dumps({"event": "closed"}), flush=True)
    os._exit(0)  # to flush a throttled producer takes as long as its records do


def _follow(script: Script) -> None:
    time.sleep(script.get("start_ms", 0) / 1000)
    for _ in range(script.get("lives", 1)):
        end = time.monotonic() + script["life_ms"] / 1000 if "life_ms" in script else float("inf")
        (_produce if script["kind"] == "producer" else _consume)(script, end)


def _produce(script: Script, end: float) -> None:
    producer = Producer(script["settings"])
    size, topics, sent = script.get("bytes", 100), script["topics"], 0
    while time.monotonic() < end:
        for _ in range(script.get("burst", 1)):
            value = random.randbytes(size) if script.get("random") else bytes(size)
            with contextlib.suppress(BufferError):  # as an application that ignores it
                producer.produce(topics[sent % len(topics)], value)
            sent += 1
            if script.get("sync"):
                producer.flush()
        producer.poll(0)
        _rest(script, script.get("pause_ms", 0))
    producer.flush()


def _consume(script: Script, end: float) -> None:
    consumer = Consumer({"auto.offset.reset": "earliest", **script["settings"]})
    # With a callback a member takes part in a rebalance only when it polls, as Java's does.
    consumer.subscribe(script["topics"], on_revoke=lambda *_: None)
    while time.monotonic() < end:
        records = consumer.consume(script.get("max_poll_records", 500), 0.1)
        if script.get("commit_each_poll"):
            with contextlib.suppress(KafkaException):  # nothing to commit
                consumer.commit(asynchronous=False)
        _rest(script, script.get("pause_ms", 0) if records else 0)
    consumer.close()


def _rest(script: Script, milliseconds: float) -> None:
    time.sleep(milliseconds / 1000)
    if "sleep_ms" in script and time.monotonic() - BEGIN >= script["sleep_ms"][0] / 1000:
        time.sleep(script.pop("sleep_ms")[1] / 1000)


if __name__ == "__main__":
    main(sys.argv[1])
