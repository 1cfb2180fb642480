"""Credentials that expire in the middle of a run are fetched again, by the driver, by its tasks and by Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.support.landing_records import captured, write
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.s3_proxy import proxied
from tests.support.s3_server import BUCKET, GOFAKES3, S3Server
from tests.support.short_credentials import short_credentials

LIFE_S = 25.0
LAKE = f"{BUCKET}/short"


@pytest.mark.slow
def test_a_job_outlives_its_credentials(tmp_path: Path) -> None:
    """The store refuses each token from the second on in which it expires."""
    server = S3Server.start(tmp_path / "objects", GOFAKES3)  # the other one knows no session tokens
    static = server.environment
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    try:
        with proxied(static["AWS_ENDPOINT_URL"]) as proxy, short_credentials(tmp_path, LIFE_S) as endpoint:
            proxy.admits = endpoint.admits
            environment = {**os.environ, **server.environment, "AWS_ENDPOINT_URL": proxy.endpoint}
            environment = {name: value for name, value in environment.items() if name not in keys}
            pushes, log = captured(), tmp_path / "log"
            write(tmp_path / "in", "0.parquet", pushes.slice(0, 300))
            argv = [sys.executable, "-m", "kafka_telemetry_lake.jobs.cli", "ingest", "--source",
                    f"files:{tmp_path / 'in'}", "--lake", f"s3a://{LAKE}", "--checkpoints", f"s3a://{LAKE}-checkpoints",
                    "--master", "local[2]", "--trigger-seconds", "1"]  # fmt: skip

            def judged() -> int:
                table = f"s3://{LAKE}/push_outcomes"
                if not DeltaTable.is_deltatable(table, static):
                    return 0
                return int(DeltaTable(table, storage_options=static).to_pyarrow_table(columns=["offset"]).num_rows)

            with log.open("wb") as out:
                job = subprocess.Popen(argv, env={**environment, **endpoint.environment}, stdout=out, stderr=out)
            try:
                wait_until(lambda: judged() == 300, process=job, said=log.read_text, every_s=0.5)
                known = len(endpoint.issued)
                time.sleep(LIFE_S + 1)  # all that it had when it judged them has expired
                write(tmp_path / "in", "1.parquet", pushes.slice(300))
                wait_until(lambda: judged() == pushes.num_rows, process=job, said=log.read_text, every_s=0.5)
                job.terminate()
                assert job.wait(PATIENCE_S) == 0, log.read_text()[-3000:]
            finally:
                job.kill()
            assert len(endpoint.issued) > known
            assert endpoint.refused == []
            assert "Traceback" not in log.read_text()
    finally:
        server.stop()
