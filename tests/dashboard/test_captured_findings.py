"""Findings of what real clients pushed: those that something happened to, and none of the others."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_telemetry_lake.pipelines.findings.model import PREFIX
from kafka_telemetry_lake.pipelines.findings.rules import rules
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES
from tests.support.captured_lake import HOSTILE, push_row, write_lake
from tests.support.landing_records import CAPTURED, captured


def found(lake: Path) -> dict[tuple[str, str], tuple[str, str]]:
    """Severity and evidence by finding and client id."""
    rows = run_query(str(lake), "SELECT * FROM findings").read_all().to_pylist()
    return {(row["finding"], row["client_id"]): (row["severity"], row["evidence"]) for row in rows}


HOUR = ", in the hour from 2026-11-21 12:00 UTC"
# What they do to their brokers on purpose: transactional producers abort some transactions, consumers commit after each
# poll, and the records of their topics come one by one, so most fetches bring one.
ABORTING = [f"java-txn-producer_{kind}" for kind in ("gzip-delta", "lz4-delta", "none-delta", "snappy-delta")]
ABORTING.append("java-txn-producer_zstd-cumulative")
FETCHING = [f"java-consumer_{kind}" for kind in ("gzip-cumulative", "gzip-delta", "none-cumulative")]
FETCHING += [f"java-consumer_{kind}" for kind in ("snappy-cumulative", "snappy-delta")]
COMMITTING = [*FETCHING, *(f"java-consumer_{kind}" for kind in ("lz4-cumulative", "lz4-delta")), HOSTILE]
COMMITTING += [f"java-consumer_{kind}" for kind in ("zstd-cumulative", "zstd-delta")]
# Metrics that no captured client of the library pushed: franz-go pushes a throttle time only once it is above zero, and
# commits only as a member of a group.
NOT_CAPTURED = {"producer.produce.throttle.time.max", "consumer.coordinator.commit.latency.avg"}
SOFTWARE = {"java": "apache-kafka-java", "librdkafka": "confluent-kafka-python", "franz_go": "kgo"}


def test_captured_clients(lake: Path) -> None:
    """Of 129 client ids; `producer_stop` lost its cluster for seven minutes."""
    lost = ("info", f"intervals that the client collected but that never landed: 1{HOUR}")
    seen = found(lake)
    assert seen["aborted_transactions", ABORTING[0]] == ("warning", f"aborts took 209 ms, commits 1238 ms{HOUR}")
    assert seen["frequent_commits", COMMITTING[0]] == ("info", f"399 commits, 36.2 a second{HOUR}")
    assert seen["tiny_fetches", FETCHING[0]] == ("info", f"105.2 fetches/s of 889 bytes{HOUR}")
    on_purpose = {("aborted_transactions", name) for name in ABORTING} | {("tiny_fetches", name) for name in FETCHING}
    on_purpose |= {("frequent_commits", name) for name in COMMITTING}
    assert {key: row for key, row in seen.items() if key not in on_purpose} == {
        ("failed_records", "java-none-producer_stop"): ("error", f"395 records could not be sent (112 were){HOUR}"),
        ("stale_metadata", "java-none-producer_stop"): ("error", f"the metadata of the producer is 408 s old{HOUR}"),
        ("lost_telemetry", "java-none-producer_stop"): lost,
        ("lost_telemetry", "java-rebootstrap-producer_stop"): lost,
        ("one_record_per_request", "java-producer-busyclose_lz4-delta"): (
            "warning",
            f"1.4 records per request at 72.8 records/s per instance{HOUR}",
        ),
        ("tiny_batches", "java-producer-busyclose_zstd-cumulative"): (
            "info",
            f"batches of 299 bytes on average, at 225.4 kB/s{HOUR}",
        ),
        ("uncompressed_records", "java-producer-busyclose_zstd-cumulative"): (
            "info",
            f"1.4 MB were sent at 100.0 % of their size{HOUR}",
        ),
    }
    assert seen.keys() >= on_purpose


def test_no_advice_saves_more_than_the_client_has(lake: Path) -> None:
    """Not even what two findings of a client save together. Java's producer tells too few records per request."""
    rows = run_query(
        str(lake),
        "SELECT s.client_id, sum(requests_saved) AS saved, any_value(used) AS used FROM finding_savings AS s "
        "JOIN (SELECT client_id, sum(delta) AS used FROM metric_points WHERE metric LIKE '%r.request.total' "
        "GROUP BY client_id) USING (client_id) WHERE requests_saved IS NOT NULL GROUP BY s.client_id",
    ).read_all()
    saved = {row["client_id"]: (row["saved"], row["used"]) for row in rows.to_pylist()}
    assert saved.keys() == {*COMMITTING, "java-producer-busyclose_lz4-delta", "java-producer-busyclose_zstd-cumulative"}
    assert all(0 < part < whole for part, whole in saved.values())
    # 399 commits and 1152 fetches in 11 s; 133 requests, of 441 records; 490 requests, of batches of 299 bytes.
    assert saved["java-consumer_gzip-cumulative"] == (pytest.approx(396.8 + 1083.5, abs=0.1), 1584)
    assert saved["java-producer-busyclose_lz4-delta"] == (pytest.approx(133 - 441 / 7), 133)
    assert saved["java-producer-busyclose_zstd-cumulative"] == (pytest.approx(490 * (1 - 298.9 / 4507.1), abs=0.1), 490)


