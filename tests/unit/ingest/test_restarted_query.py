"""Which failure of a query is that of a partition that its topic got."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_telemetry_lake.pipelines.ingest.restarted_query import RestartedQuery, topic_with_new_partition

TOPICS = ("client-telemetry", "client-telemetry-status")
NEW_PARTITION = "key not found: client-telemetry-4\n=== Streaming Query ===\nIdentifier: pushes"


@pytest.mark.parametrize(
    ("error", "topic"),
    [
        (NEW_PARTITION, "client-telemetry"),
        (NEW_PARTITION.replace("client-telemetry-4", "client-telemetry-status-14"), "client-telemetry-status"),
        (NEW_PARTITION.replace("client-telemetry-4", "client-telemetry-other-4"), None),
        (NEW_PARTITION.replace("client-telemetry-4", "client-telemetry"), None),
        (NEW_PARTITION.replace("key", "the key"), None),
        ("Job aborted.\nkey not found: client-telemetry-4", None),
    ],
)
def test_only_a_missing_partition_of_a_topic_of_the_query(error: str, topic: str | None) -> None:
    assert topic_with_new_partition(error, TOPICS) == topic


def test_a_query_is_started_again_after_that_failure_only_and_not_when_it_was_stopped() -> None:
    def query(number: int, error: str | None) -> Any:
        failure = None if error is None else RuntimeError(error)
        return SimpleNamespace(
            name="pushes", number=number, isActive=error is None, status={"number": number}, exception=lambda: failure,
            stop=lambda: None,
        )  # fmt: skip

    queries = [query(0, NEW_PARTITION), query(1, NEW_PARTITION), query(2, None), query(3, None)]
    restarted = RestartedQuery(lambda: cast(Any, queries.pop(0)), TOPICS)
    restarted.isActive  # noqa: B018  # looks, and starts the second
    assert restarted.exception() is None
    assert restarted.isActive
    assert restarted.status == {"number": 2}
    queries = [query(4, "No space left on device"), query(5, None)]
    broken = RestartedQuery(lambda: cast(Any, queries.pop(0)), TOPICS)
    assert str(broken.exception()) == "No space left on device"
    assert not broken.isActive
    queries = [query(6, NEW_PARTITION), query(7, None)]
    stopped = RestartedQuery(lambda: cast(Any, queries.pop(0)), TOPICS)
    stopped.stop()
    assert not stopped.isActive


def test_a_query_that_fails_between_two_looks_is_active() -> None:
    """`work_off` would end with the last query."""
    looks = [True, False, False]

    class Failing:
        name = "pushes"
        isActive = property(lambda _: looks.pop(0))  # noqa: N815  # Spark's name

        def exception(self) -> RuntimeError:
            return RuntimeError(NEW_PARTITION)

    queries: list[Any] = [Failing(), SimpleNamespace(isActive=True)]
    restarted = RestartedQuery(lambda: cast(Any, queries.pop(0)), TOPICS)
    assert restarted.isActive
    assert not queries


def test_two_threads_that_see_the_failure_start_one_query() -> None:
    """The lifecycle's thread asks for the status while the main thread waits for the end."""
    failed = RuntimeError(NEW_PARTITION)
    queries = [SimpleNamespace(name="pushes", isActive=False, status={"number": 0}, exception=lambda: failed)]
    queries += [SimpleNamespace(isActive=True, status={"number": number}) for number in (1, 2)]
    both = threading.Barrier(2)

    def start() -> Any:
        time.sleep(0.05 * (len(queries) < 3))  # the other thread asks meanwhile
        return queries.pop(0)

    restarted = RestartedQuery(start, TOPICS)

    def ask(_: int) -> int:
        both.wait()
        return int(restarted.status["number"])

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(ask, range(2))) == [1, 1]
    assert len(queries) == 1
