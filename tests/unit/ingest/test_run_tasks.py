"""What the job does when Spark says that a task's process died; and what it says when nothing helps."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkRuntimeError

from kafka_telemetry_lake.pipelines.ingest.checkpoint import begun_batch
from kafka_telemetry_lake.pipelines.ingest.operator_task import ShardTask, log_set_aside, run_tasks, tasks_for
from kafka_telemetry_lake.pipelines.ingest.poison_pushes import PushesFailedError
from kafka_telemetry_lake.pipelines.ingest.store_task import WORKER_BYTES, workers_for
from kafka_telemetry_lake.pipelines.runtime.causes import cause
from tests.support.landing_records import GOOD_ID, record
from tests.support.local_stream import SHARDS, LocalStream

DIED = "Job aborted due to stage failure: Task 0 failed 1 times: SparkException: Python worker exited unexpectedly"


class Spark:
    """A session whose tasks die as long as `dies` says so."""

    def __init__(self, dies: Any, cores: int = SHARDS) -> None:
        self.dies, self.tasks = dies, list[ShardTask]()
        self.names = list[str]()  # of jobs, before and after each
        self.sparkContext = SimpleNamespace(
            defaultParallelism=cores, master=f"local[{cores}]", getLocalProperty=lambda _: "as before",
            setLocalProperty=lambda _, name: self.names.append(name),
        )  # fmt: skip
        self.slices = list[int]()

    def range(self, first: int, last: int, step: int, slices: int) -> Spark:
        assert (first, last, step) == (0, SHARDS, 1)
        self.slices.append(slices)
        return self

    def mapInArrow(self, task: ShardTask, _: str) -> Spark:  # noqa: N802  # Spark's name
        self.tasks.append(task)
        return self

    def collect(self) -> list[dict[str, Any]]:
        if message := self.dies(self.tasks[-1]):
            raise PySparkRuntimeError(message)
        return [{"set_aside": ["client c, t/0/1: bad"]}]


@pytest.fixture
def task(tmp_path: Path) -> ShardTask:
    stream = LocalStream(tmp_path)
    stream.land([record(offset, b"x") for offset in range(5)])
    return ShardTask(str(stream.lake), 0, tuple(stream.paths()), SHARDS, stream.state.uri)


def run(spark: Spark, task: ShardTask) -> Any:
    return run_tasks(spark, task)  # type: ignore[arg-type]  # a stand-in


def test_a_batch_has_no_more_tasks_than_it_is_worth_or_there_are_cores_or_shards(task: ShardTask) -> None:
    for cores, slices in ((1, 1), (SHARDS, SHARDS), (10, SHARDS)):
        spark = Spark(lambda task: None if task.guarded else DIED, cores)
        for size in (0, WORKER_BYTES - 1, WORKER_BYTES, 100 * WORKER_BYTES):
            run_tasks(spark, task, workers_for(size))  # type: ignore[arg-type]  # a stand-in
        run(spark, task)
        assert spark.slices == [1, 1, 1, 1, *([slices] * 6)]


def test_a_batch_is_worth_a_worker_for_each_megabyte() -> None:
    assert [workers_for(size) for size in (0, (1 << 20) - 1, 1 << 20, 5 << 20)] == [1, 1, 2, 6]


def test_fewer_tasks_than_cores_are_a_divisor_of_the_shards() -> None:
    assert [tasks_for(8, 8, workers) for workers in range(1, 10)] == [1, 2, 2, 4, 4, 4, 4, 8, 8]
    assert [tasks_for(6, 6, workers) for workers in range(1, 8)] == [1, 2, 3, 3, 3, 6, 6]
    assert [tasks_for(7, 7, workers) for workers in range(1, 8)] == [1, 2, 3, 4, 5, 6, 7]
    assert [tasks_for(8, cores, 100) for cores in (1, 3, 100)] == [1, 3, 8]  # no core waits while there is work
    assert [tasks_for(8, cores) for cores in (1, 3, 100)] == [1, 3, 8]


def test_tasks_whose_process_died_run_again_guarded(task: ShardTask, caplog: pytest.LogCaptureFixture) -> None:
    spark = Spark(lambda task: None if task.guarded else DIED)
    rows = run(spark, task)
    assert [each.guarded for each in spark.tasks] == [False, True]
    log_set_aside("points: batch 7", rows)
    pushes = f"client {GOOD_ID}, client-telemetry/0/0 and 4 more"
    assert caplog.messages == [
        f"points: a task's process died, isolating the push that caused it: {pushes}",
        "points: batch 7: set aside in quarantine (PROCESSING_FAILED): client c, t/0/1: bad",
    ]


def test_other_failures_are_not_tried_again(task: ShardTask) -> None:
    spark = Spark(lambda _: "Job 3 cancelled part of cancelled job group")
    with pytest.raises(PySparkRuntimeError, match="cancelled"):
        run(spark, task)
    assert len(spark.tasks) == 1


def test_a_batch_that_dies_guarded_too_is_named(task: ShardTask) -> None:
    spark = Spark(lambda _: DIED)
    with pytest.raises(PushesFailedError) as failed:
        run(spark, task)
    assert str(failed.value) == (
        f"client {GOOD_ID}, client-telemetry/0/0 and 4 more: a task's process died although its pushes were tried first"
    )


def test_the_job_ends_with_client_offset_and_cause_in_one_line() -> None:
    said = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: Task 0 in \
stage 4.0 failed 3 times, most recent failure: org.apache.spark.api.python.PythonException: Traceback:
  File "pipelines/ingest/operator_task.py", line 117, in _attempt
ValueError: a bug

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "worker.py", line 1
kafka_telemetry_lake.pipelines.ingest.poison_pushes.PushesFailedError: client c, t/0/5 and 6 more: ValueError: a bug

Driver stacktrace: SQLSTATE: XXKST
=== Streaming Query ==="""
    name = "kafka_telemetry_lake.pipelines.ingest.poison_pushes.PushesFailedError"
    assert cause(said) == f"{name}: client c, t/0/5 and 6 more: ValueError: a bug"


def test_a_batch_that_an_earlier_run_began_is_known(tmp_path: Path) -> None:
    assert begun_batch(str(tmp_path / "points")) is None
    for folder, batches in (("offsets", 3), ("commits", 2)):
        (tmp_path / "points" / folder).mkdir(parents=True)
        for batch in range(batches):
            (tmp_path / "points" / folder / str(batch)).touch()
    assert begun_batch(str(tmp_path / "points")) == 2
    (tmp_path / "points" / "commits" / "2").touch()
    assert begun_batch(str(tmp_path / "points")) is None


def test_the_causes_that_delta_rs_has_on_lines_of_their_own_are_in_the_line() -> None:
    mark = "\n          \x1b[31m↳\x1b[0m "
    said = f"OSError: Kernel error -> Generic S3 error{mark}Error performing list request{mark}403 Forbidden\n"
    assert cause(said) == "OSError: Kernel error -> Generic S3 error: Error performing list request: 403 Forbidden"
