"""Scenarios whose findings take most of an hour: lags that grow or last, brokers that fall silent, idle connections.

`growing_lag` compares the quarters of a clock hour, so a run begins in the first minutes of one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

from benchmarks.finding_scenarios import (
    FOLLOWS_AN_OUTAGE,
    GOOD,
    REBOOTSTRAPS,
    VANISHING,
    Run,
    Scenario,
    Script,
    complete,
    consumer,
    of_run,
    producer,
    scenario,
    secret,
    sleep_until,
    start,
)
from benchmarks.rebootstrap_scenes import landed
from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.plugin import receiver_jar
from kafka_telemetry_lake.sandbox.cluster.proxy import METADATA, AddressProxy

LATEST_START_S, END_S = 12 * 60, 48 * 60  # of the clock hour
INTERVAL_MS = 10_000
SILENT_FROM_S, SILENT_FOR_S = 150, 460  # longer than metadata.max.age.ms, 300 s
NEAR_S, SLOW_S = 0.2, 1.2
NEAR, SLOW, SILENT = "<near>", "<slow>", "<silent>"
# Its password is another for some seconds, in which connections fail to renew their authentication. A client whose push
# is refused asks again only five minutes later.
RENEWING, REAUTHENTICATION_MS, PASSWORD_CHANGED_FOR_S = "renewing", 15_000, 30
TOPICS = ("growing", "behind", "fetched", "fetched-slowly", "steady")
UNTOLD = {"enable.metrics.push": "false"}  # what only fills a topic isn't part of a scenario
# One batch an answer: so what a consumer gets depends on how long answers take. And the lag that Java's client pushes
# is that of its last fetch: one that processes a fetch for minutes pushes a lag that falls, whatever its partition has.
ONE_BATCH = {"max.partition.fetch.bytes": 1}
FILLED_MS = 20_000  # by then a burst is in its topic
ONCE = 10**7
SMALL_BATCHES = UNTOLD | {"batch.size": 1500, "linger.ms": 50}


def hour() -> Iterator[Scenario]:
    """Scenarios of the Java client: only it pushes lag, metadata's age and closed connections."""

    def java(name: str, *scripts: Script, expect: str = "", also: str = "") -> Scenario:
        return scenario("java", name, *scripts, expect=expect, also=also)

    yield java("hour_healthy_producer", producer("steady", pause_ms=1000))
    yield java("hour_healthy_consumer", consumer("steady"))
    yield java("hour_healthy_catching_up", consumer("fetched-slowly"))
    yield java(
        "growing_lag",
        producer("growing", UNTOLD, burst=20, pause_ms=1000),
        consumer("growing", ONE_BATCH | {"max.poll.records": 10}, pause_ms=1000),
        expect="growing_lag",
        also="processing_bound time_lag",
    )
    # A backlog that it works off no faster than it grows.
    yield java(
        "time_lag",
        producer("behind", UNTOLD, burst=20_000, pause_ms=ONCE),
        producer("behind", UNTOLD, burst=10, pause_ms=1000),
        consumer("behind", ONE_BATCH | {"max.poll.records": 10}, start_ms=FILLED_MS, pause_ms=1000),
        expect="time_lag",
        also="processing_bound",
    )
    fill = producer("fetched", SMALL_BATCHES, burst=400_000, pause_ms=ONCE)
    yield java(
        "fetch_bound",
        fill,
        consumer("fetched", ONE_BATCH | {"bootstrap.servers": NEAR}, start_ms=FILLED_MS),
        expect="fetch_bound",
        also="time_lag tiny_fetches",
    )
    fill = producer("fetched-slowly", SMALL_BATCHES, burst=100_000, pause_ms=ONCE)
    yield java(
        "slow_fetches",
        fill,
        consumer("fetched-slowly", ONE_BATCH | {"bootstrap.servers": SLOW}, start_ms=FILLED_MS),
        expect="slow_fetches fetch_bound",
        also="time_lag tiny_fetches costly_commits",
    )
    yield java(
        "stale_metadata",
        producer("steady", GOOD | {"bootstrap.servers": SILENT}),
        expect="stale_metadata",
        also=f"failed_records lost_telemetry {FOLLOWS_AN_OUTAGE}",
    )
    # A push is under way for longer than an interval before it fails, so one is always lost. Java's client asks again
    # for its subscription five minutes later.
    settings = GOOD | REBOOTSTRAPS | {"metadata.recovery.rebootstrap.trigger.ms": 2 * INTERVAL_MS,
                                      "request.timeout.ms": 2 * INTERVAL_MS}  # fmt: skip
    yield java("lost_telemetry", producer("steady", settings), expect="lost_telemetry", also=FOLLOWS_AN_OUTAGE)
    yield java(
        "failed_reauthentication",
        producer("steady", GOOD),
        expect="failed_reauthentication failed_authentication",
        also=f"failed_records lost_telemetry {FOLLOWS_AN_OUTAGE}",
    )
    # A closed connection makes the client ask for metadata, over a new one: so one is closed in every 90 s.
    idle = {"connections.max.idle.ms": 90_000}
    yield java("idle_closes", producer("steady", GOOD | idle, partitions=3, burst=1, pause_ms=200_000),
               expect="idle_closes")  # fmt: skip


