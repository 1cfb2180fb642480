"""README's spark-submit lines work as they are printed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from jobs.local_cluster import LocalCluster
from tests.lake_tables import table

from .test_ingest_kafka import good_pushes, produce

ROOT = Path(__file__).parent.parent.parent


def printed(word: str) -> str:
    """The one command block of README that holds a word."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (found,) = [block for block in blocks if "spark-submit" in block and word in block]
    return str(found)


def run(command: str, lake: Path) -> str:
    assert "--lake my-lake" in command
    command = command.replace("--lake my-lake", f"--lake {lake}")
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_spark_submit_from_files(tmp_path: Path) -> None:
    assert "ingest: done" in run(printed("--source files:"), tmp_path / "lake")
    assert table(tmp_path / "lake", "metric_points").num_rows == 157_260


@pytest.mark.slow
def test_spark_submit_from_kafka(cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    produce(cluster, topic, good_pushes(0, 4))
    command = printed("--source kafka")
    assert "127.0.0.1:9092" in command
    command = command.replace("127.0.0.1:9092", f"{cluster.bootstrap_servers} --topic {topic}")
    run(command, tmp_path / "lake")
    assert table(tmp_path / "lake", "metric_points").num_rows == 60
