"""Faults of the landing topic's side: brokers killed while the job follows it, partitions added, two receivers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from tests.support.ledger_faults import add_partitions, following, kill_brokers, land_by_two_brokers
from tests.support.ledger_run import KafkaRun

pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path: Path) -> Iterator[KafkaRun]:
    with LocalCluster(brokers=2, landing_partitions=3) as cluster:
        run = KafkaRun(tmp_path, cluster)
        yield run
        run.close()


def test_brokers_killed_partitions_added_and_two_receivers_while_the_job_follows(run: KafkaRun) -> None:
    with following(run) as job:
        kill_brokers(run, job, 1)
        add_partitions(run, job, 6)
        land_by_two_brokers(run, job, 1)
    verdict = run.verdict()
    assert (verdict.lost, verdict.doubled, verdict.problems) == (0, 0, [])
    assert len(run.recoveries_s) == 3
