"""Folders whose names are patterns, URLs or quotes to some library are read and written as any other."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.query.spark_catalog import register_tables
from kafka_telemetry_lake.udfs.errors import CannotRunError
from tests.conftest import Ingest
from tests.support.landing_records import captured, record, write
from tests.support.quick_session import quick_session


@pytest.mark.slow
def test_a_source_and_a_lake_with_awkward_names(spark: SparkSession, ingest: Ingest, tmp_path: Path) -> None:
    push = captured()["value"][0].as_py()
    lake = tmp_path / 'it\'s "a" #1+2;3&4=5,{6} é$x:y~'
    checkpoints = tmp_path / "checkpoints [1] {a,b}*? #%41"
    source = tmp_path / "in-[1]"
    write(tmp_path / "in-1", "decoy.parquet", [record(99, push)])  # what the pattern would find
    write(source, "a [1]{b}*?.parquet", [record(0, push)])
    write(source, "a 1b.parquet", [record(1, push)])
    ingest(source / "a [1]{b}*?.parquet", lake, "--checkpoints", str(checkpoints))
    ingest(source, lake, "--checkpoints", str(checkpoints))
    other = tmp_path / "x {a,b}*?#%41\\ 'y' \"z\" ;&=, ü\n-"
    write(other, "%41 #.parquet", [record(2, push)])
    ingest(other, lake, "--checkpoints", str(checkpoints))
    rows = run_query(
        str(lake), 'SELECT p."offset", points FROM pushes p JOIN push_outcomes USING ("offset") ORDER BY 1'
    )
    assert [row["offset"] for row in rows.read_all().to_pylist()] == [0, 1, 2]
    assert not [
        each for each in tmp_path.iterdir() if each not in (lake, checkpoints, source, other, tmp_path / "in-1")
    ]
    session = quick_session(spark)
    with pytest.raises(CannotRunError, match=r"has a colon and one of \[ \] \{ \} \* \? \\ in its path"):
        register_tables(session, str(lake), "awkward")
    register_tables(session, str(lake.rename(tmp_path / "a b#%é:`~'")), "awkward")
    assert session.table("awkward.pushes").count() == 3
    assert session.table("awkward.moments").count() == 3
    session.sql("DROP DATABASE awkward CASCADE")
