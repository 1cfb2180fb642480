"""A lake of tables by name: Spark's engine gives the rows of the fast one, and no other program's table is touched."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs.support.ingest_by_name import TABLES
from kafka_telemetry_lake.pipelines.lake.errors import (
    CatalogError,
    ForeignCheckpointError,
    OldCheckpointError,
    OtherTableError,
    StateMissingError,
)
from kafka_telemetry_lake.pipelines.query import spark_catalog
from kafka_telemetry_lake.pipelines.query.views import needed
from kafka_telemetry_lake.pipelines.spark_engine.tables import TablesByName
from kafka_telemetry_lake.pipelines.tables.names import Names
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES, RECEIVER_HEALTH
from kafka_telemetry_lake.pipelines.tables.table import FORMAT, FORMAT_PROPERTY
from kafka_telemetry_lake.udfs.errors import OtherFormatError
from tests.conftest import Ingest
from tests.support.by_name import SHARDS, Both, schema, written_twice
from tests.support.documented_commands import ROOT
from tests.support.hive_catalog import HiveCatalog
from tests.support.lake_tables import clients_of, table
from tests.support.landing_records import CAPTURED, LANDED_AT
from tests.support.local_stream import LocalStream
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.spark_run import ingest_by_name
from tests.support.two_engines import compare, land, made_up, rounds, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

PLACE = ("--catalog", "spark_catalog", "--schema", "client_telemetry")


@pytest.fixture
def names(spark: SparkSession, tmp_path: Path) -> Iterator[Names]:
    with schema(spark, "by_name", tmp_path / "managed") as names:
        yield names


def test_tables_are_created_and_a_batch_is_appended_once(spark: SparkSession, names: Names, tmp_path: Path) -> None:
    tables = TablesByName(spark, names)
    tables.create([PUSHES, RECEIVER_HEALTH])
    own = DeltaTable(tmp_path / "managed" / "pushes")
    by_path = PUSHES.create(str(tmp_path / "path"))
    assert (own.metadata().description, own.metadata().partition_columns) == (PUSHES.meaning, ["landed_date"])
    assert own.metadata().configuration == by_path.metadata().configuration
    assert own.schema().to_arrow() == by_path.schema().to_arrow()  # comments included
    assert tables.has_pushes() is False
    rows = spark.createDataFrame(pa.table({"client_id": ["orders"]}, pa.schema([PUSHES.schema.field("client_id")])))
    for batch in (0, 0, 3):
        tables.append(PUSHES, rows, "app", batch)
    tables.create([PUSHES, RECEIVER_HEALTH])  # as at the next start
    assert tables.has_pushes() is True
    assert spark.table(names.of("pushes")).count() == 2
    assert (tables.last_batch("app"), tables.last_batch("other")) == (3, -1)
    spark.sql(f"ALTER TABLE {names.of('pushes')} SET TBLPROPERTIES ('x' = 'y')")  # a commit of somebody
    assert tables.last_batch("app") == 3


def test_a_table_of_an_earlier_release_gets_the_columns_that_it_lacks(spark: SparkSession, names: Names) -> None:
    tables, lacks = TablesByName(spark, names), "reject_detail"
    earlier = PUSHES.schema.remove(PUSHES.schema.get_field_index(lacks))
    tables.create([replace(PUSHES, schema=earlier)])
    spark.sql(f"INSERT INTO {names.of('pushes')} (client_id, landed_date) VALUES ('before', DATE '2026-11-21')")
    tables.create([PUSHES, RECEIVER_HEALTH])
    assert spark.table(names.of("pushes")).schema[lacks].metadata["comment"] == "what is wrong with the record"
    rows = pa.Table.from_pylist([{"client_id": "after", "landed_at": LANDED_AT, lacks: "text"}], PUSHES.schema)
    tables.insert(PUSHES, rows)
    found = spark.table(names.of("pushes")).select("client_id", lacks).collect()
    assert {tuple(row) for row in found} == {("before", None), ("after", "text")}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ("", "lacks column .*, which this build reads: start a new lake"),
        (
            f"TBLPROPERTIES ('{FORMAT_PROPERTY}' = '{FORMAT + 1}')",
            f"has format {FORMAT + 1}, and this build reads format {FORMAT} only: start a new lake",
        ),
    ],
)
def test_a_table_of_another_format_is_refused(spark: SparkSession, names: Names, properties: str, message: str) -> None:
    kept = ", ".join(f"`{name}` STRING" for name in ("topic", "client_id"))
    spark.sql(f"CREATE TABLE {names.of('pushes')} ({kept}, landed_date DATE) USING DELTA PARTITIONED BY (landed_date) "
              f"{properties}")  # fmt: skip
    with pytest.raises(OtherFormatError, match=f"pushes {message}"):
        TablesByName(spark, names).create([PUSHES, RECEIVER_HEALTH])
    assert tables_of(spark, names) == ["pushes"]


OTHERS = {
    "(a INT) USING DELTA": "pushes is partitioned by nothing, not by landed_date: name another",
    "(a INT) USING PARQUET": "pushes is a table of parquet, not of Delta",
    "(offset STRING, mine INT, landed_date DATE) USING DELTA PARTITIONED BY (landed_date)": (
        r"pushes exists with other columns: offset \(string\), mine \(int\): name another"
    ),
}


def tables_of(spark: SparkSession, names: Names) -> list[str]:
    """Without temporary views, which belong to the session and its other tests."""
    rows = spark.sql(f"SHOW TABLES IN {names.quoted}").collect()
    return [row.tableName for row in rows if not row.isTemporary]


@pytest.mark.parametrize("columns", OTHERS)
def test_another_table_of_the_name_is_left_alone(spark: SparkSession, names: Names, columns: str) -> None:
    spark.sql(f"CREATE TABLE {names.of('pushes')} {columns}")
    before = spark.sql(f"DESCRIBE TABLE EXTENDED {names.of('pushes')}").collect()
    with pytest.raises(OtherTableError, match=rf"^spark_catalog\.by_name\.{OTHERS[columns]}"):
        TablesByName(spark, names).create([PUSHES, RECEIVER_HEALTH])
    assert tables_of(spark, names) == ["pushes"]
    assert spark.sql(f"DESCRIBE TABLE EXTENDED {names.of('pushes')}").collect() == before


def test_views_and_tables_without_pushes_are_others(spark: SparkSession, names: Names) -> None:
    spark.sql(f"CREATE VIEW {names.of('receiver_health')} AS SELECT 1 AS a")
    with pytest.raises(OtherTableError, match="receiver_health is a view, not a table: drop it"):
        TablesByName(spark, names).create([PUSHES, RECEIVER_HEALTH])
    spark.sql(f"DROP VIEW {names.of('receiver_health')}")
    TablesByName(spark, names).create([PUSHES, RECEIVER_HEALTH])
    spark.sql(f"DROP TABLE {names.of('pushes')}")
    with pytest.raises(OtherTableError, match="receiver_health exists, but pushes doesn't"):
        TablesByName(spark, names).create([PUSHES, RECEIVER_HEALTH])


def test_a_catalog_that_is_not_there_is_one_line(spark: SparkSession) -> None:
    with pytest.raises(
        CatalogError, match=r"^schema nowhere\.lake doesn't exist and can't be created: .*nowhere"
    ) as error:
        TablesByName(spark, Names("nowhere", "lake")).create([PUSHES])
    assert "\n" not in str(error.value)


# tests/unit/spark_engine/test_both_engines.py compares both engines for more seeds without Spark.
@pytest.fixture(scope="module", params=[2, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 3, 4))])
def both(
    request: pytest.FixtureRequest, spark: SparkSession, ingest: Ingest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    with written_twice(spark, ingest, request.param, tmp_path_factory.mktemp("both")) as both:
        yield both


def test_whole_tables_are_the_same(spark: SparkSession, both: Both) -> None:
    compared = compare(stored(both.path), stored(both.managed))
    assert compared.differences == {}
    assert clients_of(both.managed) == clients_of(both.path)
    assert compared.rows["metric_points"] > 100
    assert min(compared.rows[name] for name in ("quarantine", "client_events", "receiver_health")) > 0
    batches = spark.sql(f"SELECT batch_id FROM {both.names.of('pipeline_metrics')} WHERE stream = 'points' ORDER BY 1")
    assert [row.batch_id for row in batches.collect()] == [0, 1, 2]
    assert (both.checkpoints / "spark" / "state").is_dir()


@pytest.mark.soak  # made-up pushes give the same rows in Spark, and these in test_both_engines.py without Spark
def test_captured_pushes(spark: SparkSession, ingest: Ingest, names: Names, tmp_path: Path) -> None:
    ingest(CAPTURED, tmp_path / "path", *SHARDS)
    ingest_by_name(spark, CAPTURED, names, tmp_path / "checkpoints", *SHARDS)
    compared = compare(stored(tmp_path / "path"), stored(tmp_path / "managed"))
    print(f"{sum(compared.rows.values()):,} rows of both engines are the same: {compared.rows}")
    assert compared.differences == {}
    assert compared.rows["metric_points"] == 157_260
    assert clients_of(tmp_path / "managed") == clients_of(tmp_path / "path")


def test_the_tables_of_a_lake_by_path_are_another_lakes(spark: SparkSession, names: Names, tmp_path: Path) -> None:
    records = made_up(Random(2), 1)
    land(tmp_path / "source", 0, records)
    by_path = LocalStream(tmp_path)
    by_path.batch([each for each in records if each["topic"] == "client-telemetry"])
    for each in TABLES:
        if DeltaTable.is_deltatable(each.uri(str(by_path.lake))):
            place = each.uri(str(by_path.lake))
            spark.sql(f"CREATE TABLE {names.of(each.name)} USING DELTA LOCATION '{place}'")
    before = stored(by_path.lake)
    assert before["metric_points"].num_rows > 0
    with pytest.raises(StateMissingError, match=r"spark_catalog\.by_name has pushes, and the Spark engine's state of"):
        ingest_by_name(spark, tmp_path / "source", names, tmp_path / "checkpoints", *SHARDS)
    assert compare(before, stored(by_path.lake)).differences == {}


def test_views_of_the_schema(
    spark: SparkSession, both: Both, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that one view needs: tests/spark/test_docs_commands.py creates all, in another schema."""
    few = {view.name: view for view in needed(["clients"])[0]}
    monkeypatch.setattr(spark_catalog, "views", lambda *_: few)
    assert spark_catalog.create_named_views(spark, both.names) == list(few)
    spark.catalog.setCurrentDatabase("default")
    capsys.readouterr()
    question = "SELECT client_instance_id, state, pushes, missed_pushes FROM {}clients ORDER BY 1, 2, 3"
    assert cli.main(["query", "--lake", str(both.path), "--format", "jsonl", question.format("")]) == 0
    by_path = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = spark.sql(question.format(f"{both.names.quoted}.")).collect()
    assert [row.asDict() for row in found] == by_path
    assert len(by_path) >= 3
    assert spark.table(both.names.of("subscriptions")).isEmpty()  # a table that the lake lacks