def test_a_rule_rests_on_metrics_that_its_libraries_push(lake: Path) -> None:
    rows = run_query(
        str(lake),
        "SELECT DISTINCT client_software_name, metric FROM metric_points JOIN (SELECT DISTINCT client_instance_id, "
        "client_software_name FROM pushes) USING (client_instance_id)",
    ).read_all()
    pushed = {(row["client_software_name"], row["metric"].removeprefix(PREFIX)) for row in rows.to_pylist()}
    for rule in rules().values():
        for library, software in SOFTWARE.items():
            listed = getattr(rule.libraries, library)
            needed = set() if isinstance(listed, str) else {(software, metric) for metric in listed}
            missing = {metric for _, metric in needed - pushed}
            assert missing <= (NOT_CAPTURED if library == "franz_go" else set()), (rule.id, library)


def test_damaged_and_large_pushes(tmp_path: Path) -> None:
    """The demo's damaged pushes, and a captured push's metrics over and over until they are near what is allowed."""
    damaged = pq.read_table(CAPTURED.parent / "damaged.parquet").to_pylist()
    one = next(record for record in captured().to_pylist() if header(record, "compression_type") == b"none")
    renamed = [each for each in one["headers"] if each["key"] != "client_id"] + [
        {"key": "client_id", "value": b"large"}
    ]
    large = one | {"headers": renamed, "offset": 10**6, "value": one["value"] * (900_000 // len(one["value"]))}
    rows = [push_row(record) for record in (*damaged, large)]
    detected = found(write_lake(tmp_path / "lake", pa.Table.from_pylist(rows, PUSHES.schema)))
    assert detected["unreadable_telemetry", "damaged-client"][0] == "error"
    assert detected["large_telemetry", "large"][0] == "warning"


def test_clocks_that_are_off_by_an_hour_are_found_and_nothing_else(tmp_path: Path) -> None:
    """Of clients of three libraries without a finding; points that are more than an hour ahead are rejected."""
    ids = {"java-producer_zstd-delta", "librdkafka-consumer_zstd-delta", "franz-go-producer_zstd-delta"}
    chosen = [push for push in map(push_row, captured().to_pylist()) if push["client_id"] in ids]
    clocks = {"right": 0, "behind": 60, "ahead": -59, "far": -61}
    moved = [
        push | {"client_id": f"{name} {push['client_id']}", "landed_at": push["landed_at"] + timedelta(minutes=minutes),
                "client_instance_id": f"{name}{push['client_instance_id']}", "offset": number}
        for number, (push, (name, minutes)) in enumerate(product(chosen, clocks.items()))
    ]  # fmt: skip
    lake = write_lake(tmp_path / "lake", pa.Table.from_pylist(moved, PUSHES.schema))
    assert found(lake).keys() == {
        *(("rejected_points", f"far {client_id}") for client_id in ids),
        *(("wrong_clock", f"{name} {client_id}") for name in ("behind", "ahead") for client_id in ids),
    }


def header(record: dict[str, Any], key: str) -> bytes | None:
    return next((each["value"] for each in record["headers"] if each["key"] == key), None)
