"""Who pushes and who doesn't: what brokers and view telemetry_coverage count is what the clients' sockets are."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.sandbox.clients import Client, ClientUnavailableError, LocalClients
from kafka_telemetry_lake.sandbox.clients.franz_go import franz_go_driver, go_program
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from tests.conftest import Ingest
from tests.support.topic_messages import messages

from .conftest import USERS
from .landing import Landing
from .receiver_brokers import STATUS, wait_for

pytestmark = pytest.mark.kafka

LISTENER = "SASL_PLAINTEXT"  # only this test's clients push over it
ALICE = ("alice", USERS["alice"])
OFF = {"enable.metrics.push": "false"}
SARAMA = Path(__file__).parent.parent / "clients" / "sarama"  # the library pushes nothing, either
NAMED = {"client.software.name": "librdkafka"}  # as C and Rust name themselves: a software of its own
KAFKA_PYTHON = """
import sys
sys.path.insert(0, sys.argv[1])
from kafka import KafkaProducer
settings = dict(line.split("=", 1) for line in open(sys.argv[2]).read().splitlines())
producer = KafkaProducer(
    client_id=settings["client.id"], bootstrap_servers=settings["bootstrap.servers"],
    security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN",
    sasl_plain_username=settings["sasl.username"], sasl_plain_password=settings["sasl.password"])
producer.send(settings["driver.topic"], b"x").get(60)
print('{"event": "started"}', flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[str | Path]], list[str]]:
    """Commands of clients of further libraries by software name, and why there are none of others."""
    commands: dict[str, list[str | Path]] = {}
    missing = []
    folder = tmp_path_factory.mktemp("kafka-python")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target"]
    installed = subprocess.run([*pip, folder, "kafka-python==3.0.12"], capture_output=True, text=True, check=False)
    if installed.returncode == 0:
        commands["kafka-python"] = [sys.executable, "-c", KAFKA_PYTHON, folder]
    else:
        missing.append(f"kafka-python ({(installed.stderr.strip().splitlines() or ['pip failed'])[-1]})")
    for name, program in (("sarama", partial(go_program, SARAMA, "sarama")), ("kgo", franz_go_driver)):
        try:
            commands[name] = [program(), "producer"]
        except ClientUnavailableError as error:
            missing.append(f"{name} ({error})")
    return commands, missing


def api_versions(address: str, name: str | None) -> socket.socket:
    """A connection that has said who it is: nothing, as clients before KIP-511, or a name of version 1."""
    host, port = address.split(":")
    body = b"" if name is None else b"\0" + _compact(name) + _compact("1") + b"\0"
    request = (18).to_bytes(2) + (0 if name is None else 3).to_bytes(2) + (7).to_bytes(4) + b"\xff\xff" + body
    connection = socket.create_connection((host, int(port)), 60)
    connection.sendall(len(request).to_bytes(4) + request)
    assert connection.recv(8)[4:] == (7).to_bytes(4)
    return connection


def _compact(text: str) -> bytes:
    number, length = len(text) + 1, bytearray()
    while number > 127:
        length.append(number & 127 | 128)
        number >>= 7
    return bytes([*length, number]) + text.encode()


def sockets(cluster: LocalCluster) -> Counter[int]:
    """Open connections to the listener by the client's process, as the operating system has them."""
    port = int(cluster.sasl_bootstrap_servers.rpartition(":")[2])
    return Counter(
        each.pid or 0
        for each in psutil.net_connections("tcp")
        if each.raddr and each.raddr.port == port and each.status == psutil.CONN_ESTABLISHED
    )


def reported(cluster: LocalCluster) -> dict[str | None, int]:
    """Connections of the listener by software name in the newest status."""
    statuses = [json.loads(message.value() or b"") for message in messages(cluster, STATUS)]
    if not statuses:
        return {}
    newest = max(statuses, key=lambda status: status["time_ms"])
    counts = Counter[str | None]()
    for each in newest["connections"]:
        if each["listener"] == LISTENER:
            counts[each.get("client_software_name")] += each["connections"]
    return dict(counts)


