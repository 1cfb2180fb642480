"""What the filter in a proxy costs: CPU of the proxy per push, and latency of produce beside 300 pushes a second.

    python -m benchmarks.proxy
    python -m benchmarks.proxy --kills 20    # what kills and restarts of proxies lose: benchmarks/proxy_kills.py

Produce goes to the broker alone, through a proxy whose filter has no configuration, and through one that receives. Each
is measured for 15 seconds, three times in turn, and the round with the median of its 99th percentiles counts: the
machine's other work is in the others. The CPU of a push is what the proxy takes beyond the same produce without pushes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from confluent_kafka import Producer

from benchmarks.proxy_kills import measure_kills
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.kroxylicious import TelemetryProxy, filter_config, subscriptions_file
from tests.support.telemetry_request import RawClient

SECONDS, ROUNDS = 15, 3
PRODUCED_PER_S = 100
CLIENTS, CONNECTIONS, INTERVAL_MS = 30, 4, 100  # 300 pushes a second
PUSH_BYTES = 2000


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def latencies_ms(servers: str, seconds: float) -> np.ndarray:
    """From each produce to its acknowledgement by the leader; the first second is left out."""
    settings = {"bootstrap.servers": servers, "acks": "1", "linger.ms": 0, "enable.metrics.push": False}
    producer, took = Producer(settings), []
    begun = time.perf_counter()
    for number in range(int(seconds * PRODUCED_PER_S)):
        sent = time.perf_counter()
        producer.produce("work", b"x" * 200, on_delivery=lambda *_, sent=sent: took.append(time.perf_counter() - sent))
        while time.perf_counter() < begun + (number + 1) / PRODUCED_PER_S:
            producer.poll(0.002)
    producer.flush(30)
    return 1000 * np.array(took[PRODUCED_PER_S:])


class Pushers:
    """A context manager: client instances that push random bytes each interval, over a few connections."""

    def __init__(self, port: int) -> None:
        self.taken = self.refused = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(port,))

    def __enter__(self) -> Pushers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self, port: int) -> None:
        connections = [RawClient(port, f"telemetry-{number}") for number in range(CONNECTIONS)]
        clients = [(connections[n % CONNECTIONS], connections[n % CONNECTIONS].subscribed()) for n in range(CLIENTS)]
        payload, due = os.urandom(PUSH_BYTES), time.monotonic()
        while not self._ending.is_set():
            for connection, subscribed in clients:
                taken = connection.push(subscribed, payload) == 0
                self.taken, self.refused = self.taken + taken, self.refused + (not taken)
                due += 1.03 * INTERVAL_MS / 1000 / CLIENTS  # a little late: none is throttled
                time.sleep(max(0.0, due - time.monotonic()))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proxy")
    parser.add_argument("--kills", type=int, default=0, help="kill proxies so often, then restart them so often")
    if kills := parser.parse_args().kills:
        measure_kills(kills)
    else:
        measure_cost()


def measure_cost() -> None:
    with LocalCluster() as cluster, tempfile.TemporaryDirectory() as scratch:
        cluster.create_topic("work")
        folder, servers = Path(scratch), cluster.bootstrap_servers
        file = subscriptions_file(
            folder / "all.yml", [{"name": "all", "metrics": ["*"], "interval_ms": INTERVAL_MS, "match": {}}]
        )
        config = filter_config(servers, file, require_sasl=False)
        with TelemetryProxy(folder / "off", servers, None) as off, TelemetryProxy(folder / "on", servers, config) as on:
            with Pushers(on.bootstrap_port):  # compiled code, as after minutes of work
                for proxy in (off, on):
                    latencies_ms(proxy.bootstrap_servers, 2 * SECONDS)
            rounds: dict[str, list[np.ndarray]] = {}
            cpu_per_push = []
            for _ in range(ROUNDS):
                for name, where in (("broker alone", servers), ("proxy", off.bootstrap_servers)):
                    rounds.setdefault(name, []).append(latencies_ms(where, SECONDS))
                before = cpu_s(on.pid)
                rounds.setdefault("proxy with filter", []).append(latencies_ms(on.bootstrap_servers, SECONDS))
                without = cpu_s(on.pid) - before
                with Pushers(on.bootstrap_port) as pushers:
                    time.sleep(1)
                    before, taken = cpu_s(on.pid), pushers.taken
                    rounds.setdefault("and pushes", []).append(latencies_ms(on.bootstrap_servers, SECONDS))
                    cpu_per_push.append(1000 * (cpu_s(on.pid) - before - without) / (pushers.taken - taken))
                print(f"{pushers.taken} pushes taken, {pushers.refused} refused")
        (closed,) = [line for line in on.log().splitlines() if "receiver closed" in line]
        print(closed.split("closed: ")[1])
    for name, all_ in rounds.items():
        took = sorted(all_, key=lambda each: float(np.percentile(each, 99)))[ROUNDS // 2]
        middle, most = np.percentile(took, [50, 99])
        print(f"{name:20} produce median {middle:5.2f} ms, 99 % {most:6.2f} ms")
    each_round = ", ".join(f"{each:.2f}" for each in cpu_per_push)
    print(f"CPU of a push {sorted(cpu_per_push)[ROUNDS // 2]:.2f} ms ({each_round})")


if __name__ == "__main__":
    main()
