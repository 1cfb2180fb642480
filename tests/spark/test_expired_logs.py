"""A lake whose logs have forgotten every commit that Delta's own cleanup may remove: all commands, and the job."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kafka_telemetry_lake.dashboards.lake import LakeReader
from kafka_telemetry_lake.dashboards.questions import names, question
from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs import replay as replay_job
from kafka_telemetry_lake.jobs.ingest import make_lake
from kafka_telemetry_lake.jobs.settings.base import parse
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from kafka_telemetry_lake.jobs.settings.replay import ReplaySettings
from kafka_telemetry_lake.jobs.support.running import StreamFailedError
from kafka_telemetry_lake.pipelines.ingest.operator import Operator
from kafka_telemetry_lake.pipelines.lake.config_history import record
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.query.views import needed, views
from kafka_telemetry_lake.pipelines.tables.quotas import QUOTAS
from tests.conftest import Ingest
from tests.spark.test_sql_dashboard import ASKED
from tests.support.expired_logs import expire_logs
from tests.support.lake_files import undescribed
from tests.support.lake_tables import table
from tests.support.landing_records import write
from tests.support.ledger import START, Fleet
from tests.support.ledger_check import check


class CutOffError(Exception):
    """The job is killed."""


class AgedLake:
    """A lake of the job, whose logs expire before whatever is done to it."""

    def __init__(self, folder: Path, spark: SparkSession, ingest: Ingest) -> None:
        self.path, self.fleet = folder / "lake", Fleet(clients=8)
        self._folder, self._spark, self._ingest = folder, spark, ingest
        self._rounds = 0

    def land(self) -> AgedLake:
        write(self._folder / "in", f"{self._rounds}.parquet", self.fleet.round())
        self._rounds += 1
        return self

    def run(self, *flags: str) -> AgedLake:
        expire_logs(self.path)
        self._ingest(self._folder / "in", self.path, *flags)
        return self

    def replay(self, *flags: str) -> None:
        expire_logs(self.path)
        settings = parse(ReplaySettings, ["--lake", str(self.path), *flags], "test")
        job = parse(IngestSettings, ["--source", f"files:{self._folder / 'in'}", "--lake", str(self.path)], "test")
        replay_job.run(self._spark, make_lake(job), settings)

    def command(self, *argv: str) -> int:
        expire_logs(self.path)
        return cli.main([*argv, "--lake", str(self.path)])

    def problems(self) -> list[str]:
        return check(self.path, self.fleet.ledger).problems

    def clients(self) -> dict[str, int]:
        rows = run_query(str(self.path), "SELECT client_instance_id, pushes FROM clients").read_all().to_pylist()
        return {row["client_instance_id"]: row["pushes"] for row in rows}

    def pushes(self) -> dict[str, int]:
        """What `clients` must say: landed pushes of each client, those of unreadable payloads too."""
        counts: dict[str, int] = {}
        for each in self.fleet.ledger.landed:
            counts[each.client] = counts.get(each.client, 0) + 1
        return counts


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession, ingest: Ingest) -> AgedLake:
    return AgedLake(tmp_path, spark, ingest).land().run()


def reading(reads: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Of what reads tables and views: those that between them read all of these tables."""
    read = set[str]()
    for name, own in reads.items():
        tables = set(needed(own)[1])
        if not tables <= read:
            read |= tables
            yield name


@pytest.mark.slow
def test_the_job_goes_on_with_its_checkpoints_and_without_and_every_command_runs(
    lake: AgedLake, capsys: pytest.CaptureFixture[str]
) -> None:
    quota = {"user": "", "client_id": "fleet", "ip": "", "quota_type": "produce", "quota_limit": 1e6}
    record(QUOTAS, str(lake.path), None, [quota], START)
    lake.land().run()
    assert lake.problems() == []
    shutil.rmtree(lake.path / "_checkpoints")
    lake.land().run()  # a new checkpoint: the state is rebuilt, no row is written twice
    assert lake.problems() == []
    lake.land().run()  # and the lake has once got a new one
    assert lake.problems() == []
    assert lake.clients() == lake.pushes()
    dashboard = LakeReader(str(lake.path))
    dashboard.versions()
    lake.land().run()
    expire_logs(lake.path)
    versions = dict(dashboard.versions())  # it has been open for days
    assert versions["metric_points"] == DeltaTable(str(lake.path / "metric_points")).version()
    chosen = dashboard.ask("instances", ASKED)
    for name in reading({name: question(name).reads for name in names()}):
        dashboard.ask(name, ASKED, chosen)
    for name in reading({name: view.reads for name, view in views().items()}):
        run_query(str(lake.path), f'SELECT * FROM "{name}"').read_all()
    assert lake.command("maintain", "--vacuum-hours", "24") == 0
    assert lake.command("quality", "--full") == 0
    assert lake.command("quality") == 0
    assert lake.command("findings") == 0
    assert lake.command("query", "SELECT count(*) FROM pushes") == 0
    assert lake.command("maintain") == 0
    assert lake.problems() == []
    lake.replay()
    assert lake.problems() == []
    for damaged in (lake.path / "_checkpoints" / "points-state").glob("shard-00001*.state"):
        damaged.unlink()
    lake.replay("--rebuild-state")
    lake.land().run()
    assert lake.problems() == []
    shutil.rmtree(lake.path / "client_changes")  # the lifecycle from its beginning
    lake.land().run()
    assert lake.clients() == lake.pushes()
    assert lake.problems() == []
    assert undescribed(lake.path) == []
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("cut_at", ["committed in part", pytest.param("stored", marks=pytest.mark.soak)])
def test_pushes_whose_commits_were_forgotten_before_they_were_judged(
    lake: AgedLake, monkeypatch: pytest.MonkeyPatch, cut_at: str
) -> None:
    """The job is killed, and upkeep goes on for days."""

    def cut(*_: Any, **__: Any) -> None:
        raise CutOffError

    commit = TableLog.commit

    def commit_points_only(log: TableLog, *args: Any) -> bool:
        if log.table.name == "push_outcomes":
            raise CutOffError
        return commit(log, *args)

    with monkeypatch.context() as killed:
        if cut_at == "stored":
            killed.setattr(Operator, "_finish", cut)
        else:
            killed.setattr(TableLog, "commit", commit_points_only)
        lake.land()
        with pytest.raises(StreamFailedError, match="stream pushes failed"):
            lake.run()
    assert table(lake.path, "pushes").num_rows == len(lake.fleet.ledger.landed)
    assert table(lake.path, "push_outcomes").num_rows < len(lake.fleet.ledger.landed)
    assert lake.command("maintain", "--vacuum-hours", "24") == 0
    lake.land().run()
    assert lake.problems() == []
    assert not (lake.path / "pushes" / "_replay").exists()
    lake.land().run()
    assert lake.problems() == []