def run_hour() -> Run:
    """Run them side by side from now, or from the next hour on if too little of this one is left."""
    of_hour_s = time.time() % 3600
    if of_hour_s > LATEST_START_S:
        time.sleep(3600 - of_hour_s + 1)
    seconds = END_S - time.time() % 3600
    scenarios = list(hour())
    users, properties = {RENEWING: secret(RENEWING)}, {"connections.max.reauth.ms": REAUTHENTICATION_MS}
    with (
        LocalCluster(brokers=3, plugin=receiver_jar(), scram_users=users, properties=properties) as cluster,
        ExitStack() as stack,
    ):
        cluster.subscribe("all", ["org.apache.kafka."], INTERVAL_MS, ["client_id=telemetry-.*"])
        for name in TOPICS:
            cluster.create_topic(name, 3 if name == "steady" else 1, replication_factor=1)
        ports = [broker.port for broker in cluster.brokers]
        proxies = {name: stack.enter_context(AddressProxy(ports)) for name in (NEAR, SLOW, SILENT, VANISHING)}
        proxies[NEAR].delays |= dict.fromkeys(ports, NEAR_S)
        proxies[SLOW].delays |= dict.fromkeys(ports, SLOW_S)
        addresses = {name: proxy.bootstrap_servers for name, proxy in proxies.items()}
        local = stack.enter_context(LocalClients(cluster))
        run = Run(scenarios)
        begun = time.monotonic()
        scripts = [complete(one, script, cluster, addresses) for one in scenarios for script in one.scripts]
        for script in scripts:
            if script["settings"]["client.id"].endswith("failed_reauthentication"):
                script["settings"] |= _credentials(cluster)
        start(local, cluster, "java", scripts)
        sleep_until(begun + SILENT_FROM_S)
        proxies[VANISHING].vanish(with_bootstrap=True)
        proxies[SILENT].unanswered = frozenset({METADATA})
        _set_password(cluster, "another")
        time.sleep(PASSWORD_CHANGED_FOR_S)
        _set_password(cluster, secret(RENEWING))
        sleep_until(begun + SILENT_FROM_S + SILENT_FOR_S)
        proxies[SILENT].unanswered = frozenset()
        sleep_until(begun + seconds)
        run.landed = of_run(run, landed(cluster))
    return run


def _credentials(cluster: LocalCluster) -> Mapping[str, object]:
    assert cluster.tls is not None
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "bootstrap.servers": cluster.tls_bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} required username="{RENEWING}" password="{secret(RENEWING)}";',
        "ssl.truststore.location": str(cluster.tls.truststore),
        "ssl.truststore.password": cluster.tls.password,
    }


def _set_password(cluster: LocalCluster, password: str) -> None:
    cluster.tool(
        "kafka.admin.ConfigCommand", "--alter", "--entity-type", "users", "--entity-name", RENEWING,
        "--add-config", f"SCRAM-SHA-512=[password={password}]",
    )  # fmt: skip
