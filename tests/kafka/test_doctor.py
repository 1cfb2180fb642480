"""`doctor` on real brokers: what it finds is what is there."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.pipelines.runtime.kafka_reach import PUSH_TELEMETRY, advertised
from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.process import Process
from tests.support.patience import PATIENCE_S, idle_clock

from .landing import Landing
from .receiver_brokers import statuses, wait_for

LIMIT_S = 30.0  # it takes three seconds on a machine without other work


def examine(capsys: pytest.CaptureFixture[str], servers: str, *flags: str) -> tuple[int, dict[str, dict[str, Any]]]:
    with idle_clock() as clock:
        code = cli.main(["doctor", "--bootstrap-servers", servers, "--format", "json", *flags])
    assert clock.seconds < LIMIT_S
    return code, {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}


def test_a_cluster_whose_clients_push(
    cluster: LocalCluster, clients: LocalClients, landing: Landing, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    client = clients.producer("java", topic, "telemetry-doctor", rate=5)
    landing.wait_for_more("telemetry-doctor", 1)
    wait_for(lambda: statuses(cluster), bool)  # the first comes ten seconds after the broker's start
    code, checks = examine(capsys, cluster.bootstrap_servers)
    client.close()
    problems = {name: check for name, check in checks.items() if check["status"] not in ("ok", "skipped")}
    assert problems.keys() <= {"memory"}, problems  # of this machine
    assert code == (3 if problems else 0)
    assert checks["versions"]["text"] == "Kafka 4.3 on 1 broker"
    assert checks["topic client-telemetry"]["text"].startswith("2 partitions, 1 replicas (1 in sync needed)")
    assert "messages up to 17,825,792 bytes, stored for 7 days" in checks["topic client-telemetry"]["text"]
    assert checks["subscription telemetry"]["text"] == (
        "requests org.apache.kafka. every 300 ms from client_id=telemetry-.*"
    )
    assert "none dropped" in checks["receivers"]["text"]
    assert checks["rights"]["text"] == "enough for `ingest` and `sync`, and for `connect`"


@pytest.fixture(scope="module")
def bare() -> Iterator[LocalCluster]:
    with LocalCluster(scram_users={"nobody": "nobody-secret"}) as cluster:
        yield cluster


@pytest.mark.slow
def test_a_cluster_without_plugin_and_subscription(bare: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    bare.delete_topic("client-quotas")
    code, checks = examine(capsys, bare.bootstrap_servers)
    assert code == 1
    assert checks["plugin"]["status"] == "failed"
    assert "ClientTelemetryLakeExporter" in checks["plugin"]["advice"]
    assert checks["subscriptions"]["status"] == checks["receivers"]["status"] == "failed"
    assert checks["topic client-quotas"]["status"] == "warning"
    assert checks["topic client-telemetry"]["status"] == "ok"


@pytest.mark.slow
def test_a_listener_with_tls_is_asked_too(bare: LocalCluster) -> None:
    host, _, port = bare.tls_bootstrap_servers.partition(":")
    keys = advertised(host, int(port), tls=True).api_keys
    assert keys == bare.broker(1).api_keys()
    assert PUSH_TELEMETRY not in keys


@pytest.mark.slow
def test_connect_makes_what_is_missing_only_with_consent(
    bare: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After `doctor` found no subscription and no topic of quota samples."""
    argv = ["connect", "--bootstrap-servers", bare.bootstrap_servers, "--lake", str(tmp_path / "lake"), "--no-ingest"]
    before = bare.topics()
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    assert "connect would create topic client-quotas (1 partitions, 1 replicas, min.insync.replicas=1" in err
    assert "create subscription telemetry-lake (all clients push org.apache.kafka.* every 60 s)" in err
    assert bare.topics() == before
    assert cli.main([*argv, "--yes"]) == 0
    assert set(bare.topics()) == {*before, "client-quotas"}
    out, err = capsys.readouterr()
    assert "metric.reporters=org.apache.kafka.common.metrics.JmxReporter,io.github" in out
    _, checks = examine(capsys, bare.bootstrap_servers)
    assert checks["subscription telemetry-lake"]["text"] == "requests org.apache.kafka. every 60 s from all clients"
    assert checks["topic client-quotas"]["status"] == "ok"
    assert cli.main(argv) == 0  # nothing is missing, so nobody is asked
    assert not (tmp_path / "lake").exists()


@pytest.mark.slow
def test_connect_runs_the_job_and_prints_the_first_rows_until_it_is_stopped(
    cluster: LocalCluster, clients: LocalClients, topic: str, tmp_path: Path
) -> None:
    clients.producer("java", topic, "telemetry-connect", rate=5)
    command = [sys.executable, "-m", "kafka_telemetry_lake", "connect", "--lake", str(tmp_path / "lake")]
    command += ["--bootstrap-servers", cluster.bootstrap_servers, "--driver-memory", "1g"]
    job = Process(command, tmp_path / "connect.log")
    try:
        wait_for(
            job.log.read_text, lambda text: "lake: telemetry-connect (apache-kafka-java" in text or not job.running
        )
        job.signal(signal.SIGINT)
        assert job.wait(PATIENCE_S)
        assert job.returncode == 0, job.log.read_text()
    finally:
        job.kill()
    text = job.log.read_text()
    assert "nothing to change" in text
    assert "lake: telemetry-connect (apache-kafka-java 4.3.1) is in the lake: " in text
    assert "Traceback" not in text
