"""A real Prometheus that scrapes the exporter twice a second has what SQL says, and so has one that an agent writes to.

It is Debian's: `apt-get download prometheus; dpkg-deb -x prometheus_*.deb DIR`, which .ci/run does.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS
from kafka_telemetry_lake.sandbox.cluster.ports import ReservedPorts
from kafka_telemetry_lake.sandbox.cluster.process import Process
from tests.support.patience import PATIENCE_S, wait_until
from tests.unit.export.made_lake import HOSTILE, LATENCY_MAX, NOW, SENT, ask, point, put
from tests.unit.export.test_export_fleet import hostile_lake

NAME = "telemetry_lake_client_records_sent_total"
LOG = "prometheus.log"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="no Prometheus; .ci/run brings Debian's"),
]


@contextmanager
def running(command: list[str], log: Path) -> Iterator[Process]:
    process = Process(command, log)
    try:
        yield process
    finally:
        process.stop()


class Prometheus:
    """The API of a Prometheus."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def query(self, expression: str) -> list[Any]:
        """The result of an expression; nothing while it doesn't answer."""
        url = f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                result: list[Any] = json.loads(answer.read())["data"]["result"]
                return result
        except urllib.error.URLError:
            return []

    def values(self, job: str, name: str = NAME) -> dict[str, float]:
        """The newest value of each client id."""
        rows = self.query(f'{name}{{job="{job}"}}')
        return {row["metric"].get("client_id", ""): float(row["value"][1]) for row in rows}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[tuple[Callable[..., Any], Prometheus]]:
    """Starts exporters that a running Prometheus scrapes, and one in agent mode that writes to it, as job `agent`."""
    ports = ReservedPorts(3)
    own, agents, exporters = ports.numbers
    prometheus = Prometheus(own)
    server = _command(tmp_path, "telemetry-lake", exporters, own)
    server += [f"--storage.tsdb.path={tmp_path}/data", "--web.enable-remote-write-receiver"]
    agent = _command(tmp_path, "agent", exporters, agents, remote_write=[{"url": f"{prometheus.url}/api/v1/write"}])
    agent += [f"--storage.agent.path={tmp_path}/agent", "--enable-feature=agent"]

    def start(lake: str, *flags: str) -> Any:
        return running([
            sys.executable, "-m", "kafka_telemetry_lake.jobs.export", "--lake", lake, "--port", str(exporters),
            "--refresh-seconds", "0.5", "--stale-minutes", "525600", *flags,
        ], tmp_path / "export.log")  # fmt: skip

    with running(server, tmp_path / LOG), running(agent, tmp_path / "agent.log"):
        yield start, prometheus
    ports.release()


def _command(folder: Path, job: str, scraped: int, own: int, **others: Any) -> list[str]:
    """Of a Prometheus on port `own` that scrapes port `scraped`, without its storage."""
    config = {
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s"},
        "scrape_configs": [{"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{scraped}"]}]}],
        **others,
    }
    (folder / f"{job}.yml").write_text(yaml.safe_dump(config), "utf-8")
    own_port = f"--web.listen-address=127.0.0.1:{own}"
    return ["env", "GOMAXPROCS=1", "prometheus", f"--config.file={folder}/{job}.yml", own_port]


def expected(lake: str) -> dict[str, float]:
    sql = "SELECT client_id, sum(records_sent) FROM client_measures GROUP BY 1"
    return {(name or "")[:256]: value for name, value in ask(lake, sql)}


def test_both_have_what_sql_says_and_no_counter_falls_when_the_exporter_is_killed(
    tmp_path: Path, start: tuple[Callable[..., Any], Prometheus]
) -> None:
    starting, prometheus = start
    lake = hostile_lake(tmp_path)

    def push(second: int) -> None:
        rows = [point(name, SENT, delta=second, second=second, instance=f"i{n}") for n, name in enumerate(HOSTILE)]
        put(lake, METRIC_POINTS, rows)

    def both_are_equal() -> bool:
        return prometheus.values("telemetry-lake") == prometheus.values("agent") == expected(lake)

    with starting(lake) as exporter:
        wait_until(both_are_equal)
        push(10)
        wait_until(both_are_equal)
        push(20)
        exporter.signal(signal.SIGKILL)
        wait_until(lambda: [row["value"][1] for row in prometheus.query('up{job="telemetry-lake"}')] == ["0"])
    push(30)
    with starting(lake) as exporter:
        wait_until(both_are_equal)
        exporter.stop(PATIENCE_S)
        assert exporter.returncode == 0
    assert len(expected(lake)) == len(HOSTILE) + 5
    for job in ("telemetry-lake", "agent"):
        resets = prometheus.query(f'resets({NAME}{{job="{job}"}}[10m])')
        assert [row["value"][1] for row in resets] == ["0"] * len(expected(lake))
    (up,) = prometheus.query('min_over_time(scrape_samples_scraped{job="telemetry-lake"}[10m])')
    assert up["value"][1] == "0"  # of the scrapes while it was killed
    warnings = [line for line in (tmp_path / LOG).read_text("utf-8").splitlines() if "level=error" in line]
    assert warnings == []


def test_a_gauge_without_new_points_ends_at_once_on_both_sides(
    tmp_path: Path, start: tuple[Callable[..., Any], Prometheus]
) -> None:
    """Without the signs of an end, Prometheus would show it for five minutes."""
    starting, prometheus = start
    name = "telemetry_lake_client_request_latency_max_seconds"
    gone: dict[str, dict[str, float]] = {"telemetry-lake": {}, "agent": {}}
    lake = hostile_lake(tmp_path)

    def found() -> dict[str, dict[str, float]]:
        return {job: prometheus.values(job, name) for job in gone}

    with starting(lake, "--window-minutes", "0.3"):
        wait_until(lambda: prometheus.values("agent") == expected(lake))
        assert found() == gone

        def is_found_while_it_is_new() -> bool:
            second = int(time.time() - NOW.timestamp())
            put(lake, METRIC_POINTS, [point("c1", LATENCY_MAX, value=250, instance="i9", second=second)])
            return found() == {job: {"c1": 0.25} for job in gone}

        wait_until(is_found_while_it_is_new, every_s=5)
        wait_until(lambda: found() == gone)
        assert prometheus.values("agent") == expected(lake)
