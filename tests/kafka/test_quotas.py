"""Quotas of real brokers: what the receiver samples is what JMX tells, and the lake says who used how much of what."""

from __future__ import annotations

import bisect
import json
import math
import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kafka_telemetry_lake.pipelines.lake.config_history import check
from kafka_telemetry_lake.pipelines.query.formats import write_table
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.quotas.configured import read_quotas
from kafka_telemetry_lake.pipelines.tables.quotas import QUOTAS
from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.java import compile_java, java_command, kafka_class_path
from kafka_telemetry_lake.sandbox.cluster.plugin import receiver_jar
from kafka_telemetry_lake.sandbox.cluster.process import Process
from kafka_telemetry_lake.udfs.quotas.usage import SAMPLES_IN, quota_usage
from tests.conftest import Ingest
from tests.support.config_polls import record_quotas
from tests.support.lake_tables import table
from tests.support.patience import wait_until
from tests.support.topic_messages import messages

from .conftest import USERS
from .receiver_brokers import wait_for

pytestmark = pytest.mark.kafka

TOPIC = "client-quotas"
INTERVAL_MS = 500
PUSH_INTERVAL_MS = 2000
STEADY_S = 32  # the broker's rate covers 10 s; then windows of 10 s at steady load
NEAR_MS = 200
LEAST_SAMPLES = 50  # so near; on a busy machine it takes longer to have them
THROTTLE_TIME = "org.apache.kafka.producer.produce.throttle.time.max"
LIMIT, RAISED, FETCH_LIMIT, USER_LIMIT = 100_000.0, 150_000.0, 50_000.0, 80_000.0
UNLIMITED = 2**63 - 1
Bucket = tuple[int, str, str, str]


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
    return {bucket: sorted(each, key=lambda sample: sample["time_ms"]) for bucket, each in found.items()}


