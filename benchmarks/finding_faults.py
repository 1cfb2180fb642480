"""Scenarios of faults around clients: wrong clocks, brokers that disagree, telemetry that outgrows a limit, quotas.

Their findings need more than pushes: events of the lifecycle, windows of quotas, shares of all principals. So the job
itself runs beside them, and what view `findings` says is read while it does.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from deltalake import DeltaTable
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from benchmarks.finding_scenarios import (
    FINDINGS,
    FOLLOWS_AN_OUTAGE,
    GOOD,
    RAW,
    Found,
    Scenario,
    Script,
    complete,
    consumer,
    installed,
    producer,
    scenario,
    secret,
    sleep_until,
    start,
    wait_for_an_hour_that_holds,
)
from benchmarks.job import Job
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.plugin import receiver_jar
from kafka_telemetry_lake.sandbox.cluster.proxy import AddressProxy
from tests.support.telemetry_request import RawClient

INTERVAL_MS = 4000
SECONDS, LOOK_S = 240, 10.0
MOVED_AT, MORE_TOPICS_AT = 40, 50  # s from the start; a client is silent after a minute without a push
GREEDY, STRANGER = "greedy", "stranger"
OTHERS = tuple(f"user-{number}" for number in range(19))
DISAGREES = 3  # the broker that doesn't know STRANGER
MANY = 480  # partitions; lag and lead of each make pushes of nine tenths of telemetry.max.bytes
PAYLOAD_MAX_BYTES = 1_020_000  # of the receiver; brokers refuse pushes above 1,048,576
MOVED = "<moved>"
CLOCKS = {"java": "+600", "librdkafka": "-600"}  # s


@dataclass
class Faults:
    """Scenarios that ran side by side, and what was found in each, by rule."""

    scenarios: list[Scenario]
    found: dict[Scenario, dict[str, Found]] = field(default_factory=lambda: defaultdict(dict))


def faults() -> Iterator[Scenario]:
    """Scenarios of all libraries that can have the fault."""

    def java(name: str, *scripts: Script, expect: str = "", also: str = "") -> Scenario:
        return scenario("java", name, *scripts, expect=expect, also=also)

    own = [producer("records", user=user, suffix=f"-{user}", pause_ms=1000) for user in OTHERS]
    yield java("healthy_principals", *own)
    # A group of its own each, and one of all topics; whose pushes are most of the bytes is the finding's subject.
    yield java("large_telemetry", consumer("many", user=GREEDY), expect="large_telemetry", also="tiny_fetches")
    # Cooperative: others push no lag any more of partitions without records after a rebalance.
    cooperative = {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"}
    grows = consumer(["many", "more"], cooperative | {"metadata.max.age.ms": 5000}, user=GREEDY)
    yield java("telemetry_cut_off", grows, expect="telemetry_cut_off", also="large_telemetry tiny_fetches")
    yield java(f"User:{GREEDY}", expect="greedy_principal")
    yield java(
        "failed_authentication",
        producer("records", GOOD, user=STRANGER, partitions=3),
        expect="failed_authentication",
        also=f"failed_records lost_telemetry buffer_filling {FOLLOWS_AN_OUTAGE}",
    )
    none = {"metadata.recovery.strategy": "none", "metadata.max.age.ms": 3000, "bootstrap.servers": MOVED}
    # Of six: one whose last push went to an address that is gone now can't push either.
    yield java(
        "dead_data_path",
        *[producer("records", GOOD | none)] * 6,
        expect="dead_data_path",
        also=f"failed_records lost_telemetry stale_metadata {FOLLOWS_AN_OUTAGE}",
    )
    near_its_quota = producer("records", bytes=2000, burst=1, partitions=1, pause_ms=100, random=True)
    yield java("quota_headroom_short", near_its_quota, expect="quota_headroom_short")
    for library in CLOCKS:
        yield scenario(library, "wrong_clock", producer("records", pause_ms=1000), expect="wrong_clock")
    yield scenario("librdkafka", "healthy_beside_faults", producer("records", pause_ms=1000))
    for name in RAW_CLIENTS:
        yield scenario(RAW, name, expect=name)


def run_faults(seconds: int = SECONDS) -> Faults:
    """Run them, on brokers of their own; wrong clocks only where faketime is installed."""
    wait_for_an_hour_that_holds(seconds + 150)
    clocks = installed("faketime", "scenarios of a wrong clock")
    scenarios = [one for one in faults() if one.name != "wrong_clock" or clocks]
    users = {user: secret(user) for user in (*OTHERS, GREEDY, STRANGER)}
    properties = {"client.telemetry.lander.payload.max.bytes": PAYLOAD_MAX_BYTES}
    with (
        tempfile.TemporaryDirectory() as scratch,
        LocalCluster(brokers=3, plugin=receiver_jar(), sasl_users=users, properties=properties) as cluster,
        LocalClients(cluster) as local,
        ExitStack() as stack,
    ):
        _disagree(cluster)
        cluster.subscribe("all", ["org.apache.kafka."], INTERVAL_MS, ["client_id=telemetry-.*"])
        for name, partitions in {"records": 3, "many": MANY}.items():
            cluster.create_topic(name, partitions, replication_factor=1)
        cluster.set_quota(client_id="telemetry-java-quota_headroom_short", producer_byte_rate=24_000)
        ports = [broker.port for broker in cluster.brokers]
        moved = stack.enter_context(AddressProxy(ports))
        job = stack.enter_context(Job(cluster.bootstrap_servers, Path(scratch) / "lake"))
        with RawClient(ports[0], "telemetry-first") as first:
            first.push(first.subscribed(), _metrics(0))
        job.wait_for(1)  # a job that starts beside so many clients would find all of it at the end
        begun = time.monotonic()
        _start(cluster, local, scenarios, moved)
        ended = threading.Event()
        for name, act in RAW_CLIENTS.items():
            thread = threading.Thread(target=act, args=(ports[0], scenario(RAW, name).client_id, ended))
            thread.start()
            stack.callback(thread.join)
        stack.callback(ended.set)
        acts: list[tuple[float, Callable[[], object]]] = [
            (MOVED_AT, moved.move),
            (MORE_TOPICS_AT, lambda: cluster.create_topic("more", MANY // 2, replication_factor=1)),
        ]
        run = Faults(scenarios)
        while time.monotonic() < begun + seconds:
            while acts and time.monotonic() >= begun + acts[0][0]:
                acts.pop(0)[1]()
            next_look = time.monotonic() + LOOK_S
            job.check()
            _look(job.lake, run)
            sleep_until(min([next_look, *(begun + at for at, _ in acts[:1])]))
        _look(job.lake, run)
    return run


def _disagree(cluster: LocalCluster) -> None:
    """Make one broker forget a user."""
    broker = cluster.broker(DISAGREES)
    broker.stop()
    settings = cluster.folder / f"broker-{DISAGREES}" / "server.properties"
    text = settings.read_text("utf-8")
    settings.write_text(text.replace(f' user_{STRANGER}="{secret(STRANGER)}"', ""), "utf-8")
    broker.start()


def _start(cluster: LocalCluster, local: LocalClients, scenarios: list[Scenario], moved: AddressProxy) -> None:
    addresses = {MOVED: moved.bootstrap_servers}
    # Its lag is pushed once there are records.
    fill = producer("more", {"enable.metrics.push": "false"}, partitions=MANY // 2, burst=MANY // 2, pause_ms=1000)
    fills = {"java": [complete(scenario("java", "fills"), fill, cluster, addresses)]}
    for library, ahead in CLOCKS.items():
        scripts = {one: [complete(one, script, cluster, addresses) for script in one.scripts]
                   for one in scenarios if one.library == library}  # fmt: skip
        late = [script for one, own in scripts.items() if one.name == "wrong_clock" for script in own]
        rest = [script for one, own in scripts.items() if one.name != "wrong_clock" for script in own]
        start(local, cluster, library, [*rest, *fills.get(library, [])])
        if late:
            start(local, cluster, library, late, ["faketime", "-m", "-f", f"{ahead}s"])


def _look(lake: Path, run: Faults) -> None:
    """Note what is found by now for the first time."""
    if not DeltaTable.is_deltatable(PUSHES.uri(str(lake))):
        return
    rows = run_query(str(lake), FINDINGS).read_all().to_pylist()
    seen = datetime.now(UTC)
    pushed = run_query(str(lake), "SELECT client_id, min(landed_at) AS first FROM pushes GROUP BY client_id").read_all()
    first: dict[str, datetime] = dict(zip(*(pushed[name].to_pylist() for name in pushed.column_names), strict=True))
    for row in rows:
        for one in run.scenarios:
            if one.has(row["client_id"] or row["subject"]):
                own = [at for client_id, at in first.items() if one.has(client_id)] or list(first.values())
                after_s = (seen - min(own)).total_seconds()
                run.found[one].setdefault(row["finding"], Found(round(after_s), row["evidence"]))


# What no library does: each pushes by itself until the end.


def _pushes(payload: Callable[[int], bytes], intervals: int = 1) -> Callable[[int, str, threading.Event], None]:
    def act(port: int, client_id: str, ended: threading.Event) -> None:
        with RawClient(port, client_id) as client:
            subscribed = client.subscribed()
            number = 0
            while not ended.is_set():
                assert client.push(subscribed, payload(number)) == 0
                number += 1
                ended.wait(intervals * INTERVAL_MS / 1000)

    return act


def _metrics(number: int, *, wrong: bool = False) -> bytes:
    """A push of one gauge; if it is wrong with a second point, which has no time."""
    data = pb.MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name="org.apache.kafka.producer.raw")
    metric.gauge.data_points.add(as_double=number, time_unix_nano=time.time_ns())
    if wrong:
        metric.gauge.data_points.add(as_double=number)
    return data.SerializeToString()


def _two_senders(port: int, client_id: str, ended: threading.Event) -> None:
    """Two hosts in turn under one client instance id."""
    with RawClient(port, client_id) as one, RawClient(port, client_id, "127.0.0.2") as other:
        subscribed = one.subscribed()
        number = 0
        while not ended.is_set():
            assert (one, other)[number % 2].push(subscribed, _metrics(number)) == 0
            number += 1
            ended.wait(INTERVAL_MS / 1000)


RAW_CLIENTS: Mapping[str, Callable[[int, str, threading.Event], None]] = {
    "dropped_telemetry": _pushes(lambda _: random.randbytes(PAYLOAD_MAX_BYTES + 1000), intervals=5),
    "unreadable_telemetry": _pushes(lambda _: random.randbytes(100)),
    "rejected_points": _pushes(lambda number: _metrics(number, wrong=True)),
    "duplicate_instance": _two_senders,
}
