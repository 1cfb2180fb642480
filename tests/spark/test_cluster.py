"""The job on a standalone cluster whose workers are lost, added, cut off and refused by the store: the ledger is exact.

Each worker has its own network, its own folders and one core; lake and state are in an S3 store.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import spark_cluster
from tests.support.ledger_faults import lose_workers
from tests.support.ledger_run import StoreRun
from tests.support.s3_server import S3Server


@pytest.mark.slow
@pytest.mark.soak
def test_workers_are_lost_added_and_cut_off_and_the_ledger_is_exact(tmp_path: Path, server: S3Server) -> None:
    if (problem := spark_cluster.missing()) is not None:
        pytest.skip(problem)
    (tmp_path / "cluster").mkdir()
    run = StoreRun(tmp_path / "cluster", server, "")
    lose_workers(run, server.environment["AWS_ENDPOINT_URL"])
    verdict = run.verdict()
    assert (verdict.lost, verdict.doubled, verdict.problems) == (0, 0, [])
