"""Which failure of a query is that of a partition that its topic got."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_telemetry_lake.pipelines.ingest.restarted_query import RestartedQuery, is_of_new_partition

NEW_PARTITION = "key not found: client-telemetry-4\n=== Streaming Query ===\nIdentifier: pushes"


@pytest.mark.parametrize(
    ("error", "is_it"),
    [
        (NEW_PARTITION, True),
        (NEW_PARTITION.replace("client-telemetry-4", "client-telemetry-status-4"), False),
        (NEW_PARTITION.replace("client-telemetry-4", "client-telemetry"), False),
        (NEW_PARTITION.replace("key", "the key"), False),
        ("Job aborted.\nkey not found: client-telemetry-4", False),
    ],
)
def test_only_a_missing_partition_of_the_topic(error: str, is_it: bool) -> None:
    assert is_of_new_partition(error, "client-telemetry") is is_it


def test_a_query_is_started_again_after_that_failure_only_and_not_when_it_was_stopped() -> None:
    def query(number: int, error: str | None) -> Any:
        failure = None if error is None else RuntimeError(error)
        return SimpleNamespace(
            name="pushes", number=number, isActive=error is None, status={"number": number}, exception=lambda: failure,
            stop=lambda: None,
        )  # fmt: skip

    queries = [query(0, NEW_PARTITION), query(1, NEW_PARTITION), query(2, None), query(3, None)]
    restarted = RestartedQuery(lambda: cast(Any, queries.pop(0)), "client-telemetry")
    restarted.isActive  # noqa: B018  # looks, and starts the second
    assert restarted.exception() is None
    assert restarted.isActive
    assert restarted.status == {"number": 2}
    queries = [query(4, "No space left on device"), query(5, None)]
    broken = RestartedQuery(lambda: cast(Any, queries.pop(0)), "client-telemetry")
    assert str(broken.exception()) == "No space left on device"
    assert not broken.isActive
    queries = [query(6, NEW_PARTITION), query(7, None)]
    stopped = RestartedQuery(lambda: cast(Any, queries.pop(0)), "client-telemetry")
    stopped.stop()
    assert not stopped.isActive
