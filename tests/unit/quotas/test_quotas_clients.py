"""From stored points to usage windows of source client and evidence, over Delta tables without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.table_files import TableFiles
from kafka_telemetry_lake.pipelines.quotas import windows as quota_windows
from kafka_telemetry_lake.pipelines.quotas.client_reports import (
    knows_quotas,
    minutes_of,
    read_reports,
    replace_estimates,
)
from kafka_telemetry_lake.pipelines.quotas.configured import ConfiguredQuotas, configured_quotas
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, PUSHES, QUOTA_REPORTS, QUOTA_USAGE
from kafka_telemetry_lake.pipelines.tables.table import Table
from kafka_telemetry_lake.udfs.conversion.shard import process
from kafka_telemetry_lake.udfs.conversion.state import ShardState
from kafka_telemetry_lake.udfs.quotas.reports import BYTES, DELAYS, REPORTS
from tests.support import otlp_builder
from tests.support.application_lake import put
from tests.support.config_polls import record_quotas
from tests.support.lake_tables import table

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
START = int(NOON.timestamp())
SENT, RECEIVED = BYTES
PRODUCE_DELAY = next(iter(DELAYS))


def append(lake: Path, to: Table, rows: list[dict[str, Any]]) -> None:
    put(lake, to, [row | {"landed_date": row["landed_at"].date()} for row in rows])


def report(second: float, seconds: float, size: float, **fields: Any) -> dict[str, Any]:
    at = NOON + timedelta(seconds=second + seconds)
    place = {"source": "s", "cluster_id": "c", "topic": "t", "partition": 0, "offset": 1, "landed_at": at}
    bucket = {"user": "alice", "client_id": "app", "broker_id": 1, "quota_type": "produce"}
    return place | bucket | {"delta_start": NOON + timedelta(seconds=second), "time": at, "bytes": size} | fields


def delay(second: float, throttle_ms: float, **fields: Any) -> dict[str, Any]:
    nothing = {"broker_id": None, "delta_start": None, "bytes": None, "throttle_ms": throttle_ms}
    return report(second, 0, 0, **{**nothing, **fields})


def limit(lake: Path, at: datetime, **limits: float) -> None:
    entities = configured_quotas([({"user": "alice"}, limits), ({"client-id": None}, limits)])
    record_quotas(str(lake), at, ConfiguredQuotas("c", tuple(entities)))


def usage(lake: Path, source: str = "client", seconds: int = 10) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table(lake, "quota_usage").to_pylist()
    return sorted(
        (row for row in rows if row["window_seconds"] == seconds and row["source"] == source),
        key=lambda row: (row["window_start"], row["user"], row["client_id"]),
    )


def seconds_of(row: dict[str, Any]) -> float:
    return float((row["window_start"] - NOON).total_seconds())


def estimate(lake: Path, reports: list[dict[str, Any]], version: int) -> None:
    """As a batch of the stream does it."""
    QUOTA_USAGE.create(str(lake))
    append(lake, QUOTA_REPORTS, reports)
    replace_estimates(Lake(str(lake)), minutes_of(pa.Table.from_pylist(reports, REPORTS)), {"app": version})


def test_reports_are_read_of_the_files_of_points_with_the_principal_of_their_push(tmp_path: Path) -> None:
    key = {"source": "s", "cluster_id": None, "topic": "t", "landed_at": NOON, "client_instance_id": "id"}
    pushes = [
        {**key, "partition": partition, "offset": offset, "principal": f"User:{partition}-{offset}"}
        for partition in (0, 1)
        for offset in (5, 6, 7)
    ]
    append(tmp_path, PUSHES, pushes)
    broker = {"attributes": [("node_id", "2"), ("node_role", "broker")], "delta_start": NOON - timedelta(seconds=9)}
    points: list[dict[str, Any]] = [
        {**key, **broker, "partition": 0, "offset": 5, "metric": SENT, "time": NOON, "delta": 10.0},
        {**key, **broker, "partition": 0, "offset": 5, "metric": "another", "time": NOON, "delta": 10.0},
        {**key, "partition": 1, "offset": 7, "metric": PRODUCE_DELAY, "time": NOON, "value": 3.0},
        {**key, **broker, "partition": 0, "offset": 8, "metric": RECEIVED, "time": NOON, "delta": 1.0},
    ]
    append(tmp_path, METRIC_POINTS, points)
    append(tmp_path, METRIC_POINTS, [points[1]])
    files = DeltaTable(METRIC_POINTS.uri(str(tmp_path))).file_uris()
    found = read_reports(Lake(str(tmp_path)), [f"file:{file.replace('=', '%3D')}" for file in files])
    assert found.schema.equals(REPORTS)
    names = ("partition", "offset", "user", "quota_type")
    rows = sorted(tuple(row[name] for name in names) for row in found.to_pylist())
    assert rows == [(0, 5, "0-5", "produce"), (0, 8, None, "fetch"), (1, 7, "1-7", "produce")]
    assert read_reports(Lake(str(tmp_path)), []).num_rows == 0


def test_files_of_the_operator_leave_out_columns_and_hold_dictionaries(tmp_path: Path) -> None:
    PUSHES.create(str(tmp_path))
    METRIC_POINTS.create(str(tmp_path))
    pushes = [otlp_builder.push(5, otlp_builder.gauge(3.0, 5, name=PRODUCE_DELAY), cluster_id=None)]
    points = process(otlp_builder.table(pushes), ShardState.empty())[0].metric_points
    writer = TableFiles(METRIC_POINTS, str(tmp_path))
    writer.write(points)
    (file,) = writer.close()
    (found,) = read_reports(Lake(str(tmp_path)), [f"{METRIC_POINTS.uri(str(tmp_path))}/{file.path}"]).to_pylist()
    assert found == found | {"cluster_id": None, "throttle_ms": 3.0, "client_id": "client", "user": None}


def test_q10_windows_are_measured_against_the_limits_of_their_time(tmp_path: Path) -> None:
    limit(tmp_path, NOON - timedelta(hours=1), producer_byte_rate=100.0)
    limit(tmp_path, NOON + timedelta(seconds=14), producer_byte_rate=200.0)
    estimate(tmp_path, [report(0, 30, 3000.0), report(0, 30, 300.0, user="bob", quota_type="fetch")], 0)
    windows = [(seconds_of(row), row["used_percent"], row["quota_limit"]) for row in usage(tmp_path)]
    assert windows == [(0, 100.0, 100.0), (10, 50.0, 200.0), (20, 50.0, 200.0)]
    (minute,) = usage(tmp_path, seconds=60)
    assert minute == minute | {"user": "alice", "client_id": "", "observed_rate": 50.0, "used_percent": 25.0}
    assert minute["landed_date"] == NOON.date()


def test_q7_a_later_push_adds_to_the_windows_and_the_brokers_rows_stay(tmp_path: Path) -> None:
    limit(tmp_path, NOON - timedelta(hours=1), producer_byte_rate=100.0)
    estimate(tmp_path, [report(0, 20, 200.0), report(0, 20, 200.0, user="bob")], 0)
    theirs = {**usage(tmp_path)[0], "source": "broker", "used_percent": 77.0}
    put(tmp_path, QUOTA_USAGE, [theirs])
    estimate(tmp_path, [report(10, 60, 600.0, offset=2), delay(12, 5.0, offset=2)], 1)
    buckets = [(row["user"], row["client_id"], row["observed_rate"]) for row in usage(tmp_path)]
    assert buckets[:4] == [("", "app", 10.0), ("alice", "", 10.0), ("", "app", 10.0), ("alice", "", 20.0)]
    assert len(buckets) == 9
    evidence = [(seconds_of(row), row["throttle_ms"]) for row in usage(tmp_path, "evidence")]
    assert evidence == [(10, 5.0)]
    assert usage(tmp_path, "broker") == [theirs]


def test_the_commit_of_windows_carries_the_position(tmp_path: Path) -> None:
    limit(tmp_path, NOON - timedelta(hours=1), producer_byte_rate=100.0)
    estimate(tmp_path, [report(0, 10, 100.0)], 4)
    replace_estimates(Lake(str(tmp_path)), [START], {"app": 5})
    assert DeltaTable(str(tmp_path / "quota_usage")).transaction_version("app") == 5
    assert [row["used_percent"] for row in usage(tmp_path)] == [10.0]


def test_a_conflicting_commit_is_tried_again_and_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(tmp_path, NOON - timedelta(hours=1), producer_byte_rate=100.0)
    failures = [1, 2, 3]

    def write(*args: Any, **named: Any) -> None:
        if failures:
            failures.pop()
            raise CommitFailedError("somebody compacted")
        write_deltalake(*args, **named)

    monkeypatch.setattr(quota_windows, "write_deltalake", write)
    estimate(tmp_path, [report(0, 10, 100.0)], 0)
    assert [row["used_percent"] for row in usage(tmp_path)] == [10.0]
    failures.extend(range(quota_windows.ATTEMPTS))
    with pytest.raises(CommitFailedError):
        estimate(tmp_path, [report(0, 10, 100.0, offset=2)], 1)


def test_minutes_that_reports_touch() -> None:
    reports = [report(50, 80, 1.0), delay(600, 1.0), report(-5000, 4000, 1.0)]
    assert minutes_of(pa.Table.from_pylist(reports, REPORTS)) == [START + 60 * n for n in (0, 1, 2, 10)]
    assert minutes_of(REPORTS.empty_table()) == []


def test_clusters_have_their_own_limits_and_unknown_ones_evidence_only(tmp_path: Path) -> None:
    limit(tmp_path, NOON - timedelta(hours=1), producer_byte_rate=100.0)
    others = [delay(3, 1.0, cluster_id=None), report(0, 10, 1.0, cluster_id=None), report(0, 10, 9.0, cluster_id="d")]
    estimate(tmp_path, [report(0, 10, 100.0), *others], 0)
    assert [(row["cluster_id"], row["used_percent"]) for row in usage(tmp_path)] == [("c", 10.0)]
    assert [(row["cluster_id"], row["status"]) for row in usage(tmp_path, "evidence")] == [(None, "limit_unknown")]


def test_nothing_is_measured_before_quotas_were_ever_kept(tmp_path: Path) -> None:
    assert not knows_quotas(str(tmp_path))
    limit(tmp_path, NOON, producer_byte_rate=100.0)
    assert knows_quotas(str(tmp_path))
