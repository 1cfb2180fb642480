"""Each rule about what one client id does: the behaviour, and the same just short of it."""

from __future__ import annotations

import pytest

from kafka_telemetry_lake.pipelines.findings.rules import rules
from tests.support.made_clients import (
    CONSUMER,
    FETCH,
    GROUP,
    IDLE,
    LAG,
    MINUTE,
    NO_TRANSACTIONS,
    PRODUCER,
    QUIET,
    SENT,
    STREAM,
    SYNCHRONOUS,
    TINY,
    Client,
    Metrics,
    found_by_client,
    gauge,
    tables_of,
    waits,
)
from tests.support.sql_views import told

pytestmark = pytest.mark.lake

RETRIES, METADATA = f"{PRODUCER}record.retry.total", f"{PRODUCER}metadata.wait.time.ns.total"
HEARTBEAT = f"{GROUP}last.heartbeat.seconds.ago"
MANY: Metrics = {SENT: (360_000, 3600)}
FILLING: Metrics = {f"{PRODUCER}buffer.available.bytes": gauge(3_355_443)}


def batches(mean: float, most: float) -> Metrics:
    return {f"{PRODUCER}batch.size.avg": gauge(mean), f"{PRODUCER}batch.size.max": gauge(most)}


# By rule: severity, what else a client does, and evidence.
ONE_BEHAVIOUR: dict[str, list[tuple[str, Metrics, str]]] = {
    "failed_records": [
        ("error", {f"{PRODUCER}record.error.total": (3, 60)}, "3 records could not be sent (36000 were)"),
        # Not as retries too.
        ("error", {RETRIES: (50, 60), f"{PRODUCER}record.error.total": (2, 60)}, "2 records"),
    ],
    "silent_retries": [
        (
            "warning",
            NO_TRANSACTIONS | {RETRIES: (360, 3600)},
            "360 sends were retried for 36000 records",
        ),
        ("info", NO_TRANSACTIONS | {RETRIES: (359, 3600)}, "none failed"),
        ("info", NO_TRANSACTIONS | {RETRIES: (1, 3600)}, "1 sends were retried"),
    ],
    "one_record_per_request": [
        ("warning", {f"{PRODUCER}records.per.request.avg": gauge(1.04)}, "1.0 records per request at 10.0 records/s"),
    ],
    "full_batches": [
        ("info", MANY | {f"{PRODUCER}batch.size.avg": gauge(12_800)}, "12800 bytes on average, 16000 at most"),
        ("info", MANY | batches(4000, 4096), "4000 bytes on average, 4096 at most"),
        ("info", MANY | batches(14_000, 14_746), "14000 bytes on average, 14746 at most"),
        ("info", MANY | batches(99_000, 101_900), "99000 bytes on average, 101900 at most"),
    ],
    "uncompressed_records": [
        ("info", {f"{PRODUCER}compression.rate.avg": gauge(1.0)}, "3.6 MB were sent at 100.0 %"),
        (
            "info",
            {f"{PRODUCER}compression.rate.avg": gauge(0.99), f"{PRODUCER}topic.byte.total": (1_000_000, 3600)},
            "1.0 MB were sent at 99.0 %",
        ),
    ],
    "buffer_full": [
        ("error", {f"{PRODUCER}buffer.exhausted.total": (1, 60)}, "1 records were given up"),
        ("warning", FILLING | {f"{PRODUCER}bufferpool.wait.ratio": gauge(0.0101)}, "waited for buffer memory 1.0 %"),
    ],
    "connection_churn": [
        (
            "warning",
            {f"{PRODUCER}connection.creation.total": (61, 3600), f"{PRODUCER}connection.close.total": (61, 3600)},
            "61 connections opened, 1.0 a minute",
        ),
    ],
    "failed_authentication": [
        ("error", {f"{PRODUCER}failed.authentication.total": (1, 60)}, "1 authentications failed"),
    ],
    "unstable_group": [("warning", {f"{CONSUMER}coordinator.rebalance.total": (3, 3600)}, "3 rebalances")],
    "slow_processing": [
        ("warning", {f"{CONSUMER}time.between.poll.max": gauge(150_000)}, "150 s between two polls"),
        ("warning", {f"{CONSUMER}time.between.poll.max": gauge(299_999)}, "s between two polls"),
        ("error", {f"{CONSUMER}time.between.poll.max": gauge(300_000)}, "300 s between two polls"),
    ],
    "processing_bound": [
        ("warning", waits(0.0999) | {LAG: gauge(1000)}, "10.0 % of the time for records, lag up to 1000"),
    ],
    "throttled": [
        ("warning", {f"{PRODUCER}produce.throttle.time.max": gauge(2546)}, "2546 ms at most"),
        ("warning", {f"{CONSUMER}fetch.manager.fetch.throttle.time.max": gauge(1)}, "1 ms at most"),
    ],
    "stale_metadata": [("error", {f"{PRODUCER}metadata.age": gauge(361)}, "361 s old")],
    "tiny_batches": [
        ("info", TINY | {f"{PRODUCER}batch.size.avg": gauge(4095)}, "4095 bytes on average"),
        ("info", TINY | {f"{PRODUCER}records.per.request.avg": gauge(2)}, "2000 bytes on average, at 100.0 kB/s"),
    ],
    "synchronous_sends": [
        ("warning", SYNCHRONOUS, "1.9 records per request, never more than 1 in flight, under way 80.0 %"),
    ],
    "buffer_filling": [
        ("info", FILLING | {f"{PRODUCER}bufferpool.wait.ratio": gauge(0.01)}, "only 3355443 of 33554432 bytes"),
    ],
    "split_batches": [
        ("warning", {f"{PRODUCER}batch.split.total": (1, 3600)}, "batches refused as too large and split: 1")
    ],
    "large_records": [("info", {f"{PRODUCER}record.size.max": gauge(838_861)}, "a record had 838861 bytes")],
    "stuck_in_queue": [
        (
            "warning",
            MINUTE | {f"{PRODUCER}record.queue.time.avg": gauge(1001), SENT: (100, 60)},
            "waited 1001 ms on average",
        ),
        ("error", {f"{PRODUCER}record.queue.time.max": gauge(60_001)}, "60001 ms at most"),
    ],
    "near_request_timeout": [
        ("warning", {f"{PRODUCER}request.latency.max": gauge(24_000)}, "a request took 24000 ms"),
    ],
    "metadata_waits": [
        ("warning", {METADATA: (36.1e9, 3600)}, "waited 36.1 s for metadata in 3600 s"),
        ("warning", {METADATA: (10e9, 100), SENT: (1000, 100)}, "10.0 s for metadata in 100 s"),
    ],
    "aborted_transactions": [
        ("warning", {f"{PRODUCER}txn.abort.time.ns.total": (101e6, 3600)}, "aborts took 101 ms, commits 900"),
    ],
    "idle_closes": [
        ("info", {f"{PRODUCER}connection.close.total": (6, 3600)}, "6 connections were closed, of 2 at a time"),
    ],
    "failed_reauthentication": [
        ("error", {f"{PRODUCER}failed.reauthentication.total": (1, 3600)}, "1 authentications of open"),
    ],
    "long_rebalance": [("warning", {f"{GROUP}rebalance.latency.max": gauge(45_000)}, "a rebalance took 45000 ms")],
    "failed_rebalances": [("warning", {f"{GROUP}failed.rebalance.total": (3, 3600)}, "3 rebalances failed")],
    "heartbeat_at_risk": [
        ("warning", {HEARTBEAT: gauge(15, 3)}, "never less than 15 s since its last heartbeat"),
        ("warning", {f"{GROUP}heartbeat.response.time.max": gauge(15_000)}, "answers took up to 15000 ms"),
    ],
    "fetch_bound": [
        (
            "warning",
            waits(0.91) | {LAG: gauge(1000, 10)},
            "waits 91.0 % of the time for records, although it lags by at least 1000",
        ),
    ],
    "tiny_fetches": [("info", {f"{FETCH}fetch.total": (180_001, 3600)}, "50.0 fetches/s of 1000 bytes")],
    "slow_fetches": [
        ("warning", {f"{FETCH}fetch.latency.avg": gauge(1000), LAG: gauge(1000, 10)}, "fetches take 1000 ms, although"),
    ],
    "costly_commits": [("warning", {f"{GROUP}commit.latency.avg": gauge(1000)}, "commits take 1000 ms")],
    "frequent_commits": [
        ("info", {f"{GROUP}commit.total": (3601, 3600)}, "3601 commits, 1.0 a second"),
        ("info", {f"{GROUP}commit.total": (100, 10)}, "100 commits, 10.0 a second"),
    ],
    "idle_member": [
        ("info", {f"{GROUP}assigned.partitions": gauge(0, 3)}, "no partition was assigned to it in 3 pushes"),
    ],
    "dead_stream_threads": [("error", {f"{STREAM}failed.stream.threads": (1, 3600)}, "1 stream threads died")],
    "dropped_stream_records": [
        ("warning", {f"{STREAM}task.dropped.records.total": (1, 3600)}, "records dropped: 1"),
    ],
}
CASES = [(finding, *case) for finding, cases in ONE_BEHAVIOUR.items() for case in cases]


