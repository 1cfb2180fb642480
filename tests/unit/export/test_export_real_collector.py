"""A real OpenTelemetry Collector, built from its Go modules, gets what SQL says: of points and of events."""

from __future__ import annotations

import shutil
import signal
import struct
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from benchmarks.peers.build import BUILT, built
from kafka_telemetry_lake.pipelines.tables.operator import CLIENT_EVENTS, METRIC_POINTS
from kafka_telemetry_lake.sandbox.cluster.ports import ReservedPorts
from kafka_telemetry_lake.sandbox.cluster.process import Process
from tests.support.patience import PATIENCE_S, wait_until
from tests.unit.export.made_lake import HOSTILE, LATENCY, NOW, SENT, ask, make_lake, point, put
from tests.unit.export.test_export_counting import EVERY

SOURCES = Path(__file__).parents[2] / "support" / "otlp_collector"
COUNTED = "delta_status NOT IN ('duplicate', 'conflict', 'too_late')"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("go") is None, reason="no Go, of which the Collector is built"),
]


def program() -> Path:
    """Built before an exporter starts, which waits longer after each failure: the first build takes minutes."""
    output = BUILT / SOURCES.name
    command = ["go", "build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", str(output), "."]
    return built(SOURCES, ["*.go", "go.*"], command, output)


