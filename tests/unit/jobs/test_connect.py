"""`connect` changes nothing without consent, and says what the brokers need."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kafka_telemetry_lake.jobs import connect
from kafka_telemetry_lake.jobs.settings.base import UsageError, parse
from kafka_telemetry_lake.jobs.settings.connect import ConnectSettings
from tests.support.patience import PATIENCE_S

EXPORTER = "io.github.kafkatelemetrylake.receiver.ClientTelemetryLakeExporter"


def settings(*flags: str) -> ConnectSettings:
    return parse(ConnectSettings, ["--bootstrap-servers", "b:9092", "--lake", "lake", *flags], "test")


def test_without_a_terminal_and_consent_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    steps = [connect.ClusterChange(f"create topic {name}", lambda: made.append("made")) for name in ("a", "b")]
    with pytest.raises(UsageError, match=r"would create topic a; create topic b: .* --yes; nothing was changed"):
        connect.consent_or_refuse(steps, yes=False)
    connect.consent_or_refuse(steps, yes=True)
    connect.consent_or_refuse([], yes=False)
    assert made == []


@pytest.mark.parametrize(("typed", "made"), [("y", True), ("YES", True), ("", False), ("n", False), ("yeah", False)])
def test_only_a_yes_is_consent(monkeypatch: pytest.MonkeyPatch, typed: str, made: bool) -> None:
    monkeypatch.setattr("builtins.input", lambda _: typed)
    assert connect.consents(connect.ClusterChange("create topic a", lambda: None)) is made


def test_the_brokers_properties() -> None:
    first = f"metric.reporters=org.apache.kafka.common.metrics.JmxReporter,{EXPORTER}"
    assert connect.broker_properties(settings(), EXPORTER) == first
    own = settings(
        "--topic", "pushes", "--kafka-options", "kafka.security.protocol=SASL_SSL",
        "--kafka-options", "kafka.sasl.jaas.config=hunter2",
    )  # fmt: skip
    lines = connect.broker_properties(own, EXPORTER).splitlines()
    assert lines[:4] == [
        first, "client.telemetry.lander.topic=pushes", "client.telemetry.lander.bootstrap.servers=b:9092",
        "client.telemetry.lander.producer.security.protocol=SASL_SSL",
    ]  # fmt: skip
    assert "hunter2" not in "".join(lines)
    assert lines[4].startswith("#")


def test_the_job_has_the_same_cluster_topics_and_options() -> None:
    own = settings("--topic", "pushes", "--kafka-options", "kafka.security.protocol=SSL", "--driver-memory", "1g")
    job = connect.ingest_settings(own)
    assert (job.source, job.lake, job.bootstrap_servers, job.topic) == ("kafka", "lake", "b:9092", "pushes")
    assert (job.status_topic, job.quotas_topic) == ("client-telemetry-status", "client-quotas")
    assert job.kafka_options == {"kafka.security.protocol": "SSL"}
    assert (job.driver_memory, job.once, job.sync_seconds, job.trigger_seconds) == ("1g", False, 60.0, 5.0)


def test_a_look_at_the_lake_is_over_before_the_process_may_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python ends a thread at its exit, which aborts the process if it is in a library's C++."""
    begun, goes_on, done = threading.Event(), threading.Event(), threading.Event()

    class Rows:
        def __init__(self, lake: str, show: Callable[[str], object]) -> None:
            assert (lake, show) == ("lake", connect.log.info)

        def look(self) -> None:
            begun.set()
            assert goes_on.wait(PATIENCE_S)
            done.set()

    monkeypatch.setattr(connect, "NewRows", Rows)
    monkeypatch.setattr(connect, "LOOK_S", 0.01)
    monkeypatch.setattr(connect, "END_PATIENCE_S", PATIENCE_S)
    with connect._printing_rows("lake"):
        assert begun.wait(PATIENCE_S)
        threading.Timer(0.2, goes_on.set).start()
    assert done.is_set()
