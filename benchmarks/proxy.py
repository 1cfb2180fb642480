"""What the filter in a proxy costs: CPU per push, memory, and latency of produce and fetch beside 300 pushes a second.

    python -m benchmarks.proxy                         # 30 clients that push each 0.1 s
    python -m benchmarks.proxy --connections 10000     # 10,000 that push each 33 s, or as many as may be open
    python -m benchmarks.proxy --kills 20    # what kills and restarts of proxies lose: benchmarks/proxy_kills.py

Produce and fetch go to the broker alone, through a proxy whose filter has no configuration, through one that receives
and gets no push, and through the same while clients push. Both proxies have the same number of clients' connections all
the time. Each place is measured for 8 seconds, seven times in turn; the median of its seven percentiles counts. Broker,
proxies and clients have a real-time priority, where that is allowed. The CPU of a push is what the proxy takes beyond
the same produce and fetch without pushes.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks.figures import print_figures
from benchmarks.proxy_kills import CLOSED, measure_kills
from benchmarks.proxy_load import (
    TOPIC,
    Connections,
    before_others,
    interval_ms,
    latencies_ms,
    most_connections,
    produce,
)
from kafka_telemetry_lake.pipelines.runtime.java import java_program
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.kroxylicious import TelemetryProxy, filter_config, subscriptions_file

SECONDS, ROUNDS = 8.0, 7
BROKER_HEAP_MB = 1024
JVM = ("-Xmx1g", "-XX:TieredStopAtLevel=4")  # of the proxies: compiled as where they run long
PLACES = ("broker", "proxy", "filter", "pushes")
Turn = dict[str, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proxy")
    parser.add_argument("--connections", type=int, default=30, help="clients, each with a connection to each proxy")
    parser.add_argument("--kills", type=int, default=0, help="kill proxies so often, then restart them so often")
    arguments = parser.parse_args()
    if arguments.kills:
        measure_kills(arguments.kills)
    else:
        figures = measure_cost(min(arguments.connections, most_connections()))
        print_figures({f"proxy_{arguments.connections}_{name}": value for name, value in figures.items()})


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    (kilobytes,) = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(kilobytes) / 1024


def heap_mb(pid: int) -> float:
    """What a JVM with the serial collector has on its heap after a full collection."""
    jcmd = [java_program("jcmd"), str(pid)]
    subprocess.run([*jcmd, "GC.run"], capture_output=True, check=True)
    said = subprocess.run([*jcmd, "GC.heap_info"], capture_output=True, text=True, check=True).stdout
    return sum(int(used) for used in re.findall(r"generation .*used (\d+)K", said)) / 1024


def measure_cost(clients: int) -> dict[str, float]:
    with ExitStack() as stack:
        properties = {"connections.max.idle.ms": 3_600_000}
        cluster = stack.enter_context(LocalCluster(properties=properties, heap_mb=BROKER_HEAP_MB))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster.create_topic(TOPIC)
        servers, each_ms = cluster.bootstrap_servers, interval_ms(clients)
        everything = {"name": "all", "metrics": ["*"], "interval_ms": each_ms, "match": {}}
        config = filter_config(servers, subscriptions_file(folder / "all.yml", [everything]), require_sasl=False)
        off = stack.enter_context(TelemetryProxy(folder / "off", servers, None, options=JVM))
        on = stack.enter_context(TelemetryProxy(folder / "on", servers, config, options=JVM))
        with (
            Connections(off.bootstrap_port, clients, asking=False),
            Connections(on.bootstrap_port, clients, asking=True) as connections,
        ):
            broker = cluster.broker(1)
            assert broker.pid is not None
            before_others((os.getpid(), broker.pid, off.pid, on.pid, connections.pid))
            figures = _measure(int(servers.rpartition(":")[2]), off, on, connections)
            time.sleep(2)  # until all has landed
            # Who closes a connection keeps its port for a minute: the broker has one, proxies had one for each.
            broker.stop()
        figures["connections"] = clients
        on.stop()
        ((received, landed),) = CLOSED.findall(on.log())
        figures |= {"pushes_taken": connections.taken, "pushes_refused": connections.refused}
        figures |= {"pushes_received": int(received), "pushes_landed": int(landed)}
    return figures


def _measure(broker_port: int, off: TelemetryProxy, on: TelemetryProxy, connections: Connections) -> dict[str, float]:
    ports = dict(zip(PLACES, (broker_port, off.bootstrap_port, on.bootstrap_port, on.bootstrap_port), strict=True))
    produce(broker_port, 1)  # what is fetched
    with connections.pushing():  # compiled code, as after minutes of work
        for name in ("broker", "proxy", "pushes"):
            latencies_ms(ports[name], 2 * SECONDS)
    turns: dict[str, list[Turn]] = {name: [] for name in PLACES}
    shares: dict[str, list[float]] = {name: [] for name in PLACES[1:]}  # of a core
    cpu_ms_per_push, pushes_per_s = [], []
    for number in range(ROUNDS):
        for name in PLACES[number % 4 :] + PLACES[: number % 4]:
            with ExitStack() as stack:
                if name == "pushes":
                    stack.enter_context(connections.pushing())
                    time.sleep(1)
                proxy, taken = off if name == "proxy" else on, connections.taken
                begun, before = time.monotonic(), cpu_s(proxy.pid)
                turns[name].append(latencies_ms(ports[name], SECONDS))
                if name != "broker":
                    shares[name].append((cpu_s(proxy.pid) - before) / (time.monotonic() - begun))
                if name == "pushes":
                    per_s = (connections.taken - taken) / (time.monotonic() - begun)
        pushes_per_s.append(per_s)
        cpu_ms_per_push.append(1000 * (shares["pushes"][-1] - shares["filter"][-1]) / per_s)
    print(f"CPU of a push in each round, ms: {', '.join(f'{each:.2f}' for each in cpu_ms_per_push)}")
    figures = {"cpu_ms_per_push": float(np.median(cpu_ms_per_push)), "pushes_per_s": float(np.median(pushes_per_s))}
    figures |= {f"{name}_cpu_share": float(np.median(all_)) for name, all_ in shares.items()}
    for kind in ("produce", "fetch"):
        for word, of in (("p50", _percentile(50)), ("p99", _percentile(99))):
            rounds = {name: np.array([of(turn[kind]) for turn in turns[name]]) for name in PLACES}
            figures |= {f"{name}_{kind}_{word}_ms": float(np.median(all_)) for name, all_ in rounds.items()}
            figures[f"{kind}_{word}_added"] = (
                figures[f"pushes_{kind}_{word}_ms"] / figures[f"proxy_{kind}_{word}_ms"] - 1
            )
            each = ", ".join(f"{share:+.0%}" for share in rounds["pushes"] / rounds["proxy"] - 1)
            print(f"{kind} {word} added in each round: {each}")
    for name, proxy in (("proxy", off), ("filter", on)):
        figures |= {f"{name}_rss_mb": rss_mb(proxy.pid), f"{name}_heap_mb": heap_mb(proxy.pid)}
    return figures


def _percentile(which: int) -> Callable[[np.ndarray], float]:
    return lambda latencies: float(np.percentile(latencies, which))


if __name__ == "__main__":
    main()
