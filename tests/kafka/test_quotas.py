"""Quotas of real brokers: what the receiver samples is what JMX tells, and the lake says who used how much of what."""

from __future__ import annotations

import json
import math
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from jobs.local_clients import LocalClients
from jobs.local_cluster import LocalCluster
from jobs.local_cluster.java import compile_java, java_command, kafka_class_path
from jobs.local_cluster.plugin import receiver_jar
from jobs.local_cluster.process import Process
from pipelines.quota_usage import start_quota_samples
from pipelines.quotas import check_quotas, read_quotas, sync_quotas
from pipelines.sources import KafkaSource
from pipelines.streams import Lake
from tests.lake_tables import table
from udfs.quota_usage import SAMPLES_IN, quota_usage

from .conftest import USERS
from .receiver_brokers import WAIT, messages, wait_for

pytestmark = pytest.mark.kafka

TOPIC = "client-quotas"
INTERVAL_MS = 500
LIMIT, RAISED, FETCH_LIMIT, USER_LIMIT = 100_000.0, 150_000.0, 50_000.0, 80_000.0
UNLIMITED = 2**63 - 1
Bucket = tuple[int, str, str, str]


class Quotas(KafkaSource):
    def quotas(self, spark: SparkSession) -> DataFrame:
        return self._read(spark, self.topics.quotas)


class Reading(NamedTuple):
    time_ms: float
    rate: float
    throttle_ms: float


class Jmx:
    """What the brokers' MBeans tell, read ten times a second into a file."""

    def __init__(self, cluster: LocalCluster) -> None:
        classes = compile_java([Path(__file__).with_name("BrokerQuotas.java")], kafka_class_path(cluster.version))
        self._file = cluster.folder / "jmx.tsv"
        pids = [str(part) for broker in cluster.brokers for part in (broker.node_id, broker.pid)]
        self._process = Process(java_command(str(classes), "BrokerQuotas", *pids, log=self._file), self._file)

    def close(self) -> None:
        self._process.kill()

    def readings(self) -> dict[Bucket, list[Reading]]:
        found: dict[Bucket, list[Reading]] = defaultdict(list)
        for line in self._file.read_text().splitlines()[:-1]:
            parts = line.split("\t")
            assert len(parts) == 7, line
            broker, time_ms, kind, user, client_id, rate, throttle = parts
            bucket = (int(broker), kind, user, client_id)
            found[bucket].append(Reading(float(time_ms), float(rate), float(throttle)))
        return found


def samples(cluster: LocalCluster) -> dict[Bucket, list[dict[str, Any]]]:
    """All samples of the topic by bucket, in the order of their times."""
    found: dict[Bucket, list[dict[str, Any]]] = defaultdict(list)
    for message in messages(cluster, TOPIC):
        sample = json.loads(message.value() or b"")
        found[sample["broker_id"], sample["quota_type"], sample["user"], sample["client_id"]].append(sample)
    return {bucket: sorted(held, key=lambda each: each["time_ms"]) for bucket, held in found.items()}


def limits(held: list[dict[str, Any]]) -> list[float | None]:
    """The limits of a bucket through time, repetitions left out."""
    told = [sample.get("quota_limit") for sample in held]
    return [limit for n, limit in enumerate(told) if n == 0 or limit != told[n - 1]]


