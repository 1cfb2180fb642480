"""The receivers' own answers to telemetry requests, beside those of the class that answers them in a broker."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kafka_telemetry_lake.pipelines.runtime.java import java_program
from kafka_telemetry_lake.sandbox.cluster.java import compile_java, kafka_class_path
from kafka_telemetry_lake.sandbox.cluster.plugin import RECEIVER

ORACLE = Path(__file__).with_name("ProxyOracle.java")
PROTOCOL = RECEIVER / "proxy" / "src" / "main" / "java" / "io/github/kafkatelemetrylake/receiver/subscriptions"


# A sequence has 60 requests and changes of subscriptions, of four client instances.
@pytest.mark.parametrize(
    ("version", "sequences"),
    [("4.3.1", 100), *(pytest.param(version, 3_000, marks=pytest.mark.slow) for version in ("4.3.1", "4.4.0"))],
)
def test_random_requests_are_answered_as_a_broker_answers_them(version: str, sequences: int) -> None:
    """All errors and fields. Ids of two and more metrics are in an order that only one broker knows."""
    classes = compile_java([ORACLE, *sorted(PROTOCOL.glob("*.java"))], kafka_class_path(version))
    command = [java_program(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]
    command += [kafka_class_path(version, classes), "ProxyOracle", str(sequences), "20261128"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    counts = {kind: int(count) for kind, count in (line.rsplit(" ", 1) for line in done.stdout.splitlines())}
    print(counts)
    # Each answer that there is has been compared.
    assert {"get NONE", "get THROTTLING_QUOTA_EXCEEDED"} | {
        f"push {error}"
        for error in (
            "NONE",
            "THROTTLING_QUOTA_EXCEEDED",
            "UNKNOWN_SUBSCRIPTION_ID",
            "UNSUPPORTED_COMPRESSION_TYPE",
            "TELEMETRY_TOO_LARGE",
            "INVALID_REQUEST",
        )
    } <= counts.keys()
    assert min(counts.values()) > sequences // 10
