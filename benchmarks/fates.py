"""Real clients that end in every way, compared with their state in the lake: ``python -m benchmarks.fates``.

Each round runs one client of each kind for each fate: closed normally, killed (SIGKILL), paused (SIGSTOP), cut off (a
TCP proxy stops forwarding, with its connections open), or alive. ``telemetry-lake ingest --once`` then processes the
landed pushes, and does so again after paused and cut-off clients could return. franz-go takes part if Go is installed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from benchmarks.figures import print_figures, store_runs
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.sandbox.clients import Client, LocalClients
from kafka_telemetry_lake.sandbox.clients.franz_go import franz_go_driver
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.plugin import receiver_jar
from kafka_telemetry_lake.sandbox.cluster.process import Process
from kafka_telemetry_lake.sandbox.cluster.proxy import AddressProxy

KINDS = (
    "java producer", "java consumer", "java streams", "librdkafka producer", "librdkafka consumer",
    "franz-go producer", "franz-go consumer",
)  # fmt: skip
FATES = ("closed", "killed", "paused", "cut_off", "alive")
STATES = ("active", "terminated", "silent")
LEAST_SILENCE_S = 60.0
RATE = 5.0
STREAMS_CLIENTS = 3  # the least that push in an application; an idle restore consumer doesn't push
Names = dict[tuple[str, str], str]


@dataclass
class Instance:
    """A client instance, the fate of its process at time `at` (epoch s), and its state in the lake."""

    kind: str
    fate: str
    client_id: str
    at: float
    state: str = "active"
    state_at: float | None = None
    cause: str | None = None
    resumed: bool = False


class Landing:
    """Counts pushes by client id, read from the landing topic."""

    def __init__(self, bootstrap_servers: str) -> None:
        settings = {"bootstrap.servers": bootstrap_servers, "group.id": "fates", "enable.metrics.push": False}
        self._consumer = Consumer(settings)
        partitions = self._consumer.list_topics("client-telemetry").topics["client-telemetry"].partitions
        self._consumer.assign([TopicPartition("client-telemetry", partition, 0) for partition in partitions])
        self._pushes: Counter[str] = Counter()

    def pushes(self, name: str) -> Counter[str]:
        """Pushes by client id, of the client ids that begin with `name`: a Streams application has several."""
        while messages := self._consumer.consume(1000, 0.2):
            for message in messages:
                headers = dict(message.headers() or [])
                client_id = headers.get("client_id")
                self._pushes[client_id.decode() if isinstance(client_id, bytes) else ""] += 1
        return Counter({client_id: count for client_id, count in self._pushes.items() if client_id.startswith(name)})

    def close(self) -> None:
        self._consumer.close()


def wait_for(condition: Callable[[], bool], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


class Run:
    """A cluster, a lake, and rounds of clients."""

    def __init__(self, stack: ExitStack, interval_s: float, return_s: float) -> None:
        self.interval_s, self.return_s = interval_s, return_s
        self.cluster = stack.enter_context(LocalCluster(plugin=receiver_jar()))
        self.cluster.subscribe("fates", ["org.apache.kafka."], int(1000 * interval_s), ["client_id=fate-.*"])
        for topic in ("records", "words", "counts"):
            self.cluster.create_topic(topic)
        self.lake = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fates-"))) / "lake"
        self.proxy = stack.enter_context(_proxy(self.cluster))
        self.clients = stack.enter_context(LocalClients(self.cluster))
        self.landing = Landing(self.cluster.bootstrap_servers)
        stack.callback(self.landing.close)

    def round(self, kinds: Sequence[str], fates: Sequence[str], number: int) -> list[Instance]:
        names = {(kind, fate): f"fate-{number}-{kind.replace(' ', '-')}-{fate}" for kind in kinds for fate in fates}
        started = {key: self._start(key[0], name, cut=key[1] == "cut_off") for key, name in names.items()}
        self._wait_for_pushes(names)
        instances = self._meet(started, names)
        # On a busy machine the last pushes before a fate land some seconds late, and those of the living too.
        time.sleep(max(LEAST_SILENCE_S, 3 * self.interval_s) + max(15.0, 2 * self.interval_s))
        self._judge(instances)
        if self.return_s:
            self._let_return(started)
            self._judge([])
            for each in instances:
                each.resumed = any(event == "resumed" for _, event in self._events(each.client_id))
        for client in started.values():
            client.kill()
        self.proxy.resume()  # for the next round
        return instances

    def _let_return(self, started: dict[tuple[str, str], Client]) -> None:
        self.proxy.resume()
        for (_, fate), client in started.items():
            if fate == "paused":
                client.resume()
        time.sleep(self.return_s)

    def _start(self, kind: str, name: str, *, cut: bool) -> Client:
        library, _, role = kind.partition(" ")
        address = {"bootstrap.servers": self.proxy.address} if cut else {}
        if role == "streams":
            return self.clients.word_count("words", "counts", name, properties=address)
        if library == "franz-go":
            load = {"driver.records": -1, "driver.rate": RATE, "driver.value_bytes": 100}
            settings = {**load, "driver.topic": "records", "group.id": name, **address}
            return self.clients.start(name, [franz_go_driver(), role], settings)
        if role == "producer":
            return self.clients.producer(library, "records", name, rate=RATE, properties=address)  # type: ignore[arg-type]  # Library
        return self.clients.consumer(library, "records", name, group=name, properties=address)  # type: ignore[arg-type]  # the same

    def _wait_for_pushes(self, names: Names) -> None:
        """Wait until each client has pushed twice, and so reached its regular interval."""

        def is_pushing(kind: str, name: str) -> bool:
            wanted = STREAMS_CLIENTS if kind.endswith("streams") else 1
            return sum(count >= 2 for count in self.landing.pushes(name).values()) >= wanted

        limit_s = 300 + 3 * self.interval_s
        if not wait_for(lambda: all(is_pushing(kind, name) for (kind, _), name in names.items()), limit_s):
            missing = [name for (kind, _), name in names.items() if not is_pushing(kind, name)]
            raise RuntimeError(f"these clients don't push: {missing}; {self.cluster.folder}")

    def _meet(self, started: dict[tuple[str, str], Client], names: Names) -> list[Instance]:
        """Apply each client's fate, in random order, spread over a push interval."""
        met: dict[tuple[str, str], float] = {}
        cut_at: float | None = None
        for key, client in sorted(started.items(), key=lambda _: random.random()):
            met[key] = time.time()
            if key[1] == "closed":
                client.close(60)
                met[key] = time.time()
            elif key[1] == "killed":
                client.kill()
            elif key[1] == "paused":
                client.pause()
            elif key[1] == "cut_off":  # one proxy, so all at once
                if cut_at is None:
                    self.proxy.pause()
                    cut_at = met[key]
                met[key] = cut_at
            time.sleep(self.interval_s / len(started))
        return [
            Instance(kind, fate, client_id, met[kind, fate])
            for (kind, fate), name in names.items()
            for client_id in sorted(self.landing.pushes(name))
        ]

    def _judge(self, instances: Sequence[Instance]) -> None:
        """Run the job over the landed pushes, and read the instances' states."""
        job = [
            sys.executable,
            "-m",
            "kafka_telemetry_lake.jobs.cli",
            "ingest",
            "--source",
            "kafka",
            "--once",
            "--lake",
            str(self.lake),
        ]
        done = subprocess.run(
            [*job, "--bootstrap-servers", self.cluster.bootstrap_servers], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        causes = {row["client_id"]: row["likely_cause"] for row in self._ask("SELECT * FROM client_liveness")}
        for each in instances:
            each.cause = causes.get(each.client_id)
            for at, event in self._events(each.client_id):
                state = {"terminated": "terminated", "went_silent": "silent"}.get(event)
                if state is not None and each.state_at is None:
                    each.state, each.state_at = state, at

    def _events(self, client_id: str) -> list[tuple[float, str]]:
        rows = self._ask("SELECT client_id, at, event FROM client_events ORDER BY at")
        times: list[tuple[datetime, str]] = [(row["at"], row["event"]) for row in rows if row["client_id"] == client_id]
        return [(at.timestamp(), event) for at, event in times]

    def _ask(self, sql: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = run_query(str(self.lake), sql).read_all().to_pylist()
        return rows


@dataclass
class CutOff:
    """The proxy in its own process: while paused, it forwards nothing, but its connections stay open."""

    process: Process
    address: str

    def pause(self) -> None:
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()


@contextmanager
def _proxy(cluster: LocalCluster) -> Iterator[CutOff]:
    port = cluster.bootstrap_servers.rpartition(":")[2]
    process = Process(
        [sys.executable, "-m", "benchmarks.fates", "--proxy", port], cluster.folder / "proxy.log", pipes=True
    )
    try:
        yield CutOff(process, process.stdout.readline().decode().strip())
    finally:
        process.kill()


def _serve(port: int) -> None:
    with AddressProxy([port]) as proxy:
        print(proxy.bootstrap_servers, flush=True)
        sys.stdin.read()


def measure(
    kinds: Sequence[str], fates: Sequence[str], *, rounds: int, interval_s: float, return_s: float
) -> list[Instance]:
    """The states of real clients in the lake.

    Args:
        rounds: how many clients of each kind get each fate, one after the other.
        interval_s: push interval.
        return_s: time in which paused and cut-off clients may push again; 0: they don't return.
    """
    if shutil.which("go") is None:
        kinds = [kind for kind in kinds if not kind.startswith("franz-go")]
    with ExitStack() as stack:
        run = Run(stack, interval_s, return_s)
        return [each for number in range(rounds) for each in run.round(kinds, fates, number)]


def right(each: Instance) -> bool:
    """Whether the state fits the fate; a closed client may be silent, since some close without a terminating push."""
    if each.fate == "closed":
        return each.state in ("terminated", "silent")
    return each.state == ("active" if each.fate == "alive" else "silent")


def delays(instances: Sequence[Instance], interval_s: float) -> list[float]:
    """From a client's end to its event's `at`, in push intervals."""
    return [(each.state_at - each.at) / interval_s for each in instances if each.state_at is not None]


def table(instances: Sequence[Instance], interval_s: float) -> str:
    """The confusion table, in Markdown: a row per kind and fate; delays in push intervals."""
    lines = ["| client | fate | " + " | ".join(STATES) + " | delay | likely cause | resumed |", "|---" * 8 + "|"]
    for kind in KINDS:
        for fate in FATES:
            own = [each for each in instances if (each.kind, each.fate) == (kind, fate)]
            if not own:
                continue
            counts = Counter(each.state for each in own)
            causes = Counter(each.cause for each in own if each.cause is not None)
            late = delays(own, interval_s)
            cells = [
                kind, fate, *(str(counts[state] or "") for state in STATES),
                f"{min(late):.1f} to {max(late):.1f}" if late else "",
                ", ".join(f"{cause}: {count}" for cause, count in causes.most_common()),
                str(sum(each.resumed for each in own) or ""),
            ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def figures(instances: Sequence[Instance], interval_s: float) -> dict[str, float]:
    result: dict[str, float] = {"fates_interval_s": interval_s, "fates_instances": len(instances)}
    result["fates_right"] = sum(map(right, instances))
    for fate in FATES:
        for state in STATES:
            own = [each for each in instances if (each.fate, each.state) == (fate, state)]
            result[f"fates_{fate}_{state}"] = len(own)
            if late := delays(own, interval_s):
                result[f"fates_{fate}_{state}_delay_max_intervals"] = max(late)
        result[f"fates_{fate}_resumed"] = sum(each.resumed for each in instances if each.fate == fate)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--interval", type=float, default=20.0, help="push interval, s")
    parser.add_argument(
        "--return-after", type=float, default=100.0, help="s that paused and cut-off clients get to return"
    )
    parser.add_argument("--proxy", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.proxy is not None:
        _serve(args.proxy)
        return
    instances = measure(KINDS, FATES, rounds=args.rounds, interval_s=args.interval, return_s=args.return_after)
    print(table(instances, args.interval))
    print_figures(figures(instances, args.interval))
    store_runs("fates", {"instances": [vars(each) for each in instances]})


if __name__ == "__main__":
    main()
