"""The quota stream over a files source: samples, quarantine and usage windows, once each, however it is run."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kafka_telemetry_lake.pipelines.ingest.operator import Operator
from kafka_telemetry_lake.pipelines.ingest.sources import FilesSource
from kafka_telemetry_lake.pipelines.ingest.streams import JobLake, start_landing
from kafka_telemetry_lake.pipelines.quotas.broker_usage import sample_windows
from kafka_telemetry_lake.pipelines.quotas.configured import ConfiguredQuotas, configured_quotas
from tests.conftest import Ingest
from tests.support import landing_records, otlp_builder
from tests.support.config_polls import record_quotas
from tests.support.lake_tables import table
from tests.support.landing_records import write

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def record(offset: int, value: dict[str, Any] | bytes | None, landed: float = 0.0) -> dict[str, Any]:
    return {
        "key": b"1",
        "value": json.dumps(value).encode() if isinstance(value, dict) else value,
        "topic": "client-quotas",
        "partition": 0,
        "offset": offset,
        "timestamp": NOON + timedelta(seconds=landed),
        "timestampType": 0,
        "headers": None,
    }


def sample(second: float, **fields: Any) -> dict[str, Any]:
    fields = {
        "version": 1,
        "cluster_id": "c",
        "broker_id": 1,
        "time_ms": round((NOON.timestamp() + second) * 1000),
        "quota_type": "produce",
        "user": "",
        "client_id": "app",
        "observed_rate": 50.0,
        "quota_limit": 100.0,
        "throttle_time_ms": None,
    } | fields
    return {name: value for name, value in fields.items() if value is not None}


def run(spark: SparkSession, folder: Path, lake: Path, checkpoints: str = "checkpoints") -> None:
    lake_of_job = JobLake(str(lake), str(lake.parent / checkpoints), "default-cluster")
    lake_of_job.create_tables()
    # There are no pushes to judge.
    judge = cast(Operator, SimpleNamespace(next_task=lambda: None, catch_up=lambda *_, **__: None, shards=1))
    start_landing(spark, lake_of_job, FilesSource(str(folder), "test"), None, judge).awaitTermination()
    sample_windows(str(lake)).catch_up()


def usage(lake: Path, seconds: int = 10) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table(lake, "quota_usage").to_pylist()
    return sorted(
        (row for row in rows if row["window_seconds"] == seconds),
        key=lambda row: (row["window_start"], row["broker_id"], row["client_id"]),
    )


def test_q6_samples_become_rows_and_bad_ones_go_to_quarantine(spark: SparkSession, tmp_path: Path) -> None:
    good = [
        sample(5),
        sample(5, user="ann%3Dsmith%20%C3%A9", client_id="a%20b", observed_rate=0.5, quota_type="request"),
        sample(5, user="50%zz", cluster_id=None, quota_limit=None, throttle_time_ms=12.5, quota_type="fetch"),
        sample(5, client_id="nan") | {"throttle_time_ms": float("nan"), "quota_limit": float("inf")},
        sample(5, user=None, client_id=None, unknown="ignored"),
    ]
    bad: list[dict[str, Any] | bytes | None] = [
        None,
        b"not json",
        b"",
        b"[1]",
        b"\xff\xfe",
        sample(5, version=2, observed_rate="in another unit"),
        sample(5, version=None),
        sample(5, broker_id=None),
        sample(5, time_ms="soon"),
        sample(5, time_ms=10**18),
        sample(5, time_ms=-1),
        sample(5, quota_type="lunch"),
        sample(5, observed_rate="fast"),
        sample(5, quota_limit=-1.0),
        sample(5, throttle_time_ms=-1.0),
        sample(5, observed_rate=float("nan")),
        sample(5, observed_rate=None),
    ]
    records = [record(offset, value) for offset, value in enumerate([*good, *bad])]
    records.append(record(99, b"a push") | {"topic": "client-telemetry"})
    write(tmp_path / "in", "a.parquet", records)
    run(spark, tmp_path / "in", tmp_path / "lake")

    names = (
        "offset", "cluster_id", "broker_id", "time", "quota_type", "user", "client_id", "observed_rate", "quota_limit",
        "throttle_time_ms",
    )  # fmt: skip
    at = NOON + timedelta(seconds=5)
    rows = sorted(tuple(row[name] for name in names) for row in table(tmp_path / "lake", "quota_samples").to_pylist())
    assert rows == [
        (0, "c", 1, at, "produce", "", "app", 50.0, 100.0, None),
        (1, "c", 1, at, "request", "ann=smith é", "a%20b", 0.5, 100.0, None),
        (2, "default-cluster", 1, at, "fetch", "50%zz", "app", 50.0, None, 12.5),
        (3, "c", 1, at, "produce", "", "nan", 50.0, None, None),
        (4, "c", 1, at, "produce", "", "", 50.0, 100.0, None),
    ]
    found = {row["offset"]: row for row in table(tmp_path / "lake", "quarantine").to_pylist()}
    assert {offset: (row["reason"], row["detail"]) for offset, row in found.items()} == {
        5: ("INVALID_RECORD", "null value"),
        6: ("INVALID_RECORD", "not the JSON of a quota sample: 'not json'"),
        7: ("INVALID_RECORD", "no version: ''"),
        8: ("INVALID_RECORD", "not the JSON of a quota sample: '[1]'"),
        9: ("INVALID_RECORD", "not the JSON of a quota sample: '\ufffd\ufffd'"),
        10: ("UNSUPPORTED_VERSION", "quota sample of version 2"),
        11: ("INVALID_RECORD", found[11]["detail"]),
        12: ("INVALID_RECORD", "missing broker_id"),
        13: ("INVALID_RECORD", found[13]["detail"]),
        14: ("INVALID_RECORD", f"time_ms {10**18}"),
        15: ("INVALID_RECORD", "time_ms -1"),
        16: ("INVALID_RECORD", "quota type 'lunch'"),
        17: ("INVALID_RECORD", found[17]["detail"]),
        18: ("INVALID_RECORD", "negative quota_limit or throttle_time_ms"),
        19: ("INVALID_RECORD", "negative quota_limit or throttle_time_ms"),
        20: ("INVALID_RECORD", "neither observed_rate nor throttle_time_ms"),
        21: ("INVALID_RECORD", "neither observed_rate nor throttle_time_ms"),
    }
    assert found[11]["detail"].startswith("no version: '{")
    assert all(found[each]["detail"].startswith("not the JSON of a quota sample: '{") for each in (13, 17))
    assert found[6] == found[6] | {
        "scope": "quota_sample",
        "payload": b"not json",
        "source": "test",
        "cluster_id": "default-cluster",
    }
    assert len(usage(tmp_path / "lake")) == 5


@pytest.mark.slow
def test_a_batch_that_was_cut_off_after_its_samples_runs_again(spark: SparkSession, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    write(tmp_path / "in", "a.parquet", [record(0, sample(5)), record(1, b"bad"), record(2, sample(6))])
    run(spark, tmp_path / "in", lake)
    expected = usage(lake) + usage(lake, 60)
    # As if killed between the two commits: the batch isn't done, its samples are stored, its windows are not.
    shutil.rmtree(lake / "quota_usage")
    for commit in (tmp_path / "checkpoints" / "landing" / "commits").iterdir():
        commit.unlink()
    run(spark, tmp_path / "in", lake)
    assert usage(lake) + usage(lake, 60) == expected
    assert DeltaTable(str(lake / "quota_samples")).count() == 2
    assert DeltaTable(str(lake / "quarantine")).count() == 1


@pytest.mark.slow
def test_the_job_reads_samples_and_what_clients_tell_once_there_are_any(ingest: Ingest, tmp_path: Path) -> None:
    lake, noon = tmp_path / "lake", otlp_builder.T0
    attributes = {"node_id": "node-1"}
    names = "org.apache.kafka.producer.node.outgoing.byte.total", "org.apache.kafka.producer.produce.throttle.time.max"
    payload = otlp_builder.payload(
        otlp_builder.delta(500.0, 0, 10, name=names[0], attributes=attributes),
        otlp_builder.gauge(7.0, 10, name=names[1]),
    )
    java = {"client_software_name": "apache-kafka-java", "client_software_version": "4.3.1"}
    entries = [{"listener": "L", "connections": 4} | java, {"listener": "L", "connections": 0, "new field": []}]
    status = {"version": 1, "received": 9, "quota_samples_landed": 3, "quota_samples_lost": 1, "broker_id": 2,
              "connections": [*entries, {"connections": 1}, {"listener": "L", "connections": -1}]}  # fmt: skip
    landed = [
        landing_records.record(0, payload, principal="User:alice", cluster_id="c") | {"timestamp": noon},
        record(1, status) | {"topic": "client-telemetry-status", "timestamp": noon},
    ]
    write(tmp_path / "in", "a.parquet", landed)
    ingest(tmp_path / "in", lake)
    assert table(lake, "metric_points").num_rows == 2
    counts = table(lake, "receiver_health").select(["quota_samples_landed", "quota_samples_lost"]).to_pylist()
    assert counts == [{"quota_samples_landed": 3, "quota_samples_lost": 1}]
    columns = ("broker_id", "offset", "listener", "client_software_name", "client_software_version", "connections")
    assert table(lake, "broker_connections").select(columns).to_pylist() == [
        dict(zip(columns, (2, 1, "L", *java.values(), 4), strict=True)),
        dict(zip(columns, (2, 1, "L", None, None, 0), strict=True)),
    ]
    assert not any((lake / name).exists() for name in ("quota_samples", "quota_reports", "quota_usage"))

    quotas = configured_quotas([({"user": "alice"}, {"producer_byte_rate": 100.0})])
    record_quotas(str(lake), noon - timedelta(hours=1), ConfiguredQuotas("c", tuple(quotas)))
    at = {"time_ms": round(noon.timestamp() * 1000) + 5000, "user": "alice", "client_id": ""}
    later = [record(2, sample(0, **at)), record(3, b"bad")]
    write(tmp_path / "in", "b.parquet", [each | {"timestamp": noon} for each in later])
    ingest(tmp_path / "in", lake)
    expected = [
        (None, "alice", "", 100.0, "evidence"),
        (1, "alice", "", 50.0, "broker"),
        (1, "alice", "", 50.0, "client"),
    ]

    def found() -> list[Any]:
        names = ("broker_id", "user", "client_id", "used_percent", "source")
        return sorted((tuple(row[name] for name in names) for row in usage(lake)), key=lambda row: (row[0] or 0, row))

    assert found() == expected
    ingest(tmp_path / "in", lake, "--checkpoints", str(tmp_path / "new-checkpoints"))
    assert found() == expected
    assert {name: table(lake, name).num_rows for name in ("quota_samples", "quota_reports", "quarantine")} == {
        "quota_samples": 1, "quota_reports": 2, "quarantine": 1,
    }  # fmt: skip