# What `QUIET` doesn't show: the same where one of several conditions falls just short.
JUST_SHORT: list[Metrics] = [
    {},  # healthy
    {f"{PRODUCER}records.per.request.avg": gauge(2)},
    {f"{PRODUCER}metadata.age": gauge(360)},
    {f"{PRODUCER}compression.rate.avg": gauge(0.989)},
    {f"{PRODUCER}compression.rate.avg": gauge(1), f"{PRODUCER}topic.byte.total": (999_999, 3600)},
    waits(0.1001),
    waits(0.05) | {LAG: gauge(999)},
    TINY | {f"{PRODUCER}records.per.request.avg": gauge(1.9), SENT: (35_000, 3600)},
    {f"{FETCH}fetch.total": (179_640, 3600), f"{CONSUMER}incoming.byte.total": (100e6, 3600)},
    {f"{PRODUCER}bufferpool.wait.ratio": gauge(0.01)},
    MANY | {f"{PRODUCER}batch.size.avg": gauge(12_799)},
    MANY | batches(4000, 4095),
    {f"{PRODUCER}batch.size.avg": gauge(13_000), SENT: (359_000, 3600)},
    {f"{PRODUCER}connection.close.total": (5, 3600), f"{PRODUCER}connection.count": gauge(1)},
    {f"{PRODUCER}topic.byte.total": (360e6, 3600)},
    {f"{PRODUCER}topic.byte.total": (361e6, 3600), f"{PRODUCER}batch.size.avg": gauge(4096)},
    SYNCHRONOUS | {f"{PRODUCER}request.latency.avg": gauge(159.9)},
    # Of 2 records a request, some of them without records, though Java's mean counts more requests than it sent.
    SYNCHRONOUS | {f"{PRODUCER}records.per.request.avg": gauge(0.1), f"{PRODUCER}request.total": (17_100, 3600)},
    # It sends nothing more: its other requests are those for metadata and telemetry, its latency is of the beginning.
    SYNCHRONOUS | {SENT: (10, 3600), f"{PRODUCER}request.total": (36_000, 3600)},
    {RETRIES: (1, 3600)},  # with transactions
    {RETRIES: (1, 3600), f"{PRODUCER}txn.abort.time.ns.total": (0, 3600)},
    {HEARTBEAT: gauge(15, 2)},
    {f"{PRODUCER}record.queue.time.avg": gauge(1001), SENT: (99, 3600)},
    MINUTE | {f"{PRODUCER}record.queue.time.avg": gauge(1001), SENT: (1000, 59)},
    SYNCHRONOUS | MINUTE | {SENT: (560, 59)},
    # All batches are those of bursts of one size.
    MANY | batches(14_000, 14_745),
    MANY | batches(104_000, 104_997),
    {f"{PRODUCER}metadata.age": gauge(1_795_492_259)},  # none was asked for yet: the time since 1970
    {f"{PRODUCER}compression.rate.avg": gauge(1.0002)},  # lz4 of random bytes
    SYNCHRONOUS | {f"{PRODUCER}requests.in.flight": gauge(2)},
    SYNCHRONOUS | {f"{PRODUCER}records.per.request.avg": gauge(2)},
    {METADATA: (9.9e9, 100), SENT: (1000, 100)},
    {f"{PRODUCER}connection.close.total": (6, 3600), f"{PRODUCER}connection.count": gauge(3)},
    {f"{PRODUCER}connection.close.total": (6, 2700)},  # in three quarters of the hour, as in an outage of half of it
    waits(0.8999) | {LAG: gauge(1000, 10)},
    waits(0.91) | {LAG: gauge(1000, 9)},
    waits(0.91) | {LAG: gauge(999, 10)},
    {f"{FETCH}fetch.latency.avg": gauge(1000), LAG: gauge(1000, 9)},
    {f"{FETCH}fetch.latency.avg": gauge(1000), LAG: gauge(999, 10)},
    {f"{FETCH}fetch.total": (180_001, 3600), f"{CONSUMER}incoming.byte.total": (181e6, 3600)},
    {f"{GROUP}commit.total": (99, 10)},
    {f"{GROUP}assigned.partitions": gauge(0, 2)},
]


