"""The local cluster itself: what it promises to tests, demo and benchmarks."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from kafka_telemetry_lake.sandbox.clients import Library, LocalClients
from kafka_telemetry_lake.sandbox.cluster import LANDING_TOPICS, BrokerError, KafkaToolError, LocalCluster
from kafka_telemetry_lake.sandbox.cluster.ports import ReservedPorts
from kafka_telemetry_lake.sandbox.cluster.process import Process
from tests.support.patience import PATIENCE_S, wait_until

from .conftest import RETENTION_CHECK_MS, USERS
from .landing import Landing, largest

pytestmark = pytest.mark.kafka

PUSH_TELEMETRY = 72
DELETED_FROM_S = 36  # Kafka's log.initial.task.delay.ms is 30 s


def alive(pid: int) -> bool:
    """True unless it has ended; an orphan's zombie, which nobody may reap in a container, has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_ended(pid: int) -> None:
    wait_until(lambda: not alive(pid), said=lambda: f"process {pid} still runs")


@pytest.fixture
def admin(cluster: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


@pytest.fixture
def remove_kept_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Clusters that are meant to fail keep their folders here."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield tmp_path
    shutil.rmtree(tmp_path)


def test_it_is_ready_with_the_landing_topics_and_the_telemetry_api(cluster: LocalCluster, admin: AdminClient) -> None:
    topics = admin.list_topics().topics
    assert {name: len(topics[name].partitions) for name in LANDING_TOPICS} == dict.fromkeys(LANDING_TOPICS, 2)
    assert PUSH_TELEMETRY in cluster.broker(1).api_keys()


def test_topics_are_made_with_their_settings_and_deleted(cluster: LocalCluster, admin: AdminClient) -> None:
    cluster.create_topic("made", partitions=3, config={"retention.ms": 60000, "cleanup.policy": "compact"})
    assert len(admin.list_topics("made").topics["made"].partitions) == 3
    resource = ConfigResource(ResourceType.TOPIC, "made")
    config = admin.describe_configs([resource])[resource].result()
    assert (config["retention.ms"].value, config["cleanup.policy"].value) == ("60000", "compact")
    cluster.delete_topic("made")
    assert "made" not in cluster.topics()


def test_a_tool_s_refusal_is_an_error_with_its_words(cluster: LocalCluster) -> None:
    with pytest.raises(KafkaToolError, match="Topic 'client-telemetry' already exists"):
        cluster.create_topic("client-telemetry")
    with pytest.raises(KafkaToolError, match="nonsense"):
        cluster.subscribe("refused", match=["nonsense=a"])


def test_a_subscription_asks_matching_clients_for_its_metrics(
    cluster: LocalCluster, clients: LocalClients, landing: Landing, topic: str
) -> None:
    cluster.subscribe("some", ["org.apache.kafka.producer.record"], 300, ["client_id=subscribed-.*"])
    cluster.subscribe("others", ["org.apache.kafka.producer.batch"], 400, ["client_id=no-such-client"])
    producer = clients.producer("librdkafka", topic, "subscribed-1", records=1)
    push = landing.wait_for_more("subscribed-1", 1)[0]
    assert push.headers["push_interval_ms"] == "300"
    names = {metric.name for metric in push.metrics()}
    assert names == {
        "org.apache.kafka.producer.record.queue.time.avg",
        "org.apache.kafka.producer.record.queue.time.max",
    }
    # Without a match the other subscription is everybody's, also for a client that already runs.
    cluster.subscribe("others", ["org.apache.kafka.producer.connection"], 400)
    landing.wait(
        "subscribed-1",
        lambda pushes: "org.apache.kafka.producer.connection.creation.total" in {m.name for m in pushes[-1].metrics()},
    )
    cluster.unsubscribe("others")
    cluster.unsubscribe("some")
    assert producer.close()["records"] == 1


def test_a_quota_throttles_its_user_only(
    cluster: LocalCluster, clients: LocalClients, landing: Landing, topic: str
) -> None:
    # 100 kB in the quota's window, 10 s at least, are 10 kB/s: throttled by seconds, also if they take 13 s.
    cluster.set_quota(user="alice", producer_byte_rate=7_000)
    libraries: dict[str, Library] = {"alice": "java", "bob": "librdkafka"}
    for user, library in libraries.items():
        credentials = (user, USERS[user])
        client_id = f"telemetry-{user}"
        clients.producer(library, topic, client_id, records=100, value_bytes=1000, credentials=credentials)
    throttled = {}
    for user in libraries:
        pushes = landing.wait_for_more(f"telemetry-{user}", 3)
        assert {push.headers["principal"] for push in pushes} == {f"User:{user}"}
        throttled[user] = largest(pushes, "org.apache.kafka.producer.produce.throttle.time.max")
    cluster.set_quota(user="alice", producer_byte_rate=None)
    assert throttled["alice"] > 0
    assert throttled["bob"] == 0


def test_a_paused_broker_makes_its_clients_wait(cluster: LocalCluster, clients: LocalClients, topic: str) -> None:
    broker = cluster.broker(1)
    producer = clients.producer("librdkafka", topic, "pausing", records=300, rate=200)
    producer.wait_for("started")
    broker.pause()
    try:
        with pytest.raises(TimeoutError):
            broker.api_keys(timeout=2.0)
    finally:
        broker.resume()  # other tests use it too
    assert producer.wait_for("done")["records"] == 300


@pytest.mark.slow
def test_a_second_broker_can_be_killed_and_comes_back(remove_kept_folders: Path) -> None:
    with LocalCluster(brokers=2) as cluster, LocalClients(cluster) as clients:
        folder, pids = cluster.folder, [broker.pid for broker in cluster.brokers]
        assert PUSH_TELEMETRY not in cluster.broker(1).api_keys()  # no plugin, no telemetry
        cluster.create_topic("durable", partitions=2)
        assert clients.producer("java", "durable", "before", records=100).wait_for("done")["records"] == 100
        cluster.broker(2).kill()
        assert cluster.broker(2).pid is None
        with pytest.raises(ConnectionError):
            cluster.broker(2).api_keys()
        assert clients.producer("java", "durable", "during", records=100).wait_for("done")["failed"] == 0
        cluster.broker(2).start()
        cluster.broker(2).stop()
        cluster.broker(2).start()
        reader = clients.consumer("java", "durable", "after", group="readers", records=200)
        reader.wait_for("done")
        assert reader.close()["records"] == 200
        pids += [broker.pid for broker in cluster.brokers]
    assert not any(alive(pid) for pid in pids if pid is not None)
    assert not folder.exists()


@pytest.mark.slow
def test_records_of_long_ago_stay(cluster: LocalCluster, topic: str) -> None:
    """Tests and benchmarks land records of weeks ago. Kafka would delete them from half a minute after its start on."""
    up_s = time.time() - psutil.Process(cluster.broker(1).pid).create_time()
    time.sleep(max(0.0, DELETED_FROM_S - up_s))
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "any"}
    producer = Producer(settings)
    producer.produce(topic, b"a push", partition=0, timestamp=1_000_000_000_000)
    assert producer.flush(PATIENCE_S) == 0
    time.sleep(5 * RETENTION_CHECK_MS / 1000)
    assert Consumer(settings).get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S) == (0, 1)


