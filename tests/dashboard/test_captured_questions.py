"""The questions that README and the demo suggest, over the captured pushes: their answers are what the clients counted.

The truth is read from the payloads by opentelemetry-proto, without the project's decoding and conversion.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, MetricsData

from kafka_telemetry_lake.jobs.demo_report import QUESTIONS, REPORT
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.udfs.conversion.compression import decompress
from tests.dashboard.captured_lake import RENAMED
from tests.support.landing_records import captured

README = Path(__file__).parents[2] / "README.md"
DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
RECORDS, LATENCIES, LOST = QUESTIONS.values()
SENT = "org.apache.kafka.producer.record.send.total"
LATENCY = "org.apache.kafka.producer.request.latency.avg"
# It changes its subscription's temporality twice. By rule C9 the 299 records between its last delta and the first total
# are unknown: it sent 2,796.
FLIPPED = {"java-flip-producer_flip": 2796 - 299}


def pushed(name: str) -> Iterator[tuple[str, str, Metric]]:
    """Client id, instance and metric of each push that has the metric."""
    records = captured().to_pylist()
    headers = [{each["key"]: each["value"].decode() for each in record["headers"]} for record in records]
    values = pa.array([record["value"] for record in records], pa.binary())
    payloads = decompress(values, pa.array([each.get("compression_type") for each in headers], pa.string())).data
    for of, payload in zip(headers, payloads.to_pylist(), strict=True):
        for resource in MetricsData.FromString(payload or b"").resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == name:
                        yield RENAMED.get(of["client_id"], of["client_id"]), of["client_instance_id"], metric


def records_sent() -> dict[str, float]:
    """What each client id sent: its deltas, or its last total."""
    series: dict[tuple[str, str], dict[int, tuple[bool, float]]] = defaultdict(dict)
    for client_id, instance, metric in pushed(SENT):
        is_delta = metric.sum.aggregation_temporality == DELTA
        for point in metric.sum.data_points:
            assert not point.attributes
            value = point.as_double if point.WhichOneof("value") == "as_double" else point.as_int
            series[client_id, instance][point.time_unix_nano] = is_delta, value
    sent: dict[str, float] = defaultdict(float)
    for (client_id, _), points in series.items():
        deltas = [value for is_delta, value in points.values() if is_delta]
        totals = [value for is_delta, value in points.values() if not is_delta]
        assert not (deltas and totals) or client_id in FLIPPED
        sent[client_id] += sum(deltas) if deltas else max(totals)
    return {**sent, **FLIPPED}


def ask(lake: Path, sql: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = run_query(str(lake), sql).read_all().to_pylist()
    return rows


def of_readme() -> str:
    (command,) = re.findall(r"^\S*telemetry-lake query --lake demo-lake .*$", README.read_text("utf-8"), re.MULTILINE)
    return shlex.split(command)[-1]


@pytest.mark.parametrize("sql", [of_readme(), RECORDS], ids=["README", "demo"])
def test_records_sent_are_what_the_clients_counted(lake: Path, sql: str) -> None:
    truth = records_sent()
    assert len(truth) == 37
    answer = [tuple(row.values()) for row in ask(lake, sql)]
    assert sorted(answer) == sorted(truth.items())


def test_a_pattern_counts_records_twice(lake: Path) -> None:
    """Why the questions name the metric in full."""
    sql = "SELECT sum(delta) AS n FROM metric_points WHERE metric LIKE '%record.send.total'"
    assert ask(lake, sql)[0]["n"] > 1.9 * sum(records_sent().values())


def test_libraries_that_push_no_such_counter_are_named() -> None:
    assert not {client_id for client_id, _, _ in pushed(SENT) if not client_id.startswith("java-")}
    assert "librdkafka doesn't push this counter" in next(iter(QUESTIONS))
    assert "librdkafka doesn't push this counter" in README.read_text("utf-8")


def test_latencies_are_those_that_were_pushed(lake: Path) -> None:
    sql = LATENCIES
    truth = {
        (client_id, point.time_unix_nano // 1000, point.as_double)
        for client_id, _, metric in pushed(LATENCY)
        for point in metric.gauge.data_points
        if point.as_double == point.as_double
    }
    answer = ask(lake, sql.replace(" LIMIT 20", ""))
    found = {
        (row["client_id"], round(row["time"].timestamp() * 1_000_000), row["value"])
        for row in answer
        if row["value"] is not None
    }
    assert found == truth
    assert len(ask(lake, sql)) == 20
    assert {client_id.split("-")[0] for client_id, _, _ in found} >= {"java", "librdkafka"}


def test_lost_intervals_are_those_of_the_clients_that_lost_their_cluster(lake: Path) -> None:
    answer = ask(lake, LOST)
    assert {row["client_id"] for row in answer} == {"java-none-producer_stop", "java-rebootstrap-producer_stop"}


def test_the_report_counts_pushes_not_points(lake: Path) -> None:
    sql = REPORT["Throttled clients, by their longest throttle time (ms)"]
    for row in ask(lake, sql):
        pushes = ask(lake, f"SELECT count(*) AS n FROM pushes WHERE client_id = '{row['client_id']}'")[0]["n"]
        assert 0 < row["pushes_throttled"] <= pushes