def test_checkpoints_of_another_lake_or_of_before_are_refused(
    spark: SparkSession, both: Both, names: Names, tmp_path: Path
) -> None:
    checkpoints = shutil.copytree(both.checkpoints, tmp_path / "checkpoints")
    rows = spark.table(both.names.of("pushes")).count()
    with pytest.raises(ForeignCheckpointError, match=r"do not belong to lake spark_catalog\.by_name, or the lake was"):
        ingest_by_name(spark, both.source, names, checkpoints, *SHARDS)
    assert spark.table(names.of("pushes")).isEmpty()
    for folder in ("offsets", "commits"):  # as of a backup that was made before the last batch
        for file in (checkpoints / "spark" / folder).glob("*2*"):
            file.unlink()
    with pytest.raises(OldCheckpointError, match="ends at batch 1, but the lake already has batch 2"):
        ingest_by_name(spark, both.source, both.names, checkpoints, *SHARDS)
    assert spark.table(both.names.of("pushes")).count() == rows


@pytest.fixture
def hive(tmp_path: Path) -> HiveCatalog:
    return HiveCatalog.make(tmp_path / "hive")


def flags_of(tmp_path: Path, source: Path) -> list[str]:
    return ["ingest", "--source", f"files:{source}", "--once", "--source-name", "test", *PLACE,
            "--checkpoints", str(tmp_path / "checkpoints"), *SHARDS]  # fmt: skip


