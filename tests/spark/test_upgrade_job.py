"""The job of this build goes on with the lake of each release, and with its checkpoints (docs/upgrade.md)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.kept_lakes import (
    CLUSTER,
    LAKES,
    SOURCE,
    asked,
    assert_continued,
    batches,
    header,
    instances,
    later,
    records_of,
    unpacked,
)
from tests.support.landing_records import write
from tests.support.patience import PATIENCE_S


@pytest.mark.slow
@pytest.mark.parametrize("archive", LAKES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def test_the_job_goes_on_with_the_lake_and_checkpoints_of_a_release(archive: Path, tmp_path: Path) -> None:
    """Records that the release has stored come again, and so do pushes under new offsets."""
    lake = unpacked(archive, tmp_path)
    known, landed = instances(lake), later(lake)
    stored = [row for row in batches()[1] if header(row, "client_instance_id") in known]
    source = tmp_path / "in"
    for log in (lake / "_checkpoints" / "landing" / "sources").glob("*/*"):
        log.write_text(log.read_text("utf-8").replace(SOURCE, source.as_uri()), "utf-8")
    for number, rows in enumerate((*batches()[:2], [*stored, *landed]), 1):
        write(source, f"{number}.parquet", records_of(rows))
    argv = ["ingest", "--source", f"files:{source}", "--source-name", "kept", "--lake", str(lake), "--once",
            "--cluster-id", CLUSTER, "--master", "local[2]"]  # fmt: skip
    command = [sys.executable, "-m", "kafka_telemetry_lake.jobs.cli", *argv]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_continued(lake, known, len(landed) - len(stored), len(stored))
    assert asked(lake, "SELECT count(*) FROM receiver_health") == [(3,)]
    assert asked(lake, "SELECT client_id FROM client_events WHERE event = 'terminated' ORDER BY ALL") == [
        (name,) for name in ("franz-go-producer_none-delta", "java-consumer_zstd-cumulative",
                             "librdkafka-consumer_zstd-cumulative", "librdkafka-producer_zstd-cumulative")
    ]  # fmt: skip
