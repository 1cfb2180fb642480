"""Real clients that do what findings are about, one behaviour each, and healthy ones of the same libraries.

A scenario says which findings its behaviour is: `expect`. What follows from the behaviour, and is true too, is `also`:
it isn't counted, neither for a rule nor against it. Every other finding is a false one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.rebootstrap_scenes import landed
from kafka_telemetry_lake.pipelines.runtime.jars import jars
from kafka_telemetry_lake.sandbox import clients as local_clients
from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.clients.franz_go import franz_go_driver
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.java import compile_java, java_command, kafka_class_path
from kafka_telemetry_lake.sandbox.cluster.plugin import receiver_jar
from kafka_telemetry_lake.sandbox.cluster.proxy import AddressProxy
from tests.support.landing_records import SCHEMA

HERE = Path(__file__).parent
Script = dict[str, Any]

SECONDS = 190  # the longest stall ends after 165 s, later where clients start slowly
CUT_EVERY_S = 4
STALL = (20, 26)  # when the stalling proxy begins to withhold answers, and for how long
RECREATED_AT = 50
VANISHED_AT = 30  # when one proxy's addresses stop to answer; it has others for who asks its bootstrap address
SLOW_ANSWERS_S, SLOWER_INSTANCE_S, SLOW_BROKER_S = 1.2, 0.4, 0.2
USERS = ("alice", "bob")
# Names that settings may have as values; each run replaces them by addresses.
PROXIES = "<slow>", "<slower>", "<stalling>", "<cutting>", "<vanishing>"
SLOW, SLOWER, STALLING, CUTTING, VANISHING = PROXIES
MISSING_TOPIC, LATER = "no-such-topic", "made-later"
LIBRARIES = {"java": "Java's client", "librdkafka": "librdkafka", "franz_go": "franz-go"}
RAW = "raw"  # requests written byte by byte, for what no library does
FINDINGS = "SELECT client_id, subject, finding, evidence FROM findings"
DEFAULT_IDS = {"java": "producer-1", "librdkafka": "rdkafka", "franz_go": "kgo"}

GOOD = {"linger.ms": 20, "compression.type": "lz4"}
REBOOTSTRAPS = {"bootstrap.servers": VANISHING, "metadata.recovery.rebootstrap.trigger.ms": 5000}
# What is true too of a producer whose brokers don't answer for a time.
FOLLOWS_AN_OUTAGE = "connection_churn stuck_in_queue silent_retries metadata_waits near_request_timeout"
TOPICS: Mapping[str, tuple[int, Mapping[str, object]]] = {
    "records": (3, {}),
    "unread": (3, {}),
    "trickle": (1, {}),
    "backlog": (1, {}),
    "wide": (10, {}),
    "two": (2, {}),
    "small": (1, {"max.message.bytes": 200}),
    "splitting": (1, {"max.message.bytes": 20_000}),
    "recreated": (1, {}),
    "retained": (1, {"segment.bytes": 1_048_576, "retention.bytes": 2_097_152}),
    "one": (1, {}),
    **{f"one-{n}": (1, {}) for n in range(6)},
}
UNEVEN = [*(f"one-{n}" for n in range(6)), "two"]  # the range assignor gives its first member seven partitions of eight


@dataclass(frozen=True)
class Scenario:
    """A behaviour of clients of one library that share a client id, or a group of the scenario's name."""

    library: str
    name: str
    scripts: Sequence[Script] = field(default=(), compare=False)
    expect: frozenset[str] = frozenset()
    also: frozenset[str] = frozenset()
    ids: str = field(default="", compare=False)  # pattern of the client ids and groups that its program chooses itself

    def __str__(self) -> str:
        return f"{self.library} {self.name}"

    @property
    def client_id(self) -> str:
        if self.name == "default_client_id":
            return DEFAULT_IDS[self.library]
        return f"telemetry-{self.library}-{self.name}"

    def has(self, name: str | None) -> bool:
        """Whether a finding's client id or subject is of this scenario; Streams gives each inner client an id."""
        if name is None:
            return False
        own = name in (self.client_id, self.name) or name.startswith(f"{self.client_id}-")
        return own or (self.ids != "" and re.fullmatch(self.ids, name) is not None)


