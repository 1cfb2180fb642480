"""A Python worker that has another release of us ends the job with a line; Spark's jobs have names.

The workers are those of executors with a JVM of their own (`local-cluster`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from kafka_telemetry_lake.pipelines.runtime.worker_task import release
from tests.conftest import Ingest
from tests.support.lake_tables import table
from tests.support.landing_records import captured, write
from tests.support.patience import PATIENCE_S

PACKAGE = Path(__file__).parents[2] / "kafka_telemetry_lake"


@pytest.mark.slow
@pytest.mark.soak
def test_a_worker_of_another_release_is_refused(tmp_path: Path) -> None:
    """As on a machine where the wheel was not renewed; nothing is written."""
    other = tmp_path / "other" / "kafka_telemetry_lake"
    shutil.copytree(PACKAGE, other, ignore=shutil.ignore_patterns("__pycache__", "docs"))
    judging = other / "udfs" / "conversion" / "shard.py"
    judging.write_text(judging.read_text("utf-8") + "# of the next release\n", encoding="utf-8")
    write(tmp_path / "in", "0.parquet", captured().slice(0, 20))
    lake = tmp_path / "lake"
    home = tmp_path / "spark"  # workers write into it
    home.mkdir()
    for name in ("bin", "jars"):
        (home / name).symlink_to(Path(str(pyspark.__file__)).parent / name)
    cluster = {**os.environ, "SPARK_HOME": str(home)}
    other_path = f"--conf spark.executorEnv.PYTHONPATH={other.parent} --conf spark.task.maxFailures=1 pyspark-shell"
    argv = [sys.executable, "-m", "kafka_telemetry_lake.jobs.cli", "ingest", "--source", f"files:{tmp_path / 'in'}",
            "--lake", str(lake), "--master", "local-cluster[2,1,1024]", "--once"]  # fmt: skip
    done = subprocess.run(
        argv, cwd=tmp_path, env={**cluster, "PYSPARK_SUBMIT_ARGS": other_path}, capture_output=True, text=True,
        check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    (line,) = [each for each in done.stderr.splitlines() if "OtherReleaseError" in each]
    assert done.returncode == 1
    assert line.endswith(f"the driver has {release()}: install the same wheel on every machine")
    assert line.startswith("telemetry-lake: stream pushes failed: ")
    assert "Traceback" not in done.stdout
    assert not list(lake.glob("pushes/**/*.parquet"))
    done = subprocess.run(
        argv, cwd=tmp_path, env=cluster, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr  # once all have the same release, the job goes on
    assert table(lake, "push_outcomes").num_rows == 20


@pytest.mark.slow
def test_the_jobs_of_a_batch_have_names(ingest: Ingest, job_names: list[str], tmp_path: Path) -> None:
    pushes = captured()
    write(tmp_path / "in", "0.parquet", pushes.slice(0, 20))
    ingest(tmp_path / "in", tmp_path / "lake")
    write(tmp_path / "in", "1.parquet", pushes.slice(20))
    ingest(tmp_path / "in", tmp_path / "lake")
    assert job_names == [
        "pushes: batch 0: store, judge its pushes if they are few",
        "pushes: batch 1: store, judge its pushes if they are few",
        "points: batch 1: judge 1 files, 2 shards",
    ]
