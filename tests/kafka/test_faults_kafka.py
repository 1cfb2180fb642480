"""Faults of the landing topic's side: a broker killed while the job follows it, and partitions added under the job."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from jobs.ingest import IngestSettings, make_lake, make_source, run
from jobs.local_cluster import LocalCluster
from jobs.settings import parse
from tests.kafka.test_safety_kafka import land
from tests.ledger import Fleet, Landed, Ledger
from tests.ledger_check import check

pytestmark = pytest.mark.slow


def test_a_broker_killed_and_partitions_added_while_the_job_follows(spark: SparkSession, tmp_path: Path) -> None:
    fleet, lake, placed, failed = Fleet(), tmp_path / "lake", list[Landed](), list[Exception]()
    stop = threading.Event()

    def more() -> None:
        known = len(fleet.ledger.landed)
        records = fleet.round()
        placed.extend(land(cluster, records, fleet.ledger.landed[known:]))

    def judged() -> int:
        there = (lake / "push_outcomes" / "_delta_log").is_dir()
        return DeltaTable(str(lake / "push_outcomes")).count() if there else 0

    def follow() -> None:
        try:
            run(spark, make_lake(settings), make_source(settings), settings, stop)
        except Exception as error:
            failed.append(error)

    with LocalCluster(landing_partitions=3) as cluster:
        argv = ["--source", "kafka", "--bootstrap-servers", cluster.bootstrap_servers, "--lake", str(lake)]
        settings = parse(IngestSettings, [*argv, "--trigger-seconds", "0.5"], "test")
        more()
        job = threading.Thread(target=follow)
        job.start()
        try:
            wait_for(lambda: judged() == len(placed), failed)
            cluster.broker(1).kill()
            time.sleep(5)
            cluster.broker(1).start()
            more()
            wait_for(lambda: judged() == len(placed), failed)
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            admin.create_partitions([NewPartitions("client-telemetry", 6)])["client-telemetry"].result(30)
            time.sleep(3)  # until the producer's brokers know
            fleet.grow(6)
            more()
            wait_for(lambda: judged() == len(placed), failed)
        finally:
            stop.set()
            job.join(120)
    assert failed == []
    verdict = check(lake, Ledger(placed, fleet.ledger.increments))
    assert (verdict.lost, verdict.doubled, verdict.problems) == (0, 0, [])


def wait_for(there: Callable[[], bool], failed: list[Exception], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not there():
        assert failed == []
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)