def limits(samples_of_bucket: list[dict[str, Any]]) -> list[float | None]:
    """The limits of a bucket over time, without repetitions."""
    values = [sample.get("quota_limit") for sample in samples_of_bucket]
    return [limit for n, limit in enumerate(values) if n == 0 or limit != values[n - 1]]


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
    brokers: LocalCluster, spark: SparkSession, ingest: Ingest, tmp_path: Path
) -> None:
    cluster, lake = brokers, tmp_path / "lake"
    flags = ("--bootstrap-servers", cluster.bootstrap_servers)

    def sync(quotas: int) -> None:
        """Into the lake, once the brokers know so many."""
        look = partial(read_quotas, spark, cluster.bootstrap_servers, {})
        configured = wait_for(look, lambda found: len(found.quotas) == quotas)
        assert bool(check(QUOTAS, str(lake), configured.cluster_id, configured.quotas, datetime.now(UTC))) == bool(
            record_quotas(str(lake), datetime.now(UTC), configured)
        )

    sync(0)
    cluster.set_quota(client_id="", producer_byte_rate=LIMIT)
    cluster.set_quota(client_id="eater", consumer_byte_rate=FETCH_LIMIT)
    cluster.set_quota(client_id="exempt", producer_byte_rate=UNLIMITED)
    cluster.set_quota(user="alice", producer_byte_rate=USER_LIMIT)
    cluster.set_quota(user="bob", client_id="both", producer_byte_rate=USER_LIMIT / 2)
    sync(5)
    cluster.subscribe("quotas", ["org.apache.kafka.producer.", "org.apache.kafka.consumer."], PUSH_INTERVAL_MS)
    jmx = Jmx(cluster)
    with LocalClients(cluster) as clients:
        size: dict[str, Any] = {"value_bytes": 1000, "properties": {"batch.size": 4000, "compression.type": "none"}}
        clients.producer("librdkafka", "orders", "greedy", rate=1000, **size)
        clients.producer("librdkafka", "orders", "modest", rate=20, **size)
        clients.producer("librdkafka", "orders", "exempt", rate=300, **size)
        clients.producer("librdkafka", "orders", "of-alice", rate=300, credentials=("alice", USERS["alice"]), **size)
        clients.producer("librdkafka", "orders", "both", rate=300, credentials=("bob", USERS["bob"]), **size)
        clients.producer("java", "orders", "counting", rate=60, **size)
        clients.consumer("librdkafka", "orders", "eater", group="eaters", properties={"fetch.message.max.bytes": 20000})

        def throttled(kind: str, user: str, client_id: str) -> list[dict[str, Any]]:
            by_bucket = samples(cluster)
            sampled = [each for broker in (1, 2) for each in by_bucket.get((broker, kind, user, client_id), [])]
            return [each for each in sampled if each.get("throttle_time_ms", 0) > 0]

        for kind, user, client_id in (
            ("produce", "", "greedy"),
            ("fetch", "", "eater"),
            ("produce", "alice", ""),
            ("produce", "bob", "both"),
        ):
            wait_for(partial(throttled, kind, user, client_id), lambda found: len(found) >= 4)

        def newest_limit(bucket: tuple[int, str, str, str]) -> Any:
            return limits(samples(cluster)[bucket])[-1]

        def change(limit: float | None, quotas: int) -> None:
            """Set the default's limit, and go on when both brokers have sampled it."""
            cluster.set_quota(client_id="", producer_byte_rate=limit)
            for broker in (1, 2):
                bucket = (broker, "produce", "", "greedy")
                wait_for(partial(newest_limit, bucket), lambda found: found == limit)
            sync(quotas)

        time.sleep(STEADY_S)
        wait_until(lambda: min(map(len, compare(samples(cluster), jmx.readings()).values())) > LEAST_SAMPLES, every_s=5)
        change(RAISED, 5)
        time.sleep(20)  # a whole window of 10 s
        change(None, 4)
        time.sleep(8)
        change(LIMIT, 5)
        time.sleep(12)  # the window of 10 s that the limit changed in is over
        # While the clients run: who is closest to a limit is said of now, and closing them takes time.
        ingest(None, lake, *flags)
        check_headroom(lake)
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
    print(f"\nagainst JMX within {NEAR_MS} ms:")
    for name, each in errors.items():
        print(
            f"  {name}: {len(each)} samples, median error {statistics.median(each):.2%}, "
            f"90 % {statistics.quantiles(each, n=10)[-1]:.2%}"
        )
    assert min(map(len, errors.values())) > LEAST_SAMPLES
    assert all(statistics.median(each) < 0.05 for each in errors.values())

    ingest(None, lake, *flags)
    assert table(lake, "quota_samples").num_rows >= sum(map(len, found.values()))
    counts = table(lake, "receiver_health").sort_by("reported_at").to_pylist()[-1]
    assert (counts["quota_samples_landed"] > 0, counts["quota_samples_lost"]) == (True, 0)
    usage = table(lake, "quota_usage").to_pylist()
    sampled = [row for row in usage if row["source"] == "broker"]
    greedy = [row for row in sampled if row["client_id"] == "greedy" and row["quota_type"] == "produce"]
    assert any(row["used_percent"] == 100 and row["throttled"] and row["usage_ratio"] > 0.9 for row in greedy)
    assert {"limit_removed", "limit_changed"} & {row["status"] for row in greedy}
    modest = [row["used_percent"] for row in sampled if row["client_id"] == "modest" and row["status"] == "ok"]
    assert modest
    assert max(modest) < 100
    assert {row["used_percent"] for row in sampled if row["client_id"] == "exempt"} == {None}
    evidence = {(row["user"], row["client_id"]) for row in usage if row["source"] == "evidence"}
    # A client that is throttled for long may not push that it was.
    pushed = table(lake, "metric_points").to_pylist()
    throttled_ids = {row["client_id"] for row in pushed if row["metric"] == THROTTLE_TIME and (row["value"] or 0) > 0}
    buckets = {"greedy": ("", "greedy"), "of-alice": ("alice", ""), "both": ("bob", "both")}
    assert {"greedy"} <= throttled_ids <= buckets.keys()
    assert {buckets[client_id] for client_id in throttled_ids} <= evidence
    assert ("", "modest") not in evidence
    recall, precision = throttled_windows(cluster, table(lake, "quota_samples"), 2)
    assert recall > 0.9
    assert precision > 0.8
    versions = sorted(
        (row["valid_from"], row["quota_limit"], row["not_seen_at"] is not None, row["valid_to"] is None)
        for row in table(lake, "quotas").to_pylist()
        if (row["user"], row["client_id"]) == ("", "<default>")
    )
    assert [row[1:] for row in versions] == [(LIMIT, True, False), (RAISED, True, False), (LIMIT, True, True)]
    named = {(row["user"], row["client_id"], row["quota_type"]) for row in table(lake, "quotas").to_pylist()}
    assert named == {
        ("", "<default>", "produce"), ("", "eater", "fetch"), ("", "exempt", "produce"), ("alice", "", "produce"),
        ("bob", "both", "produce"),
    }  # fmt: skip
    check_views(lake)


