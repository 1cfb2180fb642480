"""What the job tells of itself: rows, Prometheus text, health, JSON lines, and the view over the rows."""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.request
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from prometheus_client import make_wsgi_app
from prometheus_client.parser import text_string_to_metric_families

from kafka_telemetry_lake.jobs.support.console import JsonLines
from kafka_telemetry_lake.jobs.support.observed import Observers
from kafka_telemetry_lake.pipelines.observe.metrics_server import JobHealth, JobMetrics, MetricsServer
from kafka_telemetry_lake.pipelines.observe.pipeline_metrics import BatchFacts, PipelineMetrics, metrics_row
from kafka_telemetry_lake.pipelines.tables.pipeline_metrics import PIPELINE_METRICS
from tests.support.lake_tables import table
from tests.support.patience import PATIENCE_S
from tests.support.sql_views import answer

AT = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def progress(stream: str, batch: int, *, records: int = 100, run: str = "run-1", waiting: int = 0) -> dict[str, Any]:
    return {
        "name": stream,
        "runId": run,
        "batchId": batch,
        "timestamp": "2026-11-21T12:00:00.000Z",
        "numInputRows": records,
        "durationMs": {"triggerExecution": 4000, "addBatch": 3000},
        "sources": [
            {"latestOffset": {"t": {"0": 500 + waiting}}, "endOffset": {"t": {"0": 500}}},
            {"latestOffset": {"t-status": {"0": 7}}, "endOffset": {"t-status": {"0": 0}}},  # they wait on purpose
        ],
    }


FACTS = BatchFacts(2000, 3, {"delta": 1500, "late": 2}, AT - timedelta(seconds=6), 4096)


@pytest.mark.parametrize(("ms", "rate"), [(1, None), (99, None), (100, 150.0), (1000, 15.0)])
def test_a_batch_of_a_moment_has_no_rate(ms: int, rate: float | None) -> None:
    """15 records in the millisecond that the clock shows are not 15,000 a second."""
    progress_json = progress("points", 1, records=15) | {"durationMs": {"triggerExecution": ms, "addBatch": ms}}
    assert metrics_row(progress_json, None, None)["records_per_s"] == rate


def test_a_row_per_batch_with_lag_rates_statuses_and_freshness(tmp_path: Path) -> None:
    metrics = PipelineMetrics(str(tmp_path), "cluster-1")
    metrics.record("points", 7, FACTS)
    assert metrics.add(progress("points", 7, waiting=40)) is not None
    assert metrics.add(progress("points", 7)) is None  # reported twice
    idle = progress("points", 7, records=0) | {"durationMs": {"triggerExecution": 1, "latestOffset": 1}}
    assert metrics.add(idle | {"batchId": 8}) is None  # no batch
    metrics.add(progress("pushes", 3, run="run-2"))
    assert not (tmp_path / "pipeline_metrics").exists()
    metrics.flush()
    metrics.flush()
    points, pushes = sorted(table(tmp_path, "pipeline_metrics").to_pylist(), key=lambda row: str(row["stream"]))
    assert points == {
        "cluster_id": "cluster-1",
        "stream": "points",
        "run_id": "run-1",
        "batch_id": 7,
        "started_at": AT,
        "ended_at": AT + timedelta(seconds=4),
        "seconds": 4.0,
        "records": 100,
        "records_per_s": 25.0,
        "waiting": 40,
        "landed_at": AT - timedelta(seconds=6),
        "freshness_s": 10.0,
        "points": 2000,
        "quarantined": 3,
        "statuses": [("delta", 1500), ("late", 2)],
        "state_bytes": 4096,
        "broken": [],
        "set_aside": 0,
        "landed_date": AT.date(),
    }
    assert (pushes["stream"], pushes["points"], pushes["freshness_s"]) == ("pushes", None, None)


def test_rows_that_could_not_be_written_are_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    metrics = PipelineMetrics(str(tmp_path))
    metrics.add(progress("pushes", 0))
    metrics.flush()
    metrics.add(progress("pushes", 1))
    log = tmp_path / "pipeline_metrics" / "_delta_log"
    log.rename(tmp_path / "away")
    log.write_text("in the way")
    metrics.flush()
    assert "pipeline_metrics: write failed" in caplog.text
    log.unlink()
    (tmp_path / "away").rename(log)
    metrics.flush()
    assert table(tmp_path, "pipeline_metrics")["batch_id"].to_pylist() == [1, 0]


