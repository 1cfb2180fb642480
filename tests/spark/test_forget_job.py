"""After an erasure the job itself goes on: its queries, the operator and the lifecycle find their place in the logs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.pipelines.tables.quotas import QUOTAS
from tests.conftest import Ingest
from tests.support.erasable_lake import end_history, traces
from tests.support.lake_tables import table
from tests.support.landing_records import captured, write

ROWS = ("pushes", "metric_points", "push_outcomes", "client_events", "client_changes", "quota_reports")


@pytest.mark.slow
def test_the_job_goes_on_after_an_erasure(ingest: Ingest, tmp_path: Path) -> None:
    landed = captured().slice(0, 600)
    first, second = landed.slice(0, 300), landed.slice(300)
    erased, whole = lakes = tmp_path / "lake", tmp_path / "whole"
    write(tmp_path / "in", "0.parquet", first)
    for lake in lakes:
        QUOTAS.create(str(lake))  # then the job reads the clients' reports too
        ingest(tmp_path / "in", lake)
    again = set(second["key"].cast(pa.string()).to_pylist())
    client = next(each for each in table(erased, "quota_reports")["client_instance_id"].to_pylist() if each in again)
    assert cli.main(["forget", "--lake", str(erased), f"--client-instance={client}"]) == 0
    end_history(erased)
    assert traces(erased, [client]) == set()
    write(tmp_path / "in", "1.parquet", second)
    for lake in lakes:
        ingest(tmp_path / "in", lake)

    def others(lake: Path, name: str) -> list[str]:
        rows = table(lake, name).to_pylist()
        return sorted(str(sorted(row.items())) for row in rows if row["client_instance_id"] != client)

    for name in ROWS:
        assert others(erased, name) == others(whole, name), name
    assert client in table(erased, "client_changes")["client_instance_id"].to_pylist()
