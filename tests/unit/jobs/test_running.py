"""The query that is the job: waited for, stopped, and started again after one failure only, that of a new partition."""

from __future__ import annotations

import threading
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_telemetry_lake.jobs.support.running import RunningQuery, StreamFailedError
from kafka_telemetry_lake.pipelines.ingest.sources import has_new_partition

TOPICS = ("client-telemetry", "client-telemetry-status")
NEW_PARTITION = "key not found: client-telemetry-4\n=== Streaming Query ===\nIdentifier: pushes"


@pytest.mark.parametrize(
    ("error", "has"),
    [
        (NEW_PARTITION, True),
        (NEW_PARTITION.replace("client-telemetry-4", "client-telemetry-status-14"), True),
        (NEW_PARTITION.replace("client-telemetry-4", "client-telemetry-other-4"), False),
        (NEW_PARTITION.replace("client-telemetry-4", "client-telemetry"), False),
        (NEW_PARTITION.replace("key", "the key"), False),
        ("Job aborted.\nkey not found: client-telemetry-4", False),
    ],
)
def test_only_a_missing_partition_of_a_topic_of_the_query(error: str, has: bool) -> None:
    assert has_new_partition(TOPICS, error) is has


def query(number: int, error: str | None, stopped: list[int], *, ends: bool = False) -> Any:
    failure = None if error is None else RuntimeError(error)
    return SimpleNamespace(
        name="pushes", isActive=error is None and not ends, status={"number": number, "isTriggerActive": False},
        exception=lambda: failure, stop=lambda: stopped.append(number),
    )  # fmt: skip


def running(queries: list[Any]) -> RunningQuery:
    return RunningQuery(lambda: cast(Any, queries.pop(0)), partial(has_new_partition, TOPICS))


def test_a_query_is_started_again_after_that_failure_only() -> None:
    stopped: list[int] = []
    queries = [query(n, NEW_PARTITION, stopped) for n in (0, 1)] + [query(2, None, stopped, ends=True)]
    again = running(queries)
    assert again.status["number"] == 0
    again.work_off(threading.Event())
    assert again.status["number"] == 2
    assert stopped == [2]
    queries = [query(4, "No space left on device", stopped), query(5, None, stopped)]
    with pytest.raises(StreamFailedError, match=r"^stream pushes failed: No space left on device$"):
        running(queries).work_off(threading.Event())
    assert stopped == [2, 4]


def test_a_query_is_stopped_when_the_job_is_to_end_and_not_started_again() -> None:
    stop, stopped = threading.Event(), list[int]()
    ends = threading.Timer(0.05, stop.set)
    ends.start()
    running([query(0, None, stopped)]).work_off(stop)
    assert stop.is_set()
    queries = [query(1, NEW_PARTITION, stopped), query(2, None, stopped)]
    running(queries).work_off(stop)
    assert (stopped, len(queries)) == ([0, 1], 1)