@pytest.fixture
def strangers(cluster: LocalCluster) -> Iterator[None]:
    """Three of software `unknown`, of which one has a name that Kafka refuses, and one whose name is too long."""
    with ExitStack() as stack:
        for name in (None, None, "n" * 200, "no name!"):
            stack.enter_context(api_versions(cluster.sasl_bootstrap_servers, name))
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("strangers")
def test_connections_and_pushing_instances_are_those_of_the_clients(
    cluster: LocalCluster, clients: LocalClients, landing: Landing, ingest: Ingest, topic: str,
    others: tuple[dict[str, list[str | Path]], list[str]], tmp_path: Path,
) -> None:  # fmt: skip
    def producers(name: str, library: Any, number: int, properties: dict[str, str]) -> list[Client]:
        return [
            clients.producer(library, topic, f"telemetry-{name}-{n}", rate=5, properties=properties, credentials=ALICE)
            for n in range(number)
        ]

    pushing = {
        "apache-kafka-java": producers("java", "java", 2, {}),
        "confluent-kafka-python": producers("rd", "librdkafka", 2, {}),
    }
    software = {name: list(of_name) for name, of_name in pushing.items()}
    software["apache-kafka-java"] += producers("java-off", "java", 1, OFF)
    software["librdkafka"] = producers("rd-off", "librdkafka", 2, OFF | NAMED)
    commands, missing = others
    login = {"bootstrap.servers": cluster.sasl_bootstrap_servers, "sasl.username": ALICE[0], "sasl.password": ALICE[1]}
    login |= {"driver.topic": topic, "driver.records": "-1", "driver.rate": "5", "driver.value_bytes": "9"}
    login["driver.idle_ms"] = "600000"  # franz-go would close a connection between the report and the look at sockets
    software |= {name: [clients.start(f"telemetry-{name}", commands[name], login)] for name in commands}
    if "kgo" in software:
        pushing["kgo"] = software["kgo"]
    for each in (client for of_name in software.values() for client in of_name):
        each.wait_for("started")
    for each in (client for of_name in pushing.values() for client in of_name):
        landing.wait_for_more(each.client_id, 2)

    def truth() -> dict[str | None, int]:
        open_now = sockets(cluster)
        counts: dict[str | None, int] = {
            name: sum(open_now[client.pid] for client in of_name) for name, of_name in software.items()
        }
        assert open_now[os.getpid()] == 4
        return counts | {"unknown": 3, None: 1}

    wait_for(lambda: (truth(), reported(cluster)), lambda both: both[0] == both[1])
    lake = tmp_path / "lake"
    ingest(None, lake, "--bootstrap-servers", cluster.bootstrap_servers)
    sql = f"SELECT * FROM telemetry_coverage WHERE listener = '{LISTENER}'"
    rows = {row["client_software_name"]: row for row in run_query(str(lake), sql).read_all().to_pylist()}
    assert {name: row["connections"] for name, row in rows.items()} == truth()
    assert {name: row["pushing_instances"] for name, row in rows.items() if row["pushing_instances"]} == {
        name: len(of_name) for name, of_name in pushing.items()
    }
    java = rows["apache-kafka-java"]
    open_now = sockets(cluster)
    assert java["pushing_connections"] == sum(open_now[client.pid] for client in pushing["apache-kafka-java"])
    reasons = {name: row["likely_reason"] for name, row in rows.items()}
    for name in pushing.keys() - {"apache-kafka-java"}:  # one connection of each is known to be a pushing client's
        one_each = rows[name]["connections"] == len(pushing[name])
        assert reasons.pop(name) == (None if one_each else "other_connections")
    assert reasons == {
        "apache-kafka-java": "other_connections",  # so few may be brokers' own
        "librdkafka": "switched_off",
        "unknown": "no_support",
        None: "unknown",
    } | dict.fromkeys(commands.keys() - {"kgo"}, "no_support")
    for name in ("librdkafka", *commands.keys() - {"kgo"}):
        assert rows[name]["silent_connections"] == rows[name]["connections"] > 0
    if missing:
        pytest.skip(f"all counts are exact, without those of {', '.join(missing)}")