def ask(lake: Path, sql: str) -> list[dict[str, Any]]:
    """A question of docs/quotas.md and its answer, printed as `telemetry-lake query` does."""
    answer = run_query(str(lake), sql).read_all()
    print(f'\n$ telemetry-lake query --lake my-lake "{sql}"')
    write_table(answer.to_reader(), sys.stdout)
    rows: list[dict[str, Any]] = answer.to_pylist()
    return rows


def check_headroom(lake: Path) -> None:
    headroom = ask(
        lake,
        "SELECT quota_type, user, client_id, broker_id, round(observed_rate) AS rate, quota_limit, "
        "round(used_percent, 1) AS used_percent, throttled FROM quota_headroom WHERE quota_limit > 0 "
        "AND client_id NOT LIKE 'client-telemetry%' ORDER BY used_percent DESC, client_id, broker_id",
    )
    assert headroom[0]["used_percent"] == 100
    assert {row["broker_id"] for row in headroom if row["client_id"] == "modest"} == {1, 2}


def check_views(lake: Path) -> None:
    stretches = ask(
        lake,
        "SELECT quota_type, user, client_id, shared, since, throttled_s, brokers, round(max_throttle_ms) AS max_ms, "
        "client_instance_ids FROM throttled_clients ORDER BY quota_type, user, client_id, since",
    )
    entities = {("produce", "", "greedy"), ("produce", "alice", ""), ("produce", "bob", "both"), ("fetch", "", "eater")}
    assert {(row["quota_type"], row["user"], row["client_id"]) for row in stretches} == entities
    assert [1, 2] in [row["brokers"] for row in stretches if row["client_id"] == "greedy"]
    instances = {row["client_id"]: row["client_instance_id"] for row in table(lake, "pushes").to_pylist()}
    if (lake / "client_changes").exists():
        alice = next(row for row in stretches if row["user"] == "alice")
        assert alice["client_instance_ids"] == [instances["of-alice"]]
    ask(
        lake,
        "SELECT user, client_id, quota_type, limit_before, quota_limit, valid_from, valid_to FROM quota_history "
        "WHERE client_id = '<default>' ORDER BY valid_from",
    )
    unlimited = ask(
        lake,
        "SELECT client_id, user, quota_type, exempted_by FROM unlimited_clients WHERE quota_type = 'produce' "
        "ORDER BY client_id",
    )
    assert {row["client_id"]: row["exempted_by"] for row in unlimited} == {"exempt": "user= client-id=exempt"}
    on = ask(lake, "SELECT quota_type, enforced, since, limits, exempt FROM quota_enforcement ORDER BY quota_type")
    assert [(row["quota_type"], row["enforced"], row["limits"], row["exempt"]) for row in on] == [
        ("fetch", True, 1, []),
        ("produce", True, 3, ["user= client-id=exempt"]),
    ]
    changes = ask(
        lake,
        "SELECT at, limit_before, limit_after, round(rate_before) AS rate_before, round(rate_after) AS rate_after, "
        "throttled_windows_before, throttled_windows_after FROM quota_changes WHERE client_id = '<default>' "
        "ORDER BY at",
    )
    assert [(row["limit_before"], row["limit_after"]) for row in changes] == [
        (None, LIMIT), (LIMIT, RAISED), (RAISED, None), (None, LIMIT),
    ]  # fmt: skip
    assert changes[1]["throttled_windows_before"] > 0
    assert changes[1]["rate_after"] > 0
    (error,) = ask(
        lake,
        "SELECT client_id, count(*) AS windows, round(median(abs(error)), 4) AS median_error, "
        "round(avg(used_percent), 2) AS used_percent, round(avg(estimated_percent), 2) AS estimated_percent "
        "FROM quota_estimate_error WHERE window_seconds = 10 GROUP BY client_id ORDER BY client_id",
    )
    assert error["client_id"] == "counting"
    # Over all windows: single ones differ, since a broker's rate is that of the 10 s before each sample.
    assert error["estimated_percent"] == pytest.approx(error["used_percent"], rel=0.15)


