"""A files source tells whether it holds quota samples, so that a lake without any has no stream for them."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kafka_telemetry_lake.pipelines.ingest.sources import FilesSource, Topics
from tests.support.landing_records import SCHEMA, record, write

NO_SESSION = cast(SparkSession, None)  # a files source doesn't ask for it


def reads(path: Path, topics: Topics | None = None) -> bool:
    return FilesSource(str(path), "test", topics or Topics()).reads_quotas(NO_SESSION)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_one_record_among_the_others_is_enough(tmp_path: Path, kind: pa.DataType) -> None:
    assert not reads(tmp_path)
    pushes = [record(number, b"") for number in range(100)]
    write(tmp_path, "a.parquet", pushes)
    assert not reads(tmp_path)
    mixed = [*pushes, record(0, b"{}") | {"topic": "client-quotas"}, record(0, b"{}") | {"topic": "z"}]
    table = pa.Table.from_pylist(mixed, SCHEMA)
    write(tmp_path, "b.parquet", table.set_column(2, "topic", table["topic"].cast(kind)))
    assert reads(tmp_path)
    assert reads(tmp_path / "b.parquet")
    assert not reads(tmp_path / "a.parquet")
    assert not reads(tmp_path, Topics(quotas="another"))
    assert reads(tmp_path, Topics(quotas="z"))


def test_files_that_spark_leaves_out_do_not_count(tmp_path: Path) -> None:
    written = write(tmp_path, "a.parquet", [record(0, b"{}") | {"topic": "client-quotas"}])
    written.rename(tmp_path / "_a.parquet")
    assert not reads(tmp_path)