@pytest.fixture(scope="module")
def brokers(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    properties = {
        "metric.reporters": "io.github.kafkatelemetrylake.receiver.ClientTelemetryLakeExporter,"
        "org.apache.kafka.common.metrics.JmxReporter",
        "client.telemetry.lander.quotas.interval.ms": INTERVAL_MS,
        "client.telemetry.lander.status.interval.ms": 1000,
    }
    with LocalCluster(
        brokers=2, plugin=receiver_jar(), properties=properties, sasl_users=USERS, log_requests=True
    ) as cluster:
        cluster.create_topic("orders", 2, replication_factor=1)
        yield cluster
        cluster.keep_folder = request.session.testsfailed > 0


@pytest.mark.slow
def test_samples_are_what_jmx_tells_and_follow_every_change(
    brokers: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    cluster, lake = brokers, str(tmp_path / "lake")

    def sync() -> None:
        configured = read_quotas(spark, cluster.bootstrap_servers, {})
        assert bool(check_quotas(lake, datetime.now(UTC), configured)) == bool(
            sync_quotas(lake, datetime.now(UTC), configured)
        )

    sync()
    cluster.set_quota(client_id="", producer_byte_rate=LIMIT)
    cluster.set_quota(client_id="eater", consumer_byte_rate=FETCH_LIMIT)
    cluster.set_quota(client_id="exempt", producer_byte_rate=UNLIMITED)
    cluster.set_quota(user="alice", producer_byte_rate=USER_LIMIT)
    cluster.set_quota(user="bob", client_id="both", producer_byte_rate=USER_LIMIT / 2)
    sync()
    jmx = Jmx(cluster)
    with LocalClients(cluster) as clients:
        size = {"value_bytes": 1000, "properties": {"batch.size": 4000, "compression.type": "none"}}
        clients.producer("librdkafka", "orders", "greedy", rate=1000, **size)
        clients.producer("librdkafka", "orders", "modest", rate=20, **size)
        clients.producer("librdkafka", "orders", "exempt", rate=300, **size)
        clients.producer("librdkafka", "orders", "of-alice", rate=300, credentials=("alice", USERS["alice"]), **size)
        clients.producer("librdkafka", "orders", "both", rate=300, credentials=("bob", USERS["bob"]), **size)
        clients.consumer("librdkafka", "orders", "eater", group="eaters", properties={"fetch.message.max.bytes": 20000})

        def throttled(kind: str, user: str, client_id: str) -> list[dict[str, Any]]:
            told = samples(cluster)
            held = [each for broker in (1, 2) for each in told.get((broker, kind, user, client_id), [])]
            return [each for each in held if each.get("throttle_time_ms", 0) > 0]

        for kind, user, client_id in (
            ("produce", "", "greedy"),
            ("fetch", "", "eater"),
            ("produce", "alice", ""),
            ("produce", "bob", "both"),
        ):
            wait_for(partial(throttled, kind, user, client_id), lambda found: len(found) >= 4)
        time.sleep(12)  # the broker's rate covers 10 s
        cluster.set_quota(client_id="", producer_byte_rate=RAISED)
        sync()
        time.sleep(3)
        cluster.set_quota(client_id="", producer_byte_rate=None)
        sync()
        time.sleep(8)
        cluster.set_quota(client_id="", producer_byte_rate=LIMIT)
        sync()
        time.sleep(3)
    jmx.close()
    time.sleep(2 * INTERVAL_MS / 1000)

    found, truth = samples(cluster), jmx.readings()
    for user, client_id in (("", "greedy"), ("", "modest"), ("", "exempt"), ("alice", ""), ("bob", "both")):
        assert {broker for broker in (1, 2) if (broker, "produce", user, client_id) in found} == {1, 2}
    for broker in (1, 2):
        # greedy has the default's limit, and its own bucket.
        assert limits(found[broker, "produce", "", "greedy"]) == [LIMIT, RAISED, None, LIMIT]
        assert limits(found[broker, "produce", "", "exempt"]) == [None]
        assert limits(found[broker, "produce", "alice", ""]) == [USER_LIMIT]
        assert limits(found[broker, "produce", "bob", "both"]) == [USER_LIMIT / 2]
        assert not any(each.get("throttle_time_ms") for each in found[broker, "produce", "", "modest"])
    errors = compare(found, truth)
    print(
        f"\n{len(errors['rate'])} samples against JMX within 200 ms: "
        + ", ".join(
            f"{name}: median error {statistics.median(each):.2%}, 90 % {statistics.quantiles(each, n=10)[-1]:.2%}"
            for name, each in errors.items()
        )
    )
    assert len(errors["rate"]) > 200
    assert statistics.median(errors["rate"]) < 0.05
    assert statistics.median(errors["throttle"]) < 0.05

    source = Quotas(cluster.bootstrap_servers, "kafka")
    job = Lake(lake, f"{lake}/_checkpoints")
    start_quota_samples(spark, job, source, None).awaitTermination()
    assert table(tmp_path / "lake", "quota_samples").num_rows >= sum(map(len, found.values()))
    usage = table(tmp_path / "lake", "quota_usage").to_pylist()
    greedy = [row for row in usage if row["client_id"] == "greedy" and row["quota_type"] == "produce"]
    assert any(row["used_percent"] == 100 and row["throttled"] and row["usage_ratio"] > 0.9 for row in greedy)
    assert {"limit_removed", "limit_changed"} & {row["status"] for row in greedy}
    modest = [row["used_percent"] for row in usage if row["client_id"] == "modest" and row["status"] == "ok"]
    assert modest
    assert max(modest) < 100
    assert {row["used_percent"] for row in usage if row["client_id"] == "exempt"} == {None}
    recall, precision = throttled_windows(cluster, table(tmp_path / "lake", "quota_samples"), 2)
    assert recall > 0.9
    assert precision > 0.8
    versions = sorted(
        (row["valid_from"], row["quota_limit"], row["not_seen_at"] is not None, row["valid_to"] is None)
        for row in table(tmp_path / "lake", "quotas").to_pylist()
        if (row["user"], row["client_id"]) == ("", "<default>")
    )
    assert [row[1:] for row in versions] == [(LIMIT, True, False), (RAISED, True, False), (LIMIT, True, True)]
    named = {
        (row["user"], row["client_id"], row["quota_type"]) for row in table(tmp_path / "lake", "quotas").to_pylist()
    }
    assert named == {
        ("", "<default>", "produce"), ("", "eater", "fetch"), ("", "exempt", "produce"), ("alice", "", "produce"),
        ("bob", "both", "produce"),
    }  # fmt: skip


def throttled_windows(cluster: LocalCluster, held: pa.Table, seconds: int) -> tuple[float, float]:
    """Recall and precision of `throttled`, against the throttle times of the responses that the clients got.

    Only of clients that got any response with a delay, and of windows between the first and the last sample.
    """
    held = held.select(SAMPLES_IN.names).cast(SAMPLES_IN)
    rows = quota_usage(held, seconds).to_pylist()
    clients = {"alice": "of-alice"}
    told = {
        (row["broker_id"], row["quota_type"], row["client_id"] or clients[row["user"]], row["window_start"])
        for row in rows
        if row["throttled"]
    }
    first, last = min(row["window_start"] for row in rows), max(row["window_start"] for row in rows)
    seen = {delay for delay in delays(cluster, seconds) if first < delay[3] < last}
    told = {row for row in told if first < row[3] < last}
    right = len(seen & told)
    recall, precision = right / len(seen), right / len(told)
    print(f"{len(seen)} windows of {seconds} s with delayed responses: recall {recall:.1%}, precision {precision:.1%}")
    return recall, precision


def delays(cluster: LocalCluster, seconds: int) -> set[tuple[int, str, str, datetime]]:
    """Broker, type, client id and window of every response that told a client of a delay, by the brokers' logs."""
    found = set()
    for broker in cluster.brokers:
        for line in broker.log_file.read_text().splitlines():
            logged = re.search(r"Completed request:(\{.*\}) \(", line)
            if logged is None or '"throttleTimeMs":' not in line:
                continue
            request = json.loads(logged[1])
            header, delay = request["requestHeader"], request["response"].get("throttleTimeMs", 0)
            kind = {"PRODUCE": "produce", "FETCH": "fetch"}.get(header["requestApiKeyName"])
            if kind and delay > 0:
                at = datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").astimezone(UTC).timestamp()
                window = datetime.fromtimestamp(at // seconds * seconds, UTC)
                found.add((broker.node_id, kind, header["clientId"], window))
    return found


def compare(found: dict[Bucket, list[dict[str, Any]]], truth: dict[Bucket, list[Reading]]) -> dict[str, list[float]]:
    """Relative errors of samples against the JMX read nearest in time, of buckets with some load."""
    errors: dict[str, list[float]] = {"rate": [], "throttle": []}
    for bucket, held in found.items():
        for sample in held:
            near = min(truth.get(bucket, []), key=lambda read: abs(read.time_ms - sample["time_ms"]), default=None)
            if near is None or abs(near.time_ms - sample["time_ms"]) > 200:
                continue
            if near.rate > 1:
                errors["rate"].append(abs(sample["observed_rate"] - near.rate) / near.rate)
            if near.throttle_ms > 0 and not math.isnan(near.throttle_ms) and "throttle_time_ms" in sample:
                errors["throttle"].append(abs(sample["throttle_time_ms"] - near.throttle_ms) / near.throttle_ms)
    return errors


def test_a_3_9_broker_is_sampled_too() -> None:
    properties = {"client.telemetry.lander.quotas.interval.ms": INTERVAL_MS}
    with LocalCluster("3.9.1", plugin=receiver_jar(), properties=properties) as cluster:
        cluster.create_topic("orders")
        cluster.set_quota(client_id="greedy", producer_byte_rate=LIMIT)
        with LocalClients(cluster) as clients:
            clients.producer("librdkafka", "orders", "greedy", rate=1000, value_bytes=1000)
            bucket = (1, "produce", "", "greedy")
            wait_for(
                lambda: samples(cluster).get(bucket, []),
                lambda held: any(each.get("throttle_time_ms", 0) > 0 for each in held),
                WAIT,
            )
        assert limits(samples(cluster)[bucket]) == [LIMIT]