def throttled_windows(cluster: LocalCluster, sampled: pa.Table, seconds: int) -> tuple[float, float]:
    """Recall and precision of `throttled`, against the throttle times of the responses that the clients got.

    Of windows in which the entity was sampled as often as it should be, and the ones around them: on a busy machine
    some aren't, and say nothing about the rule.
    """
    sampled = sampled.select(SAMPLES_IN.names).cast(SAMPLES_IN)
    rows = quota_usage(sampled, seconds).to_pylist()
    clients = {"alice": "of-alice"}

    def key(row: dict[str, Any], step: int = 0) -> Any:
        start = row["window_start"] + timedelta(seconds=step * seconds)
        return row["broker_id"], row["quota_type"], row["client_id"] or clients.get(row["user"]), start

    whole = {key(row) for row in rows if row["samples"] >= 1000 * seconds / INTERVAL_MS}
    judged = {key(row) for row in rows if all(key(row, step) in whole for step in (-1, 0, 1))}
    throttled = {key(row) for row in rows if row["throttled"]} & judged
    seen = delays(cluster, seconds) & judged
    right = len(seen & throttled)
    assert len(seen) > 20
    recall, precision = right / len(seen), right / len(throttled)
    print(f"{len(seen)} windows of {seconds} s with delayed responses: recall {recall:.1%}, precision {precision:.1%}")
    return recall, precision


def delays(cluster: LocalCluster, seconds: int) -> set[tuple[int, str, str, datetime]]:
    """Broker, type, client id and window of every response that stated a delay, by the brokers' logs."""
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
    """Relative errors of samples, and of what follows from them, against the JMX reads just before and after them.

    A rate falls evenly with time between two records, so the truth at a sample's time lies on the line between reads.
    """
    errors: dict[str, list[float]] = {"rate": [], "used_percent": [], "throttle time": [], "delay": []}
    for bucket, sampled in found.items():
        reads = truth.get(bucket, [])
        for sample in sampled:
            after = bisect.bisect([read.time_ms for read in reads], sample["time_ms"])
            around = reads[max(after - 1, 0) : after + 1]
            if len(around) < 2 or max(abs(read.time_ms - sample["time_ms"]) for read in around) > NEAR_MS:
                continue
            throttles, throttle_ms = [read.throttle_ms for read in around], sample.get("throttle_time_ms", 0.0)
            if throttle_ms and not math.isnan(sum(throttles)) and min(throttles) > 0:
                errors["throttle time"].append(min(_error(throttle_ms, each) for each in throttles))
            (first, rate, _), (last, next_rate, _) = around
            expected = rate + (next_rate - rate) * (sample["time_ms"] - first) / max(last - first, 1)
            limit, rate = sample.get("quota_limit"), sample.get("observed_rate", 0.0)
            if expected <= 1:
                continue
            errors["rate"].append(_error(rate, expected))
            if limit is None:
                continue
            if not throttle_ms:  # else it is 100, whatever the rate
                errors["used_percent"].append(_error(min(rate / limit, 1), min(expected / limit, 1)))
            delay, expected_delay = ((each / limit - 1) * 10 for each in (rate, expected))  # Kafka's formula, for 10 s
            if expected_delay > 0.1:
                errors["delay"].append(_error(max(delay, 0), expected_delay))
    return errors


def _error(measured: float, expected: float) -> float:
    return abs(measured - expected) / expected


@pytest.mark.slow
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
                lambda sampled: any(each.get("throttle_time_ms", 0) > 0 for each in sampled),
            )
        assert limits(samples(cluster)[bucket]) == [LIMIT]