@pytest.mark.slow
def test_kafka_3_9_runs_too(remove_kept_folders: Path) -> None:
    with LocalCluster("3.9.1") as cluster, LocalClients(cluster) as clients:
        cluster.subscribe("any", match=["client_id=.*"])
        cluster.set_quota(client_id="old", producer_byte_rate=1_000_000)
        cluster.create_topic("old")
        producer = clients.producer("java", "old", "old", records=100, version="3.9.1")
        assert producer.wait_for("done")["records"] == 100
        producer.close()


def test_a_broker_that_ends_at_start_says_why_and_keeps_its_log(
    remove_kept_folders: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    properties = {"authorizer.class.name": "no.such.Authorizer"}
    with (
        pytest.raises(BrokerError, match=r"ended at start(.|\n)*no\.such\.Authorizer"),
        LocalCluster(properties=properties),
    ):
        pass
    (folder,) = remove_kept_folders.glob("kafka-cluster-*")
    assert f"folder was retained: {folder}" in capfd.readouterr().err
    assert "no.such.Authorizer" in (folder / "broker-1" / "broker.log").read_text()


@pytest.mark.slow
def test_an_interrupted_block_leaves_no_process(remove_kept_folders: Path) -> None:
    pids: list[int | None] = []
    cluster = LocalCluster()

    def interrupted() -> None:
        with cluster, LocalClients(cluster) as clients:
            pids.append(cluster.broker(1).pid)
            pids.append(clients.producer("librdkafka", "client-quotas", "running").pid)
            clients.producer("librdkafka", "client-quotas", "paused").pause()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(pids) == 2
    assert not any(pid is None or alive(pid) for pid in pids)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", cluster.broker(1).port))


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_processes_end_with_the_one_that_started_them(end: signal.Signals) -> None:
    program = (
        "from pathlib import Path; import time; from kafka_telemetry_lake.sandbox.cluster.process import Process\n"
        "first = Process(['sleep', '600'], Path('/dev/null'))\n"
        "ended = Process(['true'], Path('/dev/null')); ended.wait(600)\n"
        "print(first.pid, Process(['sleep', '600'], Path('/dev/null')).pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert [alive(pid) for pid in pids] == [True, True]
        parent.send_signal(end)
    for pid in pids:
        wait_until_ended(pid)


def test_an_ended_process_is_forgotten_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may be another process's by the time that the guard kills what is left."""
    notified: list[tuple[str, int]] = []
    monkeypatch.setattr(
        "kafka_telemetry_lake.sandbox.cluster.process._guard.send", lambda *words: notified.append(words)
    )
    killed, waited, polled = (Process(["sleep", "600"], tmp_path / "log") for _ in range(3))
    killed.kill()
    for process in (waited, polled):
        os.kill(process.pid, signal.SIGKILL)
    assert waited.wait(PATIENCE_S)
    wait_until_ended(polled.pid)
    assert [polled.returncode, polled.returncode] == [-signal.SIGKILL] * 2
    watched = [("watch", process.pid) for process in (killed, waited, polled)]
    assert notified == watched + [("forget", process.pid) for process in (killed, waited, polled)]


def shell(log: Path, on_sigterm: str) -> Process:
    """A process that handles SIGTERM, as a JVM does."""
    process = Process(["/bin/sh", "-c", f"trap '{on_sigterm}' TERM; echo ready; while :; do sleep 0.1; done"], log)
    while "ready" not in log.read_text():
        time.sleep(0.01)
    return process


def test_a_process_that_ignores_sigterm_is_killed_after_the_limit(tmp_path: Path) -> None:
    stubborn = shell(tmp_path / "log", on_sigterm=":")
    started = time.monotonic()
    stubborn.stop(limit=0.5)
    assert time.monotonic() - started >= 0.5
    assert stubborn.returncode == -signal.SIGKILL


def test_a_paused_process_is_stopped_as_any_other(tmp_path: Path) -> None:
    paused = shell(tmp_path / "log", on_sigterm="exit 7")
    paused.pause()
    paused.stop(limit=PATIENCE_S)
    assert paused.returncode == 7


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere ports are given back before the broker binds them")
def test_reserved_ports_are_nobody_else_s() -> None:
    ports = ReservedPorts(2)
    address = ("127.0.0.1", ports.numbers[0])
    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind(address)
    with socket.socket() as server:  # as the JVM does
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(address)
        server.listen()
        socket.create_connection(address).close()
    ports.release()
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # over the connection's TIME_WAIT
        stranger.bind(address)
