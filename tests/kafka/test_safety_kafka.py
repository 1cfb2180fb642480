"""A secured cluster end to end: SASL_SSL with SCRAM, ACLs for the topics only, and no secret left anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_telemetry_lake.pipelines.ingest.sources import SourceError
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import KafkaUnavailableError
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from tests.conftest import Ingest
from tests.support.ledger import Fleet, Ledger
from tests.support.ledger_check import check
from tests.support.ledger_run import land

pytestmark = pytest.mark.slow
TOPICS = ("client-telemetry", "client-telemetry-status", "client-quotas")
USERS = {"lake": "lake-secret-1", "nobody": "nobody-secret-2"}


@pytest.fixture(scope="module")
def secured() -> Iterator[LocalCluster]:
    """Everybody on the PLAINTEXT listener is the administrator; user lake may read the landing topics, and no more."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with LocalCluster(scram_users=USERS, properties=properties, landing_partitions=3) as cluster:
        for topic in TOPICS:
            cluster.tool(
                "org.apache.kafka.tools.AclCommand",
                "--add", "--allow-principal", "User:lake", "--operation", "Read", "--operation", "Describe",
                "--topic", topic,
            )  # fmt: skip
        yield cluster


def options(cluster: LocalCluster, user: str, password: str) -> list[str]:
    assert cluster.tls is not None
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    found = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
        "kafka.ssl.truststore.location": str(cluster.tls.truststore),
        "kafka.ssl.truststore.password": cluster.tls.password,
        "kafka.ssl.truststore.type": "PKCS12",
    }
    return [word for key, value in found.items() for word in ("--kafka-options", f"{key}={value}")]


def test_sasl_ssl_with_scram_and_acls(
    secured: LocalCluster, ingest: Ingest, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: Any
) -> None:
    fleet, lake = Fleet(), tmp_path / "lake"
    records = fleet.round()
    placed = land(secured, records, fleet.ledger.landed)
    servers = ["--bootstrap-servers", secured.tls_bootstrap_servers]
    ingest(None, lake, *servers, *options(secured, "lake", USERS["lake"]))
    verdict = check(lake, Ledger(placed, fleet.ledger.increments))
    assert (verdict.lost, verdict.doubled, verdict.problems) == (0, 0, [])
    with pytest.raises(KafkaUnavailableError) as refused:
        ingest(None, tmp_path / "other", *servers, *options(secured, "lake", "wrong-secret-3"))
    with pytest.raises((SourceError, KafkaUnavailableError)) as unseen:  # authenticated, but without any right
        ingest(None, tmp_path / "other", *servers, *options(secured, "nobody", USERS["nobody"]))
    assert secured.tls is not None
    said = capfd.readouterr()
    output = f"{refused.value} {unseen.value} {said.out} {said.err} {caplog.text}"
    for secret in (*USERS.values(), "wrong-secret-3", secured.tls.password):
        assert secret not in output
        holding = [file for file in lake.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]
        assert holding == []
