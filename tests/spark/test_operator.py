"""The operator follows table `pushes`: whatever cuts a batch off, each push is judged once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kafka_telemetry_lake.pipelines.ingest.operator import Operator, OperatorSettings
from kafka_telemetry_lake.pipelines.ingest.operator_task import ProcessedBatch
from kafka_telemetry_lake.pipelines.ingest.operator_task import run_tasks as run_in_spark
from kafka_telemetry_lake.pipelines.ingest.reshard import reshard
from kafka_telemetry_lake.pipelines.lake.delta_log import TableLog
from kafka_telemetry_lake.pipelines.lake.moments import COMMIT_ORDER
from kafka_telemetry_lake.pipelines.lake.table_files import DataFile
from kafka_telemetry_lake.pipelines.state.manifest import StateFolder
from kafka_telemetry_lake.pipelines.state.snapshots import Snapshots
from kafka_telemetry_lake.udfs.limits import Limits
from tests.support.lake_tables import table
from tests.support.ledger import Fleet
from tests.support.ledger_check import check
from tests.support.local_stream import LocalStream

EACH_COMMIT, ALL = 1, 1 << 30  # bytes of a batch


class CutOffError(Exception):
    """The job ends here."""


def start(spark: SparkSession, stream: LocalStream, max_bytes: int) -> Operator:
    settings = OperatorSettings(str(stream.lake), str(stream.checkpoints), Limits(), max_bytes)
    operator = Operator(spark, settings, stream.state)
    if operator.position is None:
        operator.start_from(0)  # the version of an empty table
    return operator


def batches(stream: LocalStream) -> int:
    last = stream.state.last()
    return 0 if last is None else last.batch_id + 1


@pytest.mark.parametrize("place", range(len(COMMIT_ORDER) + 1))
def test_a_batch_that_was_cut_off_reads_the_same_pushes_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """Before the first commit, or after each. The next run would take all waiting commits in one batch."""
    stream, fleet = LocalStream(tmp_path), Fleet()
    for _ in range(3):
        stream.land(fleet.round())
    commit, done = TableLog.commit, 0

    def cut_off(log: TableLog, *args: Any) -> bool:
        nonlocal done
        if done == place:
            raise CutOffError
        done += 1
        return commit(log, *args)

    operator = start(spark, stream, EACH_COMMIT)
    with monkeypatch.context() as patch:
        patch.setattr(TableLog, "commit", cut_off)
        if place < len(COMMIT_ORDER):
            with pytest.raises(CutOffError):
                operator.catch_up()
        else:
            patch.setattr(Snapshots, "due", lambda *_: (_ for _ in ()).throw(CutOffError))
            with pytest.raises(CutOffError):
                operator.catch_up()
    start(spark, stream, ALL).catch_up()
    verdict = check(stream.lake, fleet.ledger)
    assert (verdict.lost, verdict.doubled, verdict.problems) == (0, 0, [])
    # Cut off before any table had the batch, nothing tells how much it had read.
    assert batches(stream) == (1 if place == 0 else 2)


def test_a_reshard_that_was_cut_off_before_its_commit_is_as_if_it_had_not_begun(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay goes on from the newest manifest: it must be that of a batch that counts."""
    stream, fleet = LocalStream(tmp_path), Fleet()
    stream.land(fleet.round())
    start(spark, stream, ALL).catch_up()

    def cut_off(*_: object) -> None:
        raise CutOffError

    with monkeypatch.context() as patch:
        patch.setattr(TableLog, "commit", cut_off)
        with pytest.raises(CutOffError):
            reshard(str(stream.lake), str(stream.checkpoints), 5)
    stream.state = StateFolder(stream.state.uri, None, 1)
    operator = start(spark, stream, ALL)
    operator.catch_up()
    assert (operator.shards, stream.state.batch_ids()) == (2, [0])
    reshard(str(stream.lake), str(stream.checkpoints), 5)
    stream.state = StateFolder(stream.state.uri, None, 1)
    operator = start(spark, stream, ALL)
    operator.catch_up()
    assert (operator.shards, stream.state.batch_ids()) == (5, [0, 1])
    stream.land(fleet.round())
    operator.catch_up()
    assert stream.state.batch_ids() == [0, 1, 2]
    assert check(stream.lake, fleet.ledger).problems == []


def test_each_commit_is_a_batch_where_a_batch_is_small(spark: SparkSession, tmp_path: Path) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet()
    for _ in range(2):
        stream.land(fleet.round())
    operator = start(spark, stream, EACH_COMMIT)
    operator.catch_up()
    assert (batches(stream), operator.position) == (2, 2)
    operator.catch_up()  # nothing is new
    assert batches(stream) == 2
    DeltaTable(str(stream.lake / "pushes")).optimize.compact()
    stream.land(fleet.round())
    operator.catch_up(4)
    assert (batches(stream), operator.position) == (3, 4)
    assert check(stream.lake, fleet.ledger).problems == []
    assert table(stream.lake, "push_outcomes").num_rows == len(fleet.ledger.landed)
    # Another process goes on where this one has stopped.
    again = start(spark, stream, ALL)
    again.catch_up()
    assert (again.position, batches(stream)) == (4, 3)


def test_results_count_if_they_are_of_the_pushes_that_the_batch_reads(spark: SparkSession, tmp_path: Path) -> None:
    """A task that stores pushes may judge them too, before they are committed."""
    stream, fleet = LocalStream(tmp_path), Fleet()
    operator = start(spark, stream, EACH_COMMIT)
    assert operator.next_task() is None  # an earlier run may have begun a batch
    stream.land(fleet.round())
    operator.catch_up()

    def land_and_judge() -> ProcessedBatch:
        before = set(stream.paths())
        stream.land(fleet.round())
        task = operator.next_task()
        assert task is not None
        task = replace(task, paths=tuple(set(stream.paths()) - before))
        return ProcessedBatch(task, run_in_spark(spark, task), 0.0)

    judged = land_and_judge()
    outcomes = {DataFile.from_json(text).path for row in judged.rows for text in row["files"]}
    operator.catch_up(judged=judged)
    assert outcomes & set(paths(stream, "push_outcomes"))
    assert (batches(stream), operator.position) == (2, 2)
    # Other pushes wait before these: the results are of a later batch, and the task's states of an earlier one.
    stream.land(fleet.round())
    judged = land_and_judge()
    outcomes = {DataFile.from_json(text).path for row in judged.rows for text in row["files"]}
    operator.catch_up(judged=judged)
    assert not outcomes & set(paths(stream, "push_outcomes"))
    assert (batches(stream), operator.position) == (4, 4)
    verdict = check(stream.lake, fleet.ledger)
    assert (verdict.lost, verdict.doubled, verdict.problems) == (0, 0, [])


def paths(stream: LocalStream, name: str) -> list[str]:
    actions = pa.table(DeltaTable(str(stream.lake / name)).get_add_actions())
    return [unquote(path) for path in actions["path"].to_pylist()]