@pytest.mark.soak
def test_captured_pushes_in_a_metastore(hive: HiveCatalog, ingest: Ingest, tmp_path: Path) -> None:
    """Each command is a process of its own. What it knows of the tables is in the metastore."""
    ingest(CAPTURED, tmp_path / "path", *SHARDS)
    hive.run(*flags_of(tmp_path, CAPTURED))
    compared = compare(stored(tmp_path / "path"), stored(hive.tables("client_telemetry")))
    print(f"{sum(compared.rows.values()):,} rows are the same by name and by path: {compared.rows}")
    assert compared.differences == {}
    assert compared.rows["metric_points"] == 157_260
    assert clients_of(hive.tables("client_telemetry")) == clients_of(tmp_path / "path")
    hive.run(*flags_of(tmp_path, CAPTURED))  # a restart: nothing is new
    hive.run("maintain", *PLACE, "--checkpoints", str(tmp_path / "checkpoints"))
    assert compare(stored(tmp_path / "path"), stored(hive.tables("client_telemetry"))).differences == {}
    assert len(DeltaTable(hive.tables("client_telemetry") / "pushes").file_uris()) == 1


@pytest.mark.soak
def test_a_job_that_is_killed_goes_on(hive: HiveCatalog, ingest: Ingest, tmp_path: Path) -> None:
    """At the first commit of its second batch that can be seen."""
    random = Random(11)
    pushes = hive.tables("client_telemetry") / "pushes"
    for number, part in enumerate(rounds(random, made_up(random, 6), 2)):
        land(tmp_path / "source", number, part)
        ingest(tmp_path / "source", tmp_path / "path", *SHARDS)
        if number == 1:
            before = DeltaTable(pushes).version()
            argv = hive.command(*flags_of(tmp_path, tmp_path / "source"))
            with subprocess.Popen(argv, env=hive.environment, cwd=ROOT, start_new_session=True) as job:
                while DeltaTable(pushes).version() == before and job.poll() is None:
                    time.sleep(0.05)
                with suppress(ProcessLookupError):  # it has just ended
                    os.killpg(job.pid, signal.SIGKILL)
            assert DeltaTable(pushes).version() > before
        hive.run(*flags_of(tmp_path, tmp_path / "source"))
    compared = compare(stored(tmp_path / "path"), stored(hive.tables("client_telemetry")))
    assert compared.differences == {}
    assert compared.rows["metric_points"] > 0