def test_one_behaviour_one_finding() -> None:
    findings = found_by_client({str(n): Client(QUIET | metrics) for n, (_, _, metrics, _) in enumerate(CASES)})
    for client, (finding, severity, _, evidence) in zip(findings.values(), CASES, strict=True):
        assert list(client) == [finding]
        assert client[finding][0] == severity
        assert evidence in client[finding][1]


def test_just_short_of_a_bound_there_is_no_finding() -> None:
    findings = found_by_client({str(n): Client(QUIET | metrics) for n, metrics in enumerate(JUST_SHORT)})
    assert {str(JUST_SHORT[int(n)]): list(client) for n, client in findings.items() if client} == {}


def test_a_finding_closes_where_it_no_longer_nearly_opens() -> None:
    """With the bounds at which findings close, what has a finding has it, and what falls just short too."""
    closes = {name for name, rule in rules().items() if rule.closes}
    clients = {f"{name} {n}": Client(QUIET | more) for n, (name, _, more, _) in enumerate(CASES)}
    opened, closed = found_by_client(clients), found_by_client(clients, closing=True)
    assert {name for each in closed.values() for name in each} <= closes
    for client_id, findings in opened.items():
        assert findings.keys() & closes <= closed[client_id].keys(), client_id
    assert closed.keys() >= {f"{name} {n}" for n, (name, *_) in enumerate(CASES) if name in closes}
    quiet = found_by_client({"orders": Client(QUIET)}, closing=True)["orders"]
    assert quiet.keys() == {
        "aborted_transactions", "buffer_filling", "costly_commits", "frequent_commits", "heartbeat_at_risk",
        "large_records", "metadata_waits", "near_request_timeout", "slow_processing", "stuck_in_queue", "tiny_fetches",
    }  # fmt: skip