@dataclass
class Found:
    """Seconds after the scenario's first push, in steps, and the evidence at that time."""

    after_s: float
    evidence: str


@dataclass
class Run:
    """Landing records of scenarios that ran side by side, and their time of start (epoch s)."""

    scenarios: Sequence[Scenario]
    started: float = field(default_factory=time.time)
    landed: pa.Table = field(default_factory=SCHEMA.empty_table)


def producer(topic: str = "unread", settings: Mapping[str, Any] = GOOD, **script: Any) -> Script:
    good = {"burst": 10, "pause_ms": 200}
    return {"kind": "producer", "topics": [topic], "settings": dict(settings), **good, **script}


def consumer(topics: str | list[str] = "records", settings: Mapping[str, Any] | None = None, **script: Any) -> Script:
    names = [topics] if isinstance(topics, str) else topics
    return {"kind": "consumer", "topics": names, "settings": dict(settings or {}), **script}


def streams(fault: str, settings: Mapping[str, Any] | None = None) -> Script:
    """A Kafka Streams application whose threads die, that drops each record, or (none) that does nothing wrong."""
    return {"kind": "streams", "topics": ["records"], "fault": fault, "settings": dict(settings or {})}


def three_members() -> list[Script]:
    """Members of a topic with two partitions; the last one, by its name too, comes when the others have them."""
    names = [{"group.instance.id": f"member-{n}"} for n in range(3)]
    return [consumer("two", settings, start_ms=n // 2 * 30_000) for n, settings in enumerate(names)]


def secret(user: str) -> str:
    """The password of a user."""
    return f"{user}-secret"


def scenario(library: str, name: str, *scripts: Script, expect: str = "", also: str = "", ids: str = "") -> Scenario:
    # Kafka's client 4.3.1 has a bug (KAFKA-20393) that is named once an instance falls silent, as some do at the end.
    silent = "buggy_client_version" if library == "java" else ""
    expected = frozenset(expect.split())
    return Scenario(library, name, scripts, expected, frozenset(f"{also} {silent}".split()) - expected, ids)


def java() -> Iterator[Scenario]:
    """Scenarios of the Java client."""
    yield from _healthy_java()
    yield from _misbehaving_java()


def _healthy_java() -> Iterator[Scenario]:
    def healthy(name: str, *scripts: Script) -> Scenario:
        return scenario("java", f"healthy_{name}", *scripts)

    yield healthy("producer", producer("records", pause_ms=1000), producer("two", partitions=2, pause_ms=1000))
    large = {"linger.ms": 100, "batch.size": 262_144, "compression.type": "zstd"}
    yield healthy("large_batches", producer(settings=large, burst=1000, bytes=200, pause_ms=500))
    yield healthy("encrypted_payloads", producer(settings=GOOD | {"acks": "all", "batch.size": 131_072}, burst=100,
                                                 bytes=1000, random=True, pause_ms=1000))  # fmt: skip
    yield healthy("transactions", producer(settings=GOOD | {"transactional.id": "healthy"}, burst=20))
    yield healthy("few_records", producer(settings={"linger.ms": 0}, burst=1, pause_ms=5000))
    yield healthy("idle_producer", producer(burst=1, pause_ms=10**6))
    yield healthy("restarts", producer(lives=3, life_ms=40_000))
    yield healthy("consumer", consumer())
    yield healthy("idle_consumer", consumer("one-0"))
    yield healthy("catching_up", consumer("backlog"))
    yield healthy("commits", consumer(settings={"enable.auto.commit": "false"}, commit_each_poll=True, pause_ms=2000))
    yield healthy("group", *[consumer() for _ in range(3)])
    yield healthy("streams", streams("none"))


def _misbehaving_java() -> Iterator[Scenario]:
    def wrong(name: str, *scripts: Script, expect: str = "", also: str = "") -> Scenario:
        return scenario("java", name, *scripts, expect=f"{name} {expect}", also=also)

    yield wrong("failed_records", producer("small", {}, bytes=1000, burst=1), also="split_batches")
    yield scenario(
        "java", "missing_topic", producer(MISSING_TOPIC, GOOD | {"max.block.ms": 5000}), expect="failed_records"
    )
    yield wrong(
        "one_record_per_request",
        producer(settings={"linger.ms": 0, "batch.size": 1}, burst=1, pause_ms=20),
        expect="uncompressed_records",
    )
    yield wrong(
        "synchronous_sends",
        producer("trickle", {"linger.ms": 0}, sync=True, burst=10**9, pause_ms=0),
        expect="one_record_per_request",
        also="uncompressed_records",
    )
    yield wrong("tiny_fetches", consumer("trickle"))
    yield wrong(
        "full_batches",
        producer(settings={"batch.size": 8192, "linger.ms": 20}, burst=1000, pause_ms=200),
        expect="uncompressed_records",
    )
    yield wrong(
        "uncompressed_records",
        producer(settings={"batch.size": 1_000_000, "linger.ms": 20}, burst=500, bytes=200, pause_ms=1000),
    )
    yield wrong(
        "buffer_full",
        producer(settings={"buffer.memory": 16_384, "max.block.ms": 0}, bytes=1000, burst=100),
        expect="failed_records uncompressed_records",
        also="full_batches",
    )
    # Two records for each of ten partitions wait for 0.9 s, in ten of the eleven parts of the buffer.
    yield wrong(
        "buffer_filling",
        producer(
            "wide", GOOD | {"linger.ms": 900, "buffer.memory": 11 * 16_384}, partitions=10, burst=20, pause_ms=2000
        ),
        also="stuck_in_queue",
    )
    yield wrong(
        "throttled",
        producer(settings={"linger.ms": 20}, bytes=1000, burst=12, pause_ms=100),
        also="stuck_in_queue uncompressed_records full_batches buffer_filling",
    )
    yield scenario("java", "throttled_consumer", consumer("backlog"), expect="throttled")
    yield wrong(
        "connection_churn",
        producer(settings=GOOD | {"connections.max.idle.ms": 100}, burst=1, pause_ms=500),
        also="silent_retries",
    )
    yield wrong("processing_bound", consumer("backlog", {"max.poll.records": 1}, pause_ms=100))
    yield wrong("unstable_group", consumer("two"), consumer("two", start_ms=10_000, lives=5, life_ms=6000))
    yield wrong("short_lived_clients", producer(lives=20, life_ms=1500, pause_ms=500), also="connection_churn")
    yield wrong("aborted_transactions", producer(settings=GOOD | {"transactional.id": "aborted"}, abort_every=2))
    yield wrong(
        "frequent_commits",
        consumer("trickle", {"enable.auto.commit": "false", "max.poll.records": 50}, commit_each_poll=True),
        also="tiny_fetches processing_bound",
    )
    yield wrong("costly_commits", consumer(settings={"bootstrap.servers": SLOW, "auto.commit.interval.ms": 2000}))
    # All its requests go to one broker: those to another would wait for a connection, and not yet be sent.
    stalled = producer("one", GOOD | {"bootstrap.servers": STALLING})
    yield wrong("near_request_timeout", stalled, also="stuck_in_queue")
    yield wrong("heartbeat_at_risk", consumer(settings={"bootstrap.servers": STALLING}), also="costly_commits")
    yield wrong("stuck_in_queue", producer(settings=GOOD | {"linger.ms": 3000}))
    yield wrong(
        "tiny_batches",
        producer(settings={"batch.size": 512}, burst=150, pause_ms=100),
        expect="uncompressed_records",
    )
    yield wrong("large_records", producer(burst=1, bytes=900_000, pause_ms=2000))
    yield wrong(
        "split_batches",
        producer("splitting", {"linger.ms": 100, "batch.size": 200_000}, burst=300, pause_ms=5000),
        expect="uncompressed_records",
    )
    yield wrong("idle_member", *three_members())
    yield wrong(
        "uneven_assignment",
        *[consumer(UNEVEN, {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor"})] * 2,
    )
    yield wrong("default_client_id", producer())
    yield wrong("mixed_versions", producer(), expect="buggy_client_version")  # and one of 3.8.1 beside it
    yield wrong("buggy_client_version")  # 3.8.1
    yield wrong("metadata_waits", producer(LATER, GOOD | {"max.block.ms": 120_000}))
    yield wrong(
        "long_rebalance",
        consumer("two"),
        consumer("two", {"max.poll.records": 1}, start_ms=5000, pause_ms=100_000),
        consumer("two", start_ms=40_000),
        also="unstable_group idle_member",
    )
    yield wrong("slow_instance", *[producer()] * 4, producer(settings=GOOD | {"bootstrap.servers": SLOWER}))
    yield wrong("shared_client_id", *[producer(user=user) for user in USERS])
    yield wrong(
        "silent_retries",
        producer(
            "recreated",
            {"enable.idempotence": "false", "linger.ms": 0, "metadata.max.age.ms": 1000, "max.block.ms": 120_000},
            burst=1,
            pause_ms=5,
        ),
        expect="one_record_per_request",
        also="metadata_waits stuck_in_queue uncompressed_records",
    )
    yield wrong("slow_processing", consumer(sleep_ms=[10_000, 155_000]), also="processing_bound")
    yield wrong(
        "about_to_lose_data",
        producer("retained", {"enable.metrics.push": "false"}, bytes=1000, burst=100, pause_ms=500),
        consumer(
            "retained", {"max.poll.records": 10, "max.partition.fetch.bytes": 20_000}, start_ms=20_000, pause_ms=1000
        ),
        also="processing_bound tiny_fetches",
    )
    # The second member waits for the first one, which polls once in 100 s, and each time its connection is cut.
    yield wrong(
        "failed_rebalances",
        consumer("two", {"max.poll.records": 1}, start_ms=40_000, pause_ms=100_000),
        consumer("two", {"bootstrap.servers": CUTTING}, start_ms=48_000),
        also="connection_churn long_rebalance unstable_group lost_telemetry idle_member",
    )
    yield wrong("dead_stream_threads", streams("dies"), also="unstable_group connection_churn short_lived_clients")
    drops = "org.apache.kafka.streams.errors.LogAndContinueExceptionHandler"
    yield wrong("dropped_stream_records", streams("drops", {"deserialization.exception.handler": drops}))


def librdkafka() -> Iterator[Scenario]:
    """Scenarios of librdkafka."""

    def wrong(name: str, *scripts: Script, expect: str = "", also: str = "") -> Scenario:
        return scenario("librdkafka", name, *scripts, expect=f"{name} {expect}", also=also)

    yield scenario("librdkafka", "healthy_producer", producer("records", pause_ms=1000))
    yield scenario("librdkafka", "healthy_few_records", producer(burst=1, pause_ms=5000))
    yield scenario("librdkafka", "healthy_consumer", consumer())
    yield scenario("librdkafka", "healthy_group", *[consumer() for _ in range(3)])
    yield scenario("librdkafka", "healthy_idle_consumer", consumer("one-0"))
    yield wrong(
        "throttled",
        producer(settings={"linger.ms": 20}, bytes=1000, burst=12, pause_ms=100),
        also="stuck_in_queue near_request_timeout",
    )
    cut_off = producer(settings=GOOD | {"bootstrap.servers": CUTTING})
    yield wrong("connection_churn", cut_off, also="lost_telemetry")
    one_at_a_time = {"bootstrap.servers": SLOW, "max.in.flight": 1}
    yield wrong("stuck_in_queue", producer(settings=GOOD | one_at_a_time))
    yield wrong("costly_commits", consumer(settings={"bootstrap.servers": SLOW, "auto.commit.interval.ms": 2000}))
    # All its requests go to one broker: those to another would wait for a connection, and not yet be sent.
    stalled = producer("one", GOOD | {"bootstrap.servers": STALLING})
    yield wrong("near_request_timeout", stalled, also="stuck_in_queue")
    yield wrong("idle_member", *three_members())
    yield wrong("uneven_assignment", *[consumer(UNEVEN, {"partition.assignment.strategy": "range"})] * 2)
    yield wrong("default_client_id", producer())
    yield wrong(
        "long_rebalance",
        consumer("two"),
        consumer("two", start_ms=5000, pause_ms=100_000, max_poll_records=1),
        consumer("two", start_ms=40_000),
        also="idle_member",
    )
    yield wrong("slow_instance", *[producer()] * 4, producer(settings=GOOD | {"bootstrap.servers": SLOWER}))
    yield wrong("short_lived_clients", producer(lives=20, life_ms=1500, pause_ms=500), also="connection_churn")
    unanswered = "connection_churn stuck_in_queue near_request_timeout"
    yield wrong("lost_telemetry", producer(settings=GOOD | REBOOTSTRAPS), also=unanswered)


def franz_go() -> Iterator[Scenario]:
    """Scenarios of franz-go; each has one client, whose script has a rate instead of bursts."""
    yield scenario("franz_go", "healthy_producer", producer())
    yield scenario("franz_go", "healthy_consumer", consumer())
    yield scenario("franz_go", "throttled", producer(bytes=1000, rate=120), expect="throttled")
    yield scenario("franz_go", "default_client_id", producer(), expect="default_client_id")
    cut_off = producer(settings={"bootstrap.servers": CUTTING})
    yield scenario("franz_go", "connection_churn", cut_off, expect="connection_churn", also="lost_telemetry")
    slow = consumer(settings={"bootstrap.servers": SLOW})
    yield scenario("franz_go", "costly_commits", slow, expect="costly_commits")


SLOW_BROKER = 3


def with_a_slow_broker(library: str) -> Iterator[Scenario]:
    """Producers to all brokers, one of which answers late; the finding is about the broker."""
    script = producer("wide", GOOD | {"bootstrap.servers": SLOWER}, partitions=10, burst=30)
    if library == "franz_go":  # it goes to another partition after 64 KiB
        script = producer("wide", {"bootstrap.servers": SLOWER}, bytes=2000, rate=100)
    for number in range(6):
        name = f"beside_a_slow_broker_{number}"
        yield scenario(library, name, script)
    yield scenario(library, str(SLOW_BROKER), expect="one_slow_broker")


def short() -> list[Scenario]:
    """All of them, whether or not their libraries are installed."""
    return [*java(), *librdkafka(), *franz_go(), *(one for library in LIBRARIES for one in with_a_slow_broker(library))]


def run_all(seconds: int = SECONDS) -> list[Run]:
    """Run all scenarios whose libraries are installed; those with a slow broker by themselves."""
    libraries = [each for each in LIBRARIES if each != "franz_go" or installed("go", "franz-go's scenarios")]
    scenarios = [*java(), *librdkafka(), *(franz_go() if "franz_go" in libraries else ())]
    return _runs(scenarios, libraries, seconds)


def run_again(scenarios: Iterable[Scenario], seconds: int = SECONDS) -> list[Run]:
    """Run these scenarios with no others beside them: what a starved machine did to their clients isn't found again."""
    again = set(scenarios)
    slow = [library for library in LIBRARIES if again & set(with_a_slow_broker(library))]
    others = [one for one in (*java(), *librdkafka(), *franz_go()) if one in again]
    return _runs(others, slow, seconds)


def _runs(scenarios: Sequence[Scenario], with_slow_broker: Iterable[str], seconds: int) -> list[Run]:
    """Runs of the scenarios side by side, and of those with a slow broker, a run for each of these libraries."""
    wait_for_an_hour_that_holds(seconds + 150)
    with _cluster() as cluster:
        delays = {cluster.brokers[SLOW_BROKER - 1].port: SLOW_BROKER_S}
        runs = [_run(cluster, scenarios, seconds)] if scenarios else []
        return [*runs, *(_run(cluster, list(with_a_slow_broker(each)), 30, delays) for each in with_slow_broker)]


@contextmanager
def _cluster() -> Iterator[LocalCluster]:
    properties = {"auto.create.topics.enable": "false", "log.retention.check.interval.ms": 1000}
    users = {user: secret(user) for user in USERS}
    with LocalCluster(brokers=3, plugin=receiver_jar(), sasl_users=users, properties=properties) as cluster:
        ids = "|".join(f"{each}" for each in DEFAULT_IDS.values())
        cluster.subscribe("all", ["org.apache.kafka."], 1000, [f"client_id=(telemetry-.*|{ids})"])
        for name, (partitions, config) in TOPICS.items():
            cluster.create_topic(name, partitions, config, replication_factor=1)
        cluster.set_quota(client_id="telemetry-java-throttled", producer_byte_rate=30_000)
        cluster.set_quota(client_id="telemetry-java-throttled_consumer", consumer_byte_rate=10_000)
        cluster.set_quota(client_id="telemetry-librdkafka-throttled", producer_byte_rate=30_000)
        cluster.set_quota(client_id="telemetry-franz_go-throttled", producer_byte_rate=4000)  # it compresses
        yield cluster


def installed(program: str, left_out: str) -> bool:
    """Whether a program is there; if not, a line says what is left out."""
    if shutil.which(program) is None:
        print(f"{program} isn't installed: {left_out} are left out", flush=True)
    return shutil.which(program) is not None


def wait_for_an_hour_that_holds(seconds: float) -> None:
    """Findings are of hours: what is split between two may be too little for each."""
    left_s = 3600 - time.time() % 3600
    if left_s < seconds:
        time.sleep(left_s + 1)


def _run(
    cluster: LocalCluster, scenarios: Sequence[Scenario], seconds: int, delays: Mapping[int, float] | None = None
) -> Run:
    ports = [broker.port for broker in cluster.brokers]
    with ExitStack() as stack:
        proxies = {name: stack.enter_context(AddressProxy(ports)) for name in PROXIES}
        proxies[SLOW].delays |= dict.fromkeys(ports, SLOW_ANSWERS_S)
        proxies[SLOWER].delays |= dict.fromkeys(ports, SLOWER_INSTANCE_S) if delays is None else delays
        addresses = {name: proxy.bootstrap_servers for name, proxy in proxies.items()}
        local = stack.enter_context(LocalClients(cluster))
        if delays is None:
            _fill_backlog(local)
        run = Run(scenarios)
        begun = time.monotonic()
        for library in LIBRARIES:
            mine = [each for each in scenarios if each.library == library]
            scripts = [complete(one, script, cluster, addresses)
                       for one in mine for script in one.scripts]  # fmt: skip
            if library == "franz_go":
                for script in scripts:
                    start_franz_go(local, script)
            elif scripts:
                start(local, cluster, library, [each for each in scripts if each["kind"] != "streams"])
                for script in scripts:
                    if script["kind"] == "streams":
                        _start_streams(local, cluster, script)
        if delays is None:
            for name in ("mixed_versions", "buggy_client_version"):
                local.producer("java", "unread", f"telemetry-java-{name}", rate=200, version="3.8.1", properties=GOOD)
            sleep_until(begun + STALL[0])
            proxies[STALLING].stalled_until = time.monotonic() + STALL[1]
            sleep_until(begun + VANISHED_AT)
            proxies[VANISHING].vanish(with_bootstrap=True)
            sleep_until(begun + RECREATED_AT)
            cluster.delete_topic("recreated")
            cluster.create_topic("recreated", replication_factor=1)
            cluster.create_topic(LATER, replication_factor=1)
            while time.monotonic() < begun + seconds - CUT_EVERY_S:
                time.sleep(CUT_EVERY_S)
                for port in ports:
                    proxies[CUTTING].cut(port)
                    proxies[CUTTING].restore(port)
        sleep_until(begun + seconds)
        run.landed = of_run(run, landed(cluster))
    return run


def of_run(run: Run, records: pa.Table) -> pa.Table:
    """Records of the run's clients that landed since it started."""
    started = datetime.fromtimestamp(run.started, UTC)
    mine = pa.array([any(one.has(name) for one in run.scenarios) for name in client_ids(records)], pa.bool_())
    return records.filter(pc.and_(mine, pc.greater_equal(records["timestamp"], started)))


def client_ids(records: pa.Table) -> list[str]:
    """The client id of each landing record."""
    return [
        next(each["value"] for each in headers if each["key"] == "client_id").decode()
        for headers in records["headers"].to_pylist()
    ]


def sleep_until(at: float) -> None:
    """Sleep until a time of the monotonic clock, s."""
    time.sleep(max(0.0, at - time.monotonic()))


def complete(one: Scenario, script: Script, cluster: LocalCluster, addresses: Mapping[str, str]) -> Script:
    """A script with the settings that every client needs, and with addresses instead of their names."""
    settings = dict(script["settings"])
    where = settings.get("bootstrap.servers")
    settings["bootstrap.servers"] = cluster.bootstrap_servers if where is None else addresses[where]
    if one.name != "default_client_id" or one.library == "franz_go":
        settings["client.id"] = one.client_id + script.get("suffix", "")
    if script["kind"] == "consumer":
        settings.setdefault("group.id", one.client_id)
    if script["kind"] == "streams":
        settings["application.id"] = one.client_id
    result = {key: value for key, value in script.items() if key not in ("user", "suffix")} | {"settings": settings}
    if user := script.get("user"):
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        settings |= {
            "bootstrap.servers": cluster.sasl_bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{module} required username="{user}" password="{secret(user)}";',
        }
    return result


def start(
    local: LocalClients, cluster: LocalCluster, library: str, scripts: Sequence[Script], prefix: Sequence[str] = ()
) -> None:
    """Start a process of these clients, by a command that its own is appended to."""
    file = cluster.folder / f"{library}-{len(list(cluster.folder.glob(f'{library}-*.json')))}.json"
    file.write_text(json.dumps(scripts), encoding="utf-8")
    if library == "java":
        class_path = kafka_class_path("4.3.1")
        driver = Path(local_clients.__file__).parent / "TelemetryClient.java"
        classes = compile_java([HERE / "ScriptedClients.java", driver], class_path)
        log = cluster.folder / f"{file.stem}.log"
        command: Sequence[str | Path] = java_command(
            kafka_class_path("4.3.1", classes), "ScriptedClients", log=log, level="ERROR", heap_mb=1024
        )
    else:
        command = [sys.executable, HERE / "scripted_librdkafka.py"]
    local.start(file.stem, [*prefix, *command], {"driver.scripts": file}).wait_for("started")


def _start_streams(local: LocalClients, cluster: LocalCluster, script: Script) -> None:
    settings = {
        **script["settings"],
        "auto.offset.reset": "earliest",
        "driver.topic": script["topics"][0],
        "driver.fault": script["fault"],
        "state.dir": cluster.folder / "streams",
    }
    driver = Path(local_clients.__file__).parent / "TelemetryClient.java"
    sources = [HERE / "ScriptedStreams.java", driver]
    class_path = os.pathsep.join([kafka_class_path("4.3.1"), *map(str, jars("streams-4.3.1"))])
    classes = compile_java(sources, class_path)
    log = cluster.folder / f"{settings['client.id']}.log"
    command = java_command(f"{classes}{os.pathsep}{class_path}", "ScriptedStreams", log=log, level="ERROR")
    local.start(settings["client.id"], command, settings).wait_for("started")


def start_franz_go(local: LocalClients, script: Script) -> None:
    settings = {
        **script["settings"],
        "driver.topic": script["topics"][0],
        "driver.records": -1 if script["kind"] == "producer" else 0,
        "driver.rate": script.get("rate", 20),
        "driver.value_bytes": script.get("bytes", 100),
    }
    client_id = settings["client.id"]
    local.start(client_id, [franz_go_driver(), script["kind"]], settings).wait_for("started")


def _fill_backlog(local: LocalClients) -> None:
    """A consumer that is slow pushes the lag that its last fetch saw, until it has worked that off."""
    filled = local.producer(
        "java", "backlog", "backlog", records=20_000, value_bytes=500, properties={"enable.metrics.push": "false"}
    )
    filled.wait_for("done")
    filled.kill()
