"""A lake of a small fleet in which ten client ids have a fault each, of one of their five instances."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from kafka_telemetry_lake.pipelines.findings.evaluation.evaluator import Evaluator
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES, TABLES
from tests.support.made_clients import CONSUMER, HOUR, PRODUCER, QUIET, Client, Metrics, gauge

INSTANCES = 5


@dataclass(frozen=True)
class Fault:
    """What one instance pushes that its siblings don't, and what the pages must say of it."""

    metrics: Metrics
    evidence: str
    advice: str
    setting: str | None


FAULTS = {
    "failed_records": Fault(
        {f"{PRODUCER}record.error.total": (500, 3600)}, "500 records could not be sent",
        "The callback or future of send() has the cause", "delivery.timeout.ms=300000",
    ),
    "stuck_in_queue": Fault(
        {f"{PRODUCER}record.queue.time.max": gauge(90_000)}, "90", "delivery.timeout.ms", "delivery.timeout.ms=120000",
    ),
    "one_record_per_request": Fault(
        {f"{PRODUCER}records.per.request.avg": gauge(1.1)}, "1.1 records per request",
        "Each request costs network, broker CPU and a place in the log", "linger.ms=100\nbatch.size=16384",
    ),
    "buffer_full": Fault(
        {f"{PRODUCER}bufferpool.wait.ratio": gauge(0.5)}, "send() waited for buffer memory 50.0 % of the time",
        "look at request latency and throttling first", "buffer.memory=67108864",
    ),
    "near_request_timeout": Fault(
        {f"{PRODUCER}request.latency.max": gauge(28_000)}, "a request took 28000 ms",
        "Look for a slow disk, a long garbage collection or too few in-sync replicas", None,
    ),
    "stale_metadata": Fault(
        {f"{PRODUCER}metadata.age": gauge(900)}, "the metadata of the producer is 900 s old",
        "Check bootstrap.servers and advertised listeners", "metadata.recovery.strategy=rebootstrap",
    ),
    "throttled": Fault(
        {f"{PRODUCER}produce.throttle.time.max": gauge(5000)}, "a broker held it back for 5000 ms at most",
        "compress and batch more, spread the load over time, or ask for a higher quota", "compression.type=zstd",
    ),
    "connection_churn": Fault(
        {f"{PRODUCER}connection.creation.total": (900, 3600)}, "900 connections opened, 15.0 a minute",
        "Look for brokers or load balancers that close connections", "connections.max.idle.ms=540000",
    ),
    "failed_authentication": Fault(
        {f"{PRODUCER}failed.authentication.total": (7, 3600)}, "7 authentications failed",
        "Check when the credentials expire and that every broker knows them", None,
    ),
    "slow_processing": Fault(
        {f"{CONSUMER}time.between.poll.max": gauge(200_000)}, "200 s between two polls",
        "lower max.poll.records, hand work to other threads, or raise the limit", "max.poll.records=100",
    ),
}  # fmt: skip


def client_id(finding: str) -> str:
    """The client id that has the fault."""
    return f"shop-{finding}"


def bad_instance(finding: str) -> str:
    """The one of its instances that has it: neither the first nor the last by name."""
    return f"{finding}-2"


def planted_lake(lake: Path) -> Path:
    """Make the lake, and evaluate its findings."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for finding, fault in FAULTS.items():
        bad = bad_instance(finding)
        siblings = [f"{finding}-{number}" for number in range(INSTANCES) if f"{finding}-{number}" != bad]
        for ids, metrics in ((siblings, QUIET), ([bad], {**QUIET, **fault.metrics})):
            outcomes = tuple({"client_instance_id": each, "outcome": "points"} for each in ids)
            client = Client(metrics, ("apache-kafka-java", "4.3.0"), outcomes)
            for name, own in client.rows(client_id(finding)).items():
                rows.setdefault(name, []).extend(own)
    for table in TABLES:
        table.create(str(lake))
        more = {"landed_date": HOUR.date()} | ({"principal": "User:shop"} if table is PUSHES else {})
        stored = pa.Table.from_pylist([row | more for row in rows.get(table.name, [])], table.stored)
        write_deltalake(table.uri(str(lake)), stored, mode="append")
    Evaluator(str(lake)).evaluate(int(time.time() * 1_000_000))
    return lake