def test_the_time_in_polls_is_as_each_library_measures_it() -> None:
    """Java's ratio of a consumer that only waits is a half; of its first poll it is 1."""
    clients = {
        "java": Client(waits(0.25)), "waits": Client({IDLE: gauge(0.52)}),
        "rdkafka": Client({IDLE: gauge(0.25)}, ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0")),
        "nothing": Client({LAG: gauge(1)}),
        # Who polls librdkafka isn't the application: JavaScript's event loop, and threads of what may be Rust.
        "js": Client({IDLE: gauge(0.25)}, ("confluent-kafka-javascript", "1.10.1-librdkafka-2.15.1")),
        "rust": Client({IDLE: gauge(0.25)}, ("librdkafka", "2.12.1")),
    }  # fmt: skip
    shares = dict(told("instance_hours", tables_of(clients), "client_id, poll_share"))
    known = {"java": pytest.approx(0.25), "waits": 1, "rdkafka": 0.25}
    assert shares == known | {"nothing": None, "js": None, "rust": None}


def test_a_member_that_joins_slowly_is_not_idle() -> None:
    """Of pushes every second, three are before it has joined."""
    clients = {
        str(pushes): Client(QUIET | {f"{GROUP}assigned.partitions": gauge(0, pushes)}, push_interval_ms=1000)
        for pushes in (59, 60)
    }
    assert {name: list(findings) for name, findings in found_by_client(clients).items()} == {
        "59": [], "60": ["idle_member"]
    }  # fmt: skip


def test_advice_on_batching_follows_the_rate() -> None:
    """100 records/s of 2 kB: 100 ms of lingering gather 10 records, 20 kB, so a batch of 32 KiB holds them."""
    slow = QUIET | {f"{PRODUCER}records.per.request.avg": gauge(1.2), f"{PRODUCER}record.size.avg": gauge(2000)}
    rates = {"hundred": 360_000.0, "many": 36_000_000.0, "few": 35_000.0}
    findings = found_by_client({name: Client(slow | {SENT: (sent, 3600)}) for name, sent in rates.items()})
    advice = {name: client["one_record_per_request"][2] for name, client in findings.items() if client}
    assert "linger.ms=100 and batch.size=32768, about 10 records per request" in advice["hundred"]
    assert "linger.ms=5 and batch.size=131072, about 50 records per request" in advice["many"]
    assert "few" not in advice  # to gather them would take too long


def test_connections_at_a_start_are_no_churn() -> None:
    def opened(connections: float, seconds: float, instances: int) -> Client:
        return Client({f"{CONSUMER}connection.creation.total": (connections, seconds)}, instances=instances)

    findings = found_by_client(
        {
            "start": opened(9, 30, 1),
            "many": opened(10, 33, 3),
            "fewer": opened(9, 33, 3),
            "slow": opened(60, 3600, 1),
        }
    )
    assert {name for name, client in findings.items() if client} == {"many"}
    assert list(findings["many"]) == ["connection_churn"]
