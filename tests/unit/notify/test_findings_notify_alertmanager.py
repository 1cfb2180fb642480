"""A real Alertmanager gets what `telemetry-lake notify` sends, and its API says what it has."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.sandbox.cluster.ports import ReservedPorts
from kafka_telemetry_lake.sandbox.cluster.process import Process
from tests.support.patience import PATIENCE_S, wait_until
from tests.unit.notify.changed_findings import change, make_lake, record

ALERTMANAGER = next(filter(None, map(shutil.which, ("alertmanager", "prometheus-alertmanager"))), None)
pytestmark = pytest.mark.skipif(ALERTMANAGER is None, reason="no Alertmanager; .ci/run brings Debian's")
CONFIG = "route: {receiver: none, group_wait: 1h}\nreceivers: [{name: none}]\n"


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    ports, log = ReservedPorts(1), tmp_path / "alertmanager.log"
    (port,) = ports.numbers
    (tmp_path / "alertmanager.yml").write_text(CONFIG)
    flags = (f"--config.file={tmp_path}/alertmanager.yml", f"--storage.path={tmp_path}/alertmanager")
    listen = (f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=")
    process = Process([str(ALERTMANAGER), *flags, *listen], log)
    try:
        wait_until(lambda: answers(port) or process.returncode is not None)
        assert process.returncode is None, log.read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.stop()
        ports.release()


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=PATIENCE_S):
            return True
    except OSError:
        return False


def alerts(url: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Alertmanager's alerts that aren't resolved, by subject and severity."""
    with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=PATIENCE_S) as answer:
        return {(each["labels"]["subject"], each["labels"]["severity"]): each for each in json.load(answer)}


def test_alerts_open_change_and_end(url: str, tmp_path: Path) -> None:
    lake = make_lake(tmp_path)
    config = tmp_path / "notify.yml"
    sink = {"type": "alertmanager", "url": url, "resend_seconds": 1, "expire_seconds": 3600}
    config.write_text(yaml.safe_dump({"sinks": {"am": sink}}))
    began = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=2)

    def say(subject: str, kind: str, minute: int, **columns: Any) -> dict[str, Any]:
        moment = began + timedelta(minutes=minute)
        return change(subject, kind, at=moment, opened_at=began, recorded_at=moment, **columns)

    def notify() -> dict[tuple[str, str], dict[str, Any]]:
        assert cli.main(["notify", "--lake", lake, "--notify", str(config)]) == 0
        return alerts(url)

    hostile = f"\x00\x1b[2J\n{'ü' * 1024}"
    record(lake, *(say(name, "opened", 0, owner="team-a") for name in ("a", "b", "c", hostile)))
    first = notify()
    assert len(first) == 4
    alert = first["a", "warning"]
    assert alert["labels"] == {
        "alertname": "no_compression", "severity": "warning", "cluster": "c1", "scope": "client_id", "subject": "a",
        "owner": "team-a", "finding_id": change("a")["finding_id"],
    }  # fmt: skip
    assert alert["annotations"]["evidence"] == "compression rate 1.0"
    assert alert["annotations"]["advice"] == "set compression.type=zstd"
    assert alert["status"]["state"] != "suppressed"
    assert datetime.fromisoformat(alert["startsAt"]) == began
    expires = datetime.fromisoformat(alert["endsAt"]) - datetime.now(UTC)
    assert timedelta(minutes=58) < expires <= timedelta(hours=1)

    record(lake, say("a", "changed", 1, severity="error", owner="team-a"), say("b", "resolved", 2, owner="team-a"))
    record(lake, say("c", "resolved", 3, owner="team-a"))
    second = notify()
    assert {key for key in second if len(key[0]) < 9} == {("a", "error")}  # the others have ended
    assert len(second) == 2
    third = notify()
    assert third.keys() == second.keys()
    assert third["a", "error"]["fingerprint"] == second["a", "error"]["fingerprint"]
    assert third["a", "error"]["endsAt"] > second["a", "error"]["endsAt"]
    record(lake, say("a", "resolved", 4, severity="error", owner="team-a"), say(hostile, "resolved", 4, owner="team-a"))
    assert notify() == {}
