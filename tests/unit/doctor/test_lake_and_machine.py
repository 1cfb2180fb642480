"""What `doctor` says of a lake and of this machine."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from filelock import FileLock

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs.support.locks import job_runs
from kafka_telemetry_lake.pipelines.doctor.lake_checks import LakeFacts, check_lake, read_lake
from kafka_telemetry_lake.pipelines.doctor.machine_checks import AUTHORITIES, PROXIES, check_network, disk, memory
from kafka_telemetry_lake.pipelines.tables.operator import TABLES
from tests.support.listeners import listening

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
FRESH = LakeFacts(NOW - timedelta(seconds=4), NOW - timedelta(seconds=6), 0, 0.1)


def ms(time: datetime) -> int:
    return round(1000 * time.timestamp())


def test_a_fresh_lake() -> None:
    checks = list(check_lake("lake", FRESH, True, ms(NOW - timedelta(seconds=2)), NOW))
    assert [(check.name, check.status, check.text) for check in checks] == [
        ("lake", "ok", "there is a lake at lake"),
        ("job", "ok", "a job writes this lake; last batch 4 s ago"),
        ("freshness", "ok", "the newest push in the lake landed 6 s ago, 4 s before the topic's newest"),
    ]


@pytest.mark.parametrize(
    ("facts", "runs", "newest", "name", "text"),
    [
        (None, False, None, "lake", "no lake at lake yet"),
        (FRESH, False, None, "job", "no job writes this lake; last batch 4 s ago"),
        (LakeFacts(), True, None, "freshness", "no push is in the lake yet"),
        (LakeFacts(NOW, NOW - timedelta(hours=3), 70_000, 0.2), True, NOW, "freshness",
         "the newest push in the lake landed 3 h ago, 3 h before the topic's newest; 70,000 wait"),
        (LakeFacts(NOW, NOW, 0, 0.97), True, NOW, "load", "the job spent 97% of its last hour in batches"),
    ],
)  # fmt: skip
def test_a_lake_with_a_fault(
    facts: LakeFacts | None, runs: bool, newest: datetime | None, name: str, text: str
) -> None:
    checks = list(check_lake("lake", facts, runs, None if newest is None else ms(newest), NOW))
    (found,) = [check for check in checks if check.status == "warning"]
    assert (found.name, found.text) == (name, text)
    assert found.advice


def test_proxies_and_missing_certificates_are_named_without_their_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*AUTHORITIES, *PROXIES, *(each.lower() for each in PROXIES)):
        monkeypatch.delenv(name, raising=False)
    assert list(check_network()) == []
    (tmp_path / "ca.pem").touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/ca.pem")
    monkeypatch.setenv("https_proxy", "http://me:secret@proxy:3128")
    assert [(each.name, each.status, each.text) for each in check_network()] == [
        ("network", "failed", "REQUESTS_CA_BUNDLE names /no/ca.pem, which isn't there"),
        ("network", "ok", "HTTP requests go through the proxy of https_proxy; Kafka is asked directly"),
    ]


def test_whether_a_job_runs_is_seen_by_its_lock(tmp_path: Path) -> None:
    assert job_runs(str(tmp_path)) is False
    with FileLock(tmp_path / ".lock"):
        assert job_runs(str(tmp_path)) is True
    assert job_runs(str(tmp_path)) is False
    assert job_runs("s3a://bucket/lake") is None


def test_memory_and_disk() -> None:
    assert [memory(size).status for size in (None, (3 << 30) - 1, 3 << 30)] == ["skipped", "warning", "ok"]
    assert [disk(size, Path("/")).status for size in ((2 << 30) - 1, 2 << 30)] == ["failed", "ok"]


def test_a_new_lake_has_facts_but_no_values(tmp_path: Path) -> None:
    assert read_lake(str(tmp_path / "none")) is None
    for table in TABLES:
        table.create(str(tmp_path))
    assert read_lake(str(tmp_path)) == LakeFacts()


def test_it_goes_on_without_a_cluster_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with listening(lambda connection: connection.close()) as closing:
        argv = ["--bootstrap-servers", f"127.0.0.1:{closing}", "--lake", str(tmp_path / "lake"), "--format", "json"]
        assert cli.main(["doctor", *argv]) == 1
    content = json.loads(capsys.readouterr().out)
    assert content["exit_code"] == 1
    found = {check["name"]: check["status"] for check in content["checks"]}
    assert found == {
        "java": "ok", "environment": "ok", "python": "ok", "memory": found["memory"], "disk": found["disk"],
        "reachability": "failed", "lake": "warning",
    }  # fmt: skip
    (failed,) = [check for check in content["checks"] if check["name"] == "reachability"]
    assert "it closed the connection, as a listener with TLS does" in failed["text"]
    assert "kafka.security.protocol (PLAINTEXT) is the listener's" in failed["advice"]
    assert not (tmp_path / "lake").exists()