def test_a_column_may_be_described_in_other_words(tmp_path: Path) -> None:
    others = [field.with_metadata({"comment": "in other words"}) for field in PIPELINE_METRICS.stored]
    DeltaTable.create(str(tmp_path / "pipeline_metrics"), pa.schema(others), partition_by=["landed_date"])
    metrics = PipelineMetrics(str(tmp_path))
    metrics.add(progress("pushes", 0))
    metrics.flush()
    assert table(tmp_path, "pipeline_metrics")["batch_id"].to_pylist() == [0]


def test_prometheus_and_health_over_http(tmp_path: Path) -> None:
    clock = [1000.0]
    health = JobHealth(300, tmp_path / "health.json", lambda: clock[0])
    observers = Observers(PipelineMetrics(str(tmp_path)), JobMetrics(), health)
    observers.table.record("points", 7, replace(FACTS, broken={"points_never_fall": 5}, set_aside=2))
    observers.alive("pushes")
    observers.batch(progress("points", 7, waiting=40))
    with MetricsServer("127.0.0.1", 0, make_wsgi_app(observers.metrics.registry), health) as server:

        def get(path: str) -> tuple[int, str]:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=PATIENCE_S) as found:
                    return found.status, found.read().decode()
            except urllib.error.HTTPError as refused:
                return refused.code, refused.read().decode()

        status, text = get("/metrics")
        samples = {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        assert status == 200
        assert samples["telemetry_lake_records_total", "points"] == 100
        assert samples["telemetry_lake_waiting_records", "points"] == 40
        assert samples["telemetry_lake_points_total", "late"] == 2
        assert samples["telemetry_lake_quarantined_total",] == 3
        assert samples["telemetry_lake_broken_rows_total", "points_never_fall"] == 5
        assert samples["telemetry_lake_set_aside_total",] == 2
        assert samples["telemetry_lake_freshness_seconds",] == 10
        assert samples["telemetry_lake_state_bytes",] == 4096
        assert samples["telemetry_lake_last_batch_timestamp_seconds", "points"] == AT.timestamp() + 4
        assert get("/nothing")[0] == 404
        assert get("/health")[0] == 200
        clock[0] += 301
        observers.alive("points")
        status, text = get("/health")
        assert (status, json.loads(text)["status"]) == (503, "stuck")
        assert json.loads(text)["streams"] == {"points": 0.0, "pushes": 301.0}
        observers.ended("pushes", None)
        assert get("/health")[0] == 200
        observers.ended("points", "it broke\nbadly")
        status, text = get("/health")
        assert (status, json.loads(text)["failed"]) == (503, {"points": "it broke badly"})
        assert json.loads((tmp_path / "health.json").read_text())["status"] == "failed"
        observers.alive("points")  # started again
        assert get("/health")[0] == 200


def test_log_lines_as_json() -> None:
    record = logging.LogRecord("telemetry-lake", logging.WARNING, "", 0, 'a "quoted" %s\nline', ("text",), None)
    line = JsonLines().format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert (found["level"], found["message"]) == ("WARNING", 'a "quoted" text\nline')
    assert datetime.fromisoformat(found["time"]).tzinfo is not None


def test_pipeline_health_is_a_row_per_stream() -> None:
    def row(minute: int, stream: str = "points", **other: Any) -> dict[str, Any]:
        at = AT + timedelta(minutes=minute)
        usual = {"stream": stream, "run_id": "a", "batch_id": minute, "ended_at": at, "seconds": 36.0, "records": 10}
        return (
            usual | {"cluster_id": "c", "waiting": minute, "freshness_s": 2.0, "points": 100, "quarantined": 1} | other
        )

    rows = [row(-30, records=1000), row(40), row(50, run_id="b"), row(60, run_id="b"), row(5, "pushes", points=None)]
    points, pushes = sorted(answer("pipeline_health", {"pipeline_metrics": rows}), key=lambda found: found["stream"])
    assert (points["batch_id"], points["waiting"], points["batches_1h"], points["records_1h"]) == (60, 60, 3, 30)
    assert (points["points_1h"], points["quarantined_1h"], points["restarts_1h"]) == (300, 3, 1)
    assert points["busy"] == pytest.approx(0.03)
    assert points["last_batch_at"] == AT + timedelta(minutes=60)
    assert (pushes["batches_1h"], pushes["points_1h"]) == (1, None)
