"""Healthy clients of the kinds that do something special, half an hour each: nothing may be found in any of them.

Consumers that poll for minutes, that pause or were assigned by hand, workers of Connect and MirrorMaker 2 with their
default partitions, Streams, a share group, Spark's source, and librdkafka in Go, JavaScript and Rust.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from benchmarks.bindings import BINDINGS, BindingUnavailableError, binding
from benchmarks.finding_scenarios import (
    Run,
    Scenario,
    Script,
    client_ids,
    complete,
    consumer,
    installed,
    of_run,
    producer,
    scenario,
    sleep_until,
    start,
    start_franz_go,
    wait_for_an_hour_that_holds,
)
from benchmarks.rebootstrap_scenes import landed
from kafka_telemetry_lake.pipelines.runtime.jars import jars
from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.java import java_command, kafka_class_path
from kafka_telemetry_lake.sandbox.cluster.plugin import receiver_jar
from kafka_telemetry_lake.sandbox.cluster.process import Process

SECONDS, INTERVAL_MS = 1800, 10_000
TOPICS = {"records": 3, "quiet": 2, "backlog": 1, "copied": 1, "mirrored": 2, "lines": 2, "word-counts": 1, "orders": 2}
UNTOLD = {"enable.metrics.push": "false"}  # what only fills a topic isn't part of a scenario
LONG_POLL_MS, LONGER_POLL_MS = 160_000, 400_000
PAUSED_FROM_MS = 60_000
CONNECT = "telemetry-connect"
_FILE = "org.apache.kafka.connect.file.FileStream"
# Client ids and groups that these programs give themselves.
_CONNECT_IDS = (
    f"{CONNECT}-.+|connector-(dlq-)?(producer|consumer|adminclient)-telemetry-.+|connect-telemetry-.+|{CONNECT}"
)
_MIRROR_IDS = r"(here|there)(->|-mm2).*|connector-producer-Mirror.+"
_SPARK_IDS = "(consumer-)?spark-kafka-source-.+"


def kinds() -> Iterator[Scenario]:
    """All of them, whether or not their libraries are installed."""

    def healthy(library: str, name: str, *scripts: Script, ids: str = "") -> Scenario:
        return scenario(library, f"kind_{name}", *scripts, ids=ids)

    def by_hand(name: str) -> Script:
        return consumer(name, {"group.id": "telemetry-by-hand"}, by_hand=True)

    yield healthy("java", "long_poll", consumer("quiet", poll_ms=LONG_POLL_MS))
    yield healthy("java", "longer_poll", consumer("quiet", poll_ms=LONGER_POLL_MS))
    yield healthy("java", "paused", consumer("backlog", {"max.poll.records": 10}, paused_from_ms=PAUSED_FROM_MS))
    # One group.id, but nobody is a member: 3, 2 and 1 partitions.
    yield healthy("java", "by_hand", *map(by_hand, ("records", "quiet", "orders")), ids="telemetry-by-hand")
    yield healthy("java", "connect", ids=_CONNECT_IDS)
    yield healthy("java", "mirror_maker", ids=_MIRROR_IDS)
    yield healthy("java", "streams", ids="word-counts")
    yield healthy("java", "share_group")
    yield healthy("java", "spark", ids=_SPARK_IDS)
    for name in BINDINGS:
        for kind in (producer, consumer):
            yield healthy("librdkafka", f"{name}_{kind.__name__}", kind("records"))
    yield healthy("franz_go", "producer", producer("records"))
    yield healthy("franz_go", "consumer", consumer("records"))


def run_kinds(seconds: int = SECONDS) -> Run:
    """Run those whose libraries are installed side by side, on one broker; a line says what is left out."""
    wait_for_an_hour_that_holds(seconds + 150)
    franz_go = installed("go", "franz-go's scenarios")
    built = dict(_built())
    scenarios = [one for one in kinds() if _runs(one, built, franz_go=franz_go)]
    run = Run(scenarios)
    named = {one.name.removeprefix("kind_"): one for one in scenarios if one.library == "java"}
    with LocalCluster(brokers=1, plugin=receiver_jar()) as cluster, ExitStack() as stack:
        cluster.subscribe("all", ["org.apache.kafka."], INTERVAL_MS)
        for name, partitions in TOPICS.items():
            cluster.create_topic(name, partitions)
        local = stack.enter_context(LocalClients(cluster))
        _fill(local, cluster)
        begun = time.monotonic()
        lines = cluster.folder / "lines.txt"
        lines.write_text("a line\n")
        start(local, cluster, "java", [
            complete(one, script, cluster, {}) for one in named.values() for script in one.scripts])  # fmt: skip
        local.word_count("lines", "word-counts", named["streams"].client_id)
        for number in range(2):
            share = named["share_group"].client_id
            local.share_consumer("orders", f"{share}-{number}", group=share).wait_for("started")
        local.connect_worker(CONNECT, _connectors(lines, cluster.folder), default_partitions=True)
        stack.callback(_mirror_maker(cluster).stop)
        _start_spark(local)
        for one in scenarios:
            for script in one.scripts:
                if one.library == "franz_go":
                    start_franz_go(local, complete(one, script, cluster, {}))
                elif one.library == "librdkafka":
                    _start_binding(local, built[one.name.split("_")[1]], complete(one, script, cluster, {}))
        while time.monotonic() < begun + seconds:
            with lines.open("a") as more:
                more.write("another line\n")
            sleep_until(min(begun + seconds, time.monotonic() + 5))
        everything = landed(cluster)
        run.landed = of_run(run, everything)
        if unknown := strangers(run, everything):
            print(f"clients of no scenario: {', '.join(unknown)}", flush=True)
    return run


def strangers(run: Run, records: pa.Table) -> list[str]:
    """Client ids that pushed and belong to no scenario."""
    return sorted(name for name in set(client_ids(records)) if not any(one.has(name) for one in run.scenarios))


def _built() -> Iterator[tuple[str, list[str]]]:
    for name in BINDINGS:
        try:
            yield name, binding(name)
        except BindingUnavailableError as error:
            print(f"{error}: scenarios of librdkafka in {name} are left out", flush=True)


def _runs(one: Scenario, built: dict[str, list[str]], *, franz_go: bool) -> bool:
    if one.library == "librdkafka":
        return one.name.split("_")[1] in built
    return one.library != "franz_go" or franz_go


def _fill(local: LocalClients, cluster: LocalCluster) -> None:
    """Records in every topic, and more all the time but in the quiet ones."""
    once = local.producer("java", "backlog", "backlog", records=20_000, value_bytes=500, properties=UNTOLD)
    once.wait_for("done")
    once.kill()
    scripts = [producer(name, UNTOLD, burst=1, pause_ms=10**7) for name in ("quiet", "copied")]
    scripts += [producer(name, UNTOLD, burst=5, pause_ms=1000) for name in ("mirrored", "lines", "orders")]
    fills = scenario("java", "fills", *scripts)
    start(local, cluster, "java", [complete(fills, script, cluster, {}) for script in scripts])


def _connectors(lines: Path, folder: Path) -> dict[str, dict[str, object]]:
    return {
        "telemetry-read": {"connector.class": f"{_FILE}SourceConnector", "file": lines, "topic": "copied"},
        "telemetry-write": {
            "connector.class": f"{_FILE}SinkConnector", "file": folder / "out.txt", "topics": "copied"},
    }  # fmt: skip


def _mirror_maker(cluster: LocalCluster) -> Process:
    """MirrorMaker 2 as a program of its own, from the cluster to itself: its topic gets another name."""
    settings = {
        "clusters": "here,there", "here.bootstrap.servers": cluster.bootstrap_servers,
        "there.bootstrap.servers": cluster.bootstrap_servers, "here->there.enabled": "true",
        "here->there.topics": "mirrored", "here->there.groups": "no-group",
        "replication.factor": 1,
    }  # fmt: skip
    for topic in ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", *(
            f"{kind}.storage" for kind in ("config", "offset", "status"))):  # fmt: skip
        settings[f"{topic}.replication.factor"] = 1
    file, log = cluster.folder / "mirror.properties", cluster.folder / "mirror.log"
    file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()), encoding="utf-8")
    class_path = kafka_class_path("4.3.1", *jars("connect-mirror-4.3.1"))
    return Process(java_command(class_path, "org.apache.kafka.connect.mirror.MirrorMaker", file, log=log), log)


def _start_spark(local: LocalClients) -> None:
    settings = {"driver.topic": "records", "driver.trigger": "40 seconds"}
    command: Sequence[str | Path] = [sys.executable, Path(__file__).with_name("scripted_spark.py")]
    local.start("spark", command, settings).wait_for("started", 120)


def _start_binding(local: LocalClients, command: list[str], script: Script) -> None:
    settings = {
        **script["settings"], "driver.topic": script["topics"][0], "driver.pause_ms": script.get("pause_ms", 0)
    }  # fmt: skip
    if script["kind"] == "producer":
        settings |= {"linger.ms": 20}
    local.start(settings["client.id"], [*command, script["kind"]], settings).wait_for("started")
