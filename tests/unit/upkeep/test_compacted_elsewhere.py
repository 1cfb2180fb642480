"""Days that other machines compact by delta-rs while the job runs (docs/operate.md): nothing of the lake is another."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lifecycle.follower import Lifecycle
from kafka_telemetry_lake.pipelines.replay.replay import replay
from kafka_telemetry_lake.pipelines.tables.operator import TABLES
from kafka_telemetry_lake.udfs.limits import DEFAULT_LIMITS
from tests.support.lake_tables import clients_of
from tests.support.ledger import Fleet
from tests.support.ledger_check import check
from tests.support.local_stream import run_tasks
from tests.support.operator_alone import Job, without_spark
from tests.unit.ingest.test_reshard import rows_of

pytestmark = [pytest.mark.lake, pytest.mark.slow]

BATCHES = 6
DAY = [("landed_date", "=", "2026-11-20")]


def test_the_job_its_followers_and_a_replay_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each machine has some tables, and compacts them again and again, also pushes that aren't judged yet."""
    without_spark(monkeypatch)
    fleet = Fleet(clients=8)
    rounds = [fleet.round() for _ in range(BATCHES)]
    straight, job = (Job(tmp_path / name, iter(rounds).__next__) for name in ("straight", "job"))
    ended, merged = threading.Event(), dict.fromkeys((table.name for table in TABLES), 0)

    def machine(names: list[str]) -> None:
        is_last = False
        while not is_last:
            is_last = ended.is_set()
            for name in names:
                done = DeltaTable(f"{job.lake}/{name}").optimize.compact(partition_filters=DAY, target_size=128 << 20)
                merged[name] += done["numFilesRemoved"]

    with ThreadPoolExecutor(2) as pool:
        machines = [pool.submit(machine, list(merged)[number::2]) for number in range(2)]
        lifecycle = Lifecycle(job.lake)
        for number in range(BATCHES):
            straight.batch()
            job.batch()
            lifecycle.catch_up()
            if number == 2:
                job.stream.batch_id = straight.stream.batch_id = number + 1
                job.stream.snapshot()
        ended.set()
        for each in machines:
            each.result()
    Lifecycle(straight.lake).catch_up()
    assert min(merged[name] for name in ("pushes", "metric_points", "push_outcomes", "metric_rollups_1m")) >= BATCHES
    assert check(Path(job.lake), fleet.ledger).problems == []
    assert rows_of(Path(job.lake)) == rows_of(Path(straight.lake))
    assert clients_of(Path(job.lake)) == clients_of(Path(straight.lake))
    begin = min(record["timestamp"] for record in rounds[3]).isoformat()
    for condition in (f"landed_at >= '{begin}'", None):  # from the snapshot, and from the beginning
        replay(job.lake, str(job.stream.checkpoints), condition, DEFAULT_LIMITS, 1, run_tasks)
        assert rows_of(Path(job.lake)) == rows_of(Path(straight.lake))
