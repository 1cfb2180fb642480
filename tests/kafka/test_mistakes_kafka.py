"""Listeners of a real broker, asked without a JVM: right and wrong protocols."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_telemetry_lake.pipelines.runtime.kafka_admin import KafkaUnavailableError
from kafka_telemetry_lake.pipelines.runtime.kafka_reach import check_brokers
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from tests.support.patience import idle_clock

pytestmark = pytest.mark.slow

LISTENERS = {"PLAINTEXT": "plain", "SASL_PLAINTEXT": "sasl", "SASL_SSL": "tls"}


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    with LocalCluster(sasl_users={"alice": "alice-secret"}, scram_users={"bob": "bob-secret"}) as cluster:
        servers = (cluster.bootstrap_servers, cluster.sasl_bootstrap_servers, cluster.tls_bootstrap_servers)
        yield dict(zip(LISTENERS.values(), servers, strict=True))


@pytest.mark.parametrize("protocol", LISTENERS)
def test_a_listener_is_reached_by_its_protocol(addresses: dict[str, str], protocol: str) -> None:
    """Before authentication: the check needs no credentials and no trust store."""
    check_brokers(addresses[LISTENERS[protocol]], {"kafka.security.protocol": protocol})


@pytest.mark.parametrize(
    ("listener", "protocol"),
    [("tls", "PLAINTEXT"), ("tls", "SASL_PLAINTEXT"), ("plain", "SSL"), ("sasl", "SASL_SSL")],
)
def test_a_wrong_protocol_is_named_within_seconds(addresses: dict[str, str], listener: str, protocol: str) -> None:
    with idle_clock() as clock, pytest.raises(KafkaUnavailableError) as error:
        check_brokers(addresses[listener], {"kafka.security.protocol": protocol})
    assert clock.seconds < 5
    assert "TLS" in str(error.value)
    assert f"kafka.security.protocol ({protocol}) is the listener's" in str(error.value)