class Collector:
    """A Collector that writes what it gets into files."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._ports, self._program = folder, ReservedPorts(1), program()
        self.url = f"http://127.0.0.1:{self._ports.numbers[0]}"

    @contextmanager
    def running(self) -> Iterator[None]:
        files = {
            f"file/{signal_}": {"path": str(self._folder / f"{signal_}.binpb"), "format": "proto", "append": True,
                                "flush_interval": "100ms"}
            for signal_ in ("metrics", "logs")
        }  # fmt: skip
        config = {
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": self.url.removeprefix("http://")}}}},
            "exporters": files,
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {
                    each: {"receivers": ["otlp"], "exporters": [f"file/{each}"]} for each in ("metrics", "logs")
                },
            },
        }
        (self._folder / "collector.yaml").write_text(yaml.safe_dump(config), "utf-8")
        command = ["env", "GOMAXPROCS=1", str(self._program), "--config", str(self._folder / "collector.yaml")]
        process = Process(command, self._folder / "collector.log")
        try:
            yield
        finally:
            process.stop()

    def _messages(self, name: str) -> Iterator[bytes]:
        file = self._folder / f"{name}.binpb"
        data = file.read_bytes() if file.exists() else b""
        while len(data) >= 4:
            (length,) = struct.unpack(">I", data[:4])
            if len(data) < 4 + length:
                return  # it is being written
            yield data[4 : 4 + length]
            data = data[4 + length :]

    def points(self) -> list[tuple[Any, ...]]:
        """Identity and value of each point: instance, metric, attributes, start, time (ns); value."""
        return [
            (_instance(resource), metric.name, _attributes(each), each.start_time_unix_nano, each.time_unix_nano,
             each.as_int if each.WhichOneof("value") == "as_int" else each.as_double)
            for message in self._messages("metrics")
            for resource in MetricsData.FromString(message).resource_metrics
            for metric in resource.scope_metrics[0].metrics
            for each in getattr(metric, metric.WhichOneof("data") or "sum").data_points
        ]  # fmt: skip

    def events(self) -> Counter[tuple[str, str]]:
        """Name and id of each event."""
        return Counter(
            (record.event_name, dict(_attributes(record))["log.record.uid"])
            for message in self._messages("logs")
            for resource in LogsData.FromString(message).resource_logs
            for record in resource.scope_logs[0].log_records
        )


def _attributes(each: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((attribute.key, attribute.value.string_value) for attribute in each.attributes))


def _instance(resource: Any) -> str:
    return str(dict(_attributes(resource.resource))["service.instance.id"])


@pytest.fixture
def collector(tmp_path: Path) -> Collector:
    return Collector(tmp_path)


@contextmanager
def exporting(lake: str, collector: Collector, *flags: str) -> Iterator[Process]:
    process = Process(
        [
            sys.executable, "-m", "kafka_telemetry_lake.jobs.export", "--lake", lake, "--port", "0", "--otlp",
            collector.url, "--otlp-since", "start", *flags,
        ], Path(lake).parent / "export.log",
    )  # fmt: skip
    try:
        yield process
    finally:
        process.stop()


def expected_sums(lake: str) -> dict[tuple[str, str], float]:
    sql = (
        "SELECT client_instance_id, metric, sum(delta) FROM metric_points "
        f"WHERE delta IS NOT NULL AND {COUNTED} GROUP BY ALL"
    )
    return {(instance, metric): value for instance, metric, value in ask(lake, sql)}


def once(points: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], Any]:
    """Points by their identity: as a receiver knows what it has got before."""
    return {identity: value for *identity_, value in points for identity in [tuple(identity_)]}


def sums(points: list[tuple[Any, ...]]) -> dict[tuple[str, str], float]:
    result: dict[tuple[str, str], float] = defaultdict(float)
    for (instance, metric, *_), value in once(points).items():
        if metric.endswith(".total"):
            result[instance, metric] += value
    return dict(result)


def last_totals(points: list[tuple[Any, ...]]) -> dict[tuple[str, str], float]:
    """The newest total of each series, added up by instance and metric."""
    newest: dict[tuple[Any, ...], tuple[float, float]] = {}
    for (instance, metric, attributes, _, time), value in once(points).items():
        if metric.endswith(".total"):
            key = (instance, metric, attributes)
            newest[key] = max(newest.get(key, (0, 0)), (time, value))
    result: dict[tuple[str, str], float] = defaultdict(float)
    for (instance, metric, _), (_, total) in newest.items():
        result[instance, metric] += total
    return dict(result)


def rows(second: int) -> list[dict[str, Any]]:
    return [
        point("a", metric, delta=second * 10 + n, second=second, topic=name)
        for n, (metric, name) in enumerate(zip([SENT] * len(HOSTILE), HOSTILE, strict=True))
    ]


@pytest.mark.parametrize(("temporality", "added"), [("delta", sums), ("cumulative", last_totals)])
def test_it_has_what_sql_says_after_a_kill_and_a_time_when_it_was_down(
    tmp_path: Path, collector: Collector, temporality: str, added: Callable[[Any], dict[tuple[str, str], float]]
) -> None:
    lake = make_lake(tmp_path, *(row for row in EVERY if row["delta"] is not None), *rows(1))
    put(lake, METRIC_POINTS, [point("a", LATENCY, value=1.5)])
    event = {"landed_at": NOW, "at": NOW, "client_instance_id": "a", "client_id": "a", "detail": [("why", HOSTILE[2])]}
    put(lake, CLIENT_EVENTS, [event | {"event": "silent"}, event | {"event": "resumed"}])

    def is_equal() -> bool:
        return added(collector.points()) == expected_sums(lake) and len(collector.events()) == 2

    with exporting(lake, collector, "--otlp-temporality", temporality) as exporter:  # the Collector is down
        log = tmp_path / "export.log"
        wait_until(lambda: "otlp: metrics: it can't be reached; tried again" in log.read_text("utf-8"))
        with collector.running():
            wait_until(is_equal)
            put(lake, METRIC_POINTS, rows(2))
            exporter.signal(signal.SIGKILL)
    with collector.running(), exporting(lake, collector, "--otlp-temporality", temporality) as exporter:
        put(lake, METRIC_POINTS, rows(3))
        wait_until(is_equal)
        exporter.stop(PATIENCE_S)
        assert exporter.returncode == 0
    (number,) = ask(lake, f"SELECT count(*) FROM metric_points WHERE {COUNTED} AND coalesce(delta, value) IS NOT NULL")
    assert len(once(collector.points())) == number[0]
    assert {name for name, _ in collector.events()} == {"kafka.client.silent", "kafka.client.resumed"}