@pytest.mark.soak
def test_it_follows_its_source_until_it_is_stopped(hive: HiveCatalog, tmp_path: Path) -> None:
    random = Random(3)
    parts = rounds(random, made_up(random, 3), 2)
    pushes = hive.tables("client_telemetry") / "pushes"
    land(tmp_path / "source", 0, parts[0])
    flags = [flag for flag in flags_of(tmp_path, tmp_path / "source") if flag != "--once"]
    with subprocess.Popen(hive.command(*flags, "--trigger-seconds", "1"), env=hive.environment, cwd=ROOT) as job:
        try:
            for number in (1, 2):
                wait_until(partial(_has_appends, pushes, number), process=job)
                if number == 1:
                    land(tmp_path / "source", 1, parts[1])
            job.send_signal(signal.SIGTERM)
            assert job.wait(PATIENCE_S) == 0
        finally:
            job.kill()
    assert table(hive.tables("client_telemetry"), "push_outcomes").num_rows > 0


def _has_appends(pushes: Path, number: int) -> bool:
    return appends(pushes) >= number


def appends(pushes: Path) -> int:
    """Batches that are written; the folder is there before the table is."""
    if not DeltaTable.is_deltatable(str(pushes)):
        return 0
    return sum(entry.get("operation") == "WRITE" for entry in DeltaTable(pushes).history())


def test_a_catalog_in_memory_is_refused(tmp_path: Path) -> None:
    argv = HiveCatalog(tmp_path).command(*flags_of(tmp_path, CAPTURED))
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("telemetry-lake: catalog: spark_catalog is in this session's memory")
