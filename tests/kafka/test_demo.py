"""The demo's story: what it promises happens, and the figures that it prints are what the clients counted."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from kafka_telemetry_lake.jobs.support.demo_report import QUESTIONS
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.udfs.conversion.compression import decompress
from tests.support.patience import PATIENCE_S

DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
LATE_S = 10  # between a producer's last push and its end
README = Path(__file__).parents[2] / "README.md"
# No push is damaged, and all members of the demo's group push.
EMPTY = {"quarantine_offenders", "consumer_group_members WHERE NOT pushing"}


def ask(lake: Path, sql: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = run_query(str(lake), sql).read_all().to_pylist()
    return rows


def pushed(lake: Path, metric_name: str) -> dict[str, float]:
    """What the payloads say of a DELTA counter, by client id: decoded by opentelemetry-proto."""
    sums: dict[str, float] = defaultdict(float)
    for row in ask(lake, "SELECT client_id, payload, compression_type FROM pushes WHERE client_id NOT LIKE 'crash%'"):
        value, codec = pa.array([row["payload"]], pa.binary()), pa.array([row["compression_type"]], pa.string())
        for resource in MetricsData.FromString(decompress(value, codec).data[0].as_py()).resource_metrics:
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                if metric.name == metric_name:
                    assert metric.sum.aggregation_temporality == DELTA
                    sums[row["client_id"]] += sum(point.as_double for point in metric.sum.data_points)
    return dict(sums)


def told(lake: Path, *flags: str) -> str:
    """What a demo into a lake has printed."""
    command = [sys.executable, "-m", "kafka_telemetry_lake", "demo", "--lake", str(lake), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * PATIENCE_S)
    lake.with_name("demo.txt").write_text(done.stdout, "utf-8")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def counted_themselves(out: str) -> dict[str, int]:
    (counted,) = re.findall(r"they counted themselves: (.+)", out)
    return {name: int(count.replace(",", "")) for name, count in re.findall(r"(\S+) ([\d,]+) records", counted)}


def check_story(out: str, lake: Path, slowness: float) -> None:
    """The story of a demo is told, and what was printed is in its lake.

    Args:
        slowness: of the machine meanwhile, as `idle_clock` says.
    """
    for line in (
        "lake: orders-service (apache-kafka-java 4.3.1) is in the lake: ",
        "lake: payments-service (",
        "lake: crashing-service went silent; likely cause: killed_or_cut_off",
        "lake: relocated-service went back to its bootstrap servers",
        "lake: throttled-importer has a finding, throttled: a broker held it back for ",
        "lake: billing-1 terminated: it sent its last push",
        "subscriptions: created everything: metrics",
    ):
        assert line in out, out

    records, *_ = QUESTIONS.values()
    sent = {row["client_id"]: row["records"] for row in ask(lake, records)}
    assert sent == pushed(lake, "org.apache.kafka.producer.record.send.total")
    assert sent.keys() == {"orders-service", "throttled-importer", "relocated-service"}
    own = counted_themselves(out)
    # What Java producers did after their last push never came: they close without one.
    assert own["orders-service"] - 40 * LATE_S * slowness <= sent["orders-service"] <= own["orders-service"]
    for name, count in sent.items():
        assert re.search(rf"{name} +│ +{count:,.0f} ", out), out  # as it is printed

    assert [question for question, sql in QUESTIONS.items() if not ask(lake, sql)] == []
    assert [row["client_id"] for row in ask(lake, "SELECT * FROM clients WHERE state = 'silent'")] == [
        "crashing-service"
    ]
    table = README.read_text("utf-8").partition("What do you want to know?")[2].partition("\n## ")[0]
    views = {view for cell in re.findall(r"FROM ([^`]+)`", table) for view in [cell.partition(" ORDER")[0]]}
    assert len(views) >= 6
    promised = views - EMPTY | {"throttled_clients", "consumer_group_members"}
    assert [view for view in sorted(promised) if not ask(lake, f"SELECT * FROM {view} LIMIT 1")] == []


@pytest.mark.slow
def test_the_same_by_a_proxy(tmp_path: Path) -> None:
    """The broker has no plugin; what needs an address or a broker is unknown, all else is as with it."""
    lake = tmp_path / "lake"
    out = told(lake, "--proxy", "--franz-go", "--seconds", "40")
    assert "starting a Kafka broker without the receiver plugin" in out
    assert "it knows no client's address and port, and no broker: views say unknown there" in out
    libraries = {"apache-kafka-java", "confluent-kafka-python"} | ({"kgo"} if shutil.which("go") else set())
    assert {row["name"] for row in ask(lake, "SELECT DISTINCT client_software_name AS name FROM pushes")} == libraries
    (stored,) = ask(lake, "SELECT count(*) AS pushes, count(DISTINCT client_instance_id) AS clients FROM pushes")
    assert f"all {stored['pushes']:,} pushes of this run are in the lake" in out
    assert f"Who pushed: ten of {stored['clients']} client instances" in out
    assert ask(lake, "SELECT * FROM quarantine") == []

    records, *_ = QUESTIONS.values()
    sent = {row["client_id"]: row["records"] for row in ask(lake, records)}
    assert sent == pushed(lake, "org.apache.kafka.producer.record.send.total")
    own = counted_themselves(out)
    assert sent.keys() == {"orders-service", "throttled-importer", "relocated-service"}
    assert all(0 < count <= own[name] for name, count in sent.items())

    columns = ("client_address", "client_port", "broker_id", "brokers", "duplicated")
    unknown = "SELECT count(*) AS clients, " + ", ".join(f"count({column}) AS {column}" for column in columns)
    (row,) = ask(lake, f"{unknown} FROM clients")
    assert row == {"clients": stored["clients"]} | dict.fromkeys(columns, 0)
    health = "SELECT DISTINCT broker_id, dropped_total FROM receiver_health"
    assert ask(lake, health) == [{"broker_id": None, "dropped_total": 0}]
