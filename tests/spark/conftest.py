"""What tests of the job share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark import SparkContext

from tests.support.s3_server import S3Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server with an empty bucket."""
    server = S3Server.start(tmp_path_factory.mktemp("s3") / "objects")
    yield server
    server.stop()


@pytest.fixture
def job_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that are given to Spark's jobs, as they are given; without those that Spark gives to batches."""
    names = list[str]()
    shown = SparkContext.setLocalProperty

    def noted(context: SparkContext, key: str, name: str | None) -> None:
        if key == "spark.job.description" and name is not None and "id = " not in name:
            names.append(name)
        shown(context, key, name)  # type: ignore[arg-type]  # None: there is none

    monkeypatch.setattr(SparkContext, "setLocalProperty", noted)
    return names
