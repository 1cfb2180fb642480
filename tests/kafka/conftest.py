"""One broker with the receiver plugin for all Kafka tests, and what drives and reads it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.clients.franz_go import franz_go_driver
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.plugin import receiver_jar

from .landing import Landing

PUSH_INTERVAL_MS = 300
RETENTION_CHECK_MS = 1000
USERS = {"alice": "alice-secret", "bob": "bob-secret", "carol": "carol-secret"}
# All may do everything but carol, who has what a test gives her.
RIGHTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:alice;User:bob",
}


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    # So that compaction is done soon, and what is too old would be deleted soon.
    soon = {"log.cleaner.backoff.ms": 100, "log.retention.check.interval.ms": RETENTION_CHECK_MS}
    properties = RIGHTS | soon
    with LocalCluster(plugin=receiver_jar(), sasl_users=USERS, log_requests=True, properties=properties) as cluster:
        # franz-go takes "*" for a literal prefix.
        match = ["client_id=telemetry-.*"]
        cluster.subscribe("telemetry", ["org.apache.kafka."], PUSH_INTERVAL_MS, match)
        yield cluster
        cluster.keep_folder = request.session.testsfailed > 0


@pytest.fixture
def clients(cluster: LocalCluster) -> Iterator[LocalClients]:
    with LocalClients(cluster) as clients:
        yield clients


@pytest.fixture
def landing(cluster: LocalCluster) -> Iterator[Landing]:
    with Landing(cluster.bootstrap_servers) as landing:
        yield landing


@pytest.fixture
def topic(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions for this test alone."""
    name: str = request.node.name.replace("[", ".").replace("]", "")
    cluster.create_topic(name, partitions=2)
    return name


@pytest.fixture(scope="session")
def franz_go() -> Path:
    """The franz-go driver."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    return franz_go_driver()
