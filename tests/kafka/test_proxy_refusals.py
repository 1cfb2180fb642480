"""Pushes that a proxy refuses: each has its error and one line with its reason, and the other traffic goes on."""

from __future__ import annotations

import os
import re
from pathlib import Path

from confluent_kafka import Producer

from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.kroxylicious import TelemetryProxy, filter_config, subscriptions_file
from tests.support.patience import PATIENCE_S
from tests.support.telemetry_request import RawClient, ask
from tests.support.topic_messages import messages

from .receiver_brokers import wait_for

# Longer ones don't count: without any subscription the interval is five minutes, and the shortest counts.
ALL = {"name": "all", "metrics": ["*"], "interval_ms": 290_000, "match": {}}
REFUSED = re.compile(r"A push of client id (\S+) is refused as (.*?) \(io\.")


def produce(producer: Producer, topic: str) -> None:
    producer.produce(topic, b"work")
    assert producer.flush(PATIENCE_S) == 0


def test_a_bad_push_is_refused_with_its_error_and_one_line(cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    file = subscriptions_file(tmp_path / "subscriptions.yml", [ALL])
    config = filter_config(cluster.bootstrap_servers, file, require_sasl=False)
    config["landing"] |= {"topic": topic, "status.topic": topic, "status.interval.ms": 3_600_000}
    with (
        TelemetryProxy(tmp_path / "proxy", cluster.bootstrap_servers, config) as proxy,
        RawClient(proxy.bootstrap_port, "good") as good,
        RawClient(proxy.bootstrap_port, "bad\nERROR bad") as bad,  # whose own line in the log it isn't
    ):
        known, others, vanishing = good.subscribed(), good.subscribed(), bad.subscribed()
        producer = Producer({"bootstrap.servers": proxy.bootstrap_servers, "enable.metrics.push": False})
        assert good.push(known, b"good") == 0
        produce(producer, topic)
        assert good.push(known, b"too early") == 89
        assert bad.push((os.urandom(16), known[1]), b"it never asked") == 117
        assert bad.push((bytes(16), 0), b"it has no id") == 42
        assert bad.push(bad.subscribed(), bytes(10 << 20)) == 118
        produce(producer, topic)
        # As at a broker, who has the id of another instance may push by it; the record tells whose connection it was.
        assert bad.push(others, b"of another") == 0
        assert good.push(others, b"too early by another's push") == 89
        subscriptions_file(file, [])
        wait_for(
            lambda: ask(proxy.bootstrap_port, bytes(16), "other", ("raw", "1")).push_interval_ms,
            lambda interval: interval == 300_000,
        )
        assert bad.push(vanishing, b"its subscription vanished") == 117
        produce(producer, topic)
        del producer  # before the proxy goes
    # One line a minute for each error, and its own test looks at that: here a busy machine may take minutes.
    assert set(REFUSED.findall(proxy.log())) == {
        (
            "good",
            "THROTTLING_QUOTA_EXCEEDED: it came within 290000 ms, the interval, after the last one of its client"
            " instance",
        ),
        (
            "bad?ERROR?bad",
            "UNKNOWN_SUBSCRIPTION_ID: its subscription isn't the client instance's: subscriptions have changed, or it"
            " hasn't asked for one",
        ),
        (
            "bad?ERROR?bad",
            "INVALID_REQUEST: it has no client instance id, or comes after the last one of its client instance",
        ),
        ("bad?ERROR?bad", "TELEMETRY_TOO_LARGE: it has 10485760 bytes, and telemetryMaxBytes is 1048576"),
    }
    landed = [(dict(each.headers() or []), each.value()) for each in messages(cluster, topic)]
    assert {(headers["client_id"], payload) for headers, payload in landed if "client_id" in headers} == {
        (b"good", b"good"),
        (b"bad\nERROR bad", b"of another"),
    }
    assert [payload for _, payload in landed].count(b"work") == 3
    assert "received 2, landed 2, queued 0" in proxy.log()
