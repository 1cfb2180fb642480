"""What one client can't do to the others: names, texts and points are bounded, and quarantine says whose they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_telemetry_lake.pipelines.ingest import operator_task
from kafka_telemetry_lake.udfs.limits import Budget, Limits
from tests.support.ledger import Fleet
from tests.support.ledger_check import check
from tests.support.local_stream import LocalStream
from tests.support.otlp_builder import CLIENT, OTHER_CLIENT, Shard, counter, delta, gauge, histogram, push, values_of
from tests.support.sql_views import answer


def series(*names: str, seconds: float = 1) -> list[Any]:
    return [counter(5, 0, seconds, name=name) for name in names]


def reasons(rows: Any) -> list[Any]:
    return values_of(rows.quarantine.to_pylist(), "client_instance_id", "scope", "reason")


def test_series_beyond_the_limit_of_a_client_are_quarantined_and_the_known_ones_go_on() -> None:
    shard = Shard(limits=Limits(max_series_per_client=3))
    first = shard.run(
        push(1, *series("a", "b"), client_instance_id=CLIENT),
        push(2, *series("a", "b"), client_instance_id=OTHER_CLIENT),
    )
    assert reasons(first) == []
    made_up = [f"made.up.{n}" for n in range(50)]
    second = shard.run(
        push(3, *series("a", *made_up, "b", seconds=2), client_instance_id=CLIENT),
        push(4, *series("a", "b", "c", seconds=2), client_instance_id=OTHER_CLIENT),
    )
    found = values_of(second.metric_points.to_pylist(), "offset", "metric", "delta_status")
    assert found == [
        (3, "a", "converted"), (3, "made.up.0", "first"), (3, "b", "converted"),
        (4, "a", "converted"), (4, "b", "converted"), (4, "c", "first"),
    ]  # fmt: skip
    assert reasons(second) == [(CLIENT, "point", "TOO_MANY_SERIES")]
    assert values_of(second.quarantine.to_pylist(), "detail") == ["49 points of series beyond the limit of a client"]
    assert values_of(second.push_outcomes.to_pylist(), "points", "quarantined_points") == [(3, 49), (3, 0)]
    assert shard.state.numbers.num_rows == 6
    third = shard.run(push(5, *series(*made_up, seconds=3), client_instance_id=CLIENT))
    assert values_of(third.metric_points.to_pylist(), "metric", "delta") == [("made.up.0", 0)]
    assert shard.state.numbers.num_rows == 6


def test_what_the_state_does_not_keep_is_not_limited() -> None:
    shard = Shard(limits=Limits(max_series_per_client=1))
    rows = shard.run(
        push(1, *[delta(1, 0, 1, name=f"d{n}") for n in range(9)], *[gauge(1, 1, name=f"g{n}") for n in range(9)])
    )
    assert rows.metric_points.num_rows == 18
    assert reasons(rows) == []


def test_totals_sent_as_delta_and_buckets_count_too() -> None:
    totals = Shard(limits=Limits(max_series_per_client=2))
    rows = totals.run(push(1, *series("a")), push(2, *[delta(1, 9, 9, name=f"d{n}") for n in range(9)]))
    assert totals.state.numbers.num_rows == 2
    assert reasons(rows) == [(CLIENT, "point", "TOO_MANY_SERIES")]
    buckets = Shard(limits=Limits(max_series_per_client=8))
    rows = buckets.run(
        push(1, histogram((1, 0, 0), 0, 1, name="small"), histogram((1,) * 9, 0, 1, name="big", bounds=tuple(range(8))))
    )
    assert values_of(rows.metric_points.to_pylist(), "metric") == ["small"]
    rows = buckets.run(push(2, histogram((1,) * 9, 0, 2, name="small", bounds=tuple(range(8)))))  # grown beyond it
    assert rows.metric_points.num_rows == 0
    assert buckets.state.distributions.num_rows == 1


def test_one_batch_or_many_take_the_same_series() -> None:
    pushes = [push(n, *series(f"m{n % 7}", f"m{n % 5}", seconds=n)) for n in range(1, 20)]
    limits = Limits(max_series_per_client=4)
    whole, cut = Shard(limits=limits), Shard(limits=limits)
    together = whole.run(*pushes).metric_points.to_pylist()
    assert values_of(together, "offset", "metric", "delta_int") == [
        row
        for each in pushes
        for row in values_of(cut.run(each).metric_points.to_pylist(), "offset", "metric", "delta_int")
    ]


def test_long_texts_are_quarantined_and_not_stored() -> None:
    long = "x" * 5000
    shard = Shard(limits=Limits(max_text_bytes=4096))
    rows = shard.run(
        push(1, counter(1, 0, 1, name=long), counter(1, 0, 1, attributes={"k": long}), counter(1, 0, 1, name="good")),
        push(2, counter(1, 0, 2, name="good"), resource={"team": long}),
        push(3, counter(4, 0, 3, name="good"), resource={"team": "short"}),
    )
    assert values_of(rows.metric_points.to_pylist(), "offset", "metric", "delta") == [(1, "good", 1), (3, "good", 3)]
    assert reasons(rows) == [
        (CLIENT, "push", "TELEMETRY_TOO_LARGE"), (CLIENT, "point", "TEXT_TOO_LONG"), (CLIENT, "point", "TEXT_TOO_LONG")
    ]  # fmt: skip
    assert values_of(rows.quarantine.to_pylist(), "detail")[0] == "labels of 5004 bytes, more than 4096"
    assert len(rows.quarantine["payload"][0].as_py()) > 5000  # kept for replay
    outcomes = values_of(rows.push_outcomes.to_pylist(), "outcome", "points", "labels")
    assert outcomes == [("points", 1, None), ("quarantined", 0, None), ("points", 1, [("team", "short")])]
    assert long not in str(rows.metric_points["metric"].combine_chunks().dictionary)
    assert max(len(name) for name in values_of(rows.quarantine.to_pylist(), "metric") if name) == 1024


def test_points_of_a_slice_are_worked_on_in_bounded_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many points the payloads of a slice hold: a part has as many as the budget, or one payload."""
    monkeypatch.setattr("kafka_telemetry_lake.udfs.limits.BUDGET", Budget(points=100))
    seen: list[int] = []
    read = "kafka_telemetry_lake.udfs.conversion.shard.read_points"
    right = __import__("kafka_telemetry_lake.udfs.conversion.shard", fromlist=["read_points"]).read_points

    def counted(*arguments: Any) -> Any:
        points = right(*arguments)
        seen.append(len(points.push))
        return points

    monkeypatch.setattr(read, counted)
    pushes = [push(n, *[counter(n, 0, n, name=f"m{k}") for k in range(40)]) for n in range(1, 9)]
    rows = Shard().run(*pushes, push(9, *[counter(9, 0, 9, name=f"m{k}") for k in range(150)]))
    assert seen == [80, 80, 80, 80, 150]
    assert rows.metric_points.num_rows == 8 * 40 + 150
    statuses = values_of(rows.metric_points.to_pylist(), "offset", "delta_status")
    assert all((status == "first") == (offset == 1 or n >= 320 + 40) for n, (offset, status) in enumerate(statuses))


def test_offenders_are_ranked() -> None:
    rows = [
        {"client_instance_id": "bad", "client_id": "x", "scope": "push", "reason": "INVALID_RECORD", "payload": b"12"}
    ] * 3
    rows += [{"client_instance_id": "bad", "client_id": "x", "scope": "point", "reason": "NO_TIME"}]
    rows += [{"client_instance_id": "worse", "scope": "point", "reason": "NO_TIME"}] * 5
    found = answer("quarantine_offenders", {"quarantine": rows})
    assert values_of(
        found, "offender_rank", "client_instance_id", "client_id", "reason", "rejected", "payload_bytes"
    ) == [
        (1, "worse", None, "NO_TIME", 5, 0),
        (2, "bad", "x", "NO_TIME", 1, 0),
        (2, "bad", "x", "INVALID_RECORD", 3, 6),
    ]


@pytest.mark.slow
def test_rollups_of_made_up_names_are_written_before_they_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_telemetry_lake.udfs.limits.BUDGET", Budget(points=10))
    monkeypatch.setattr("kafka_telemetry_lake.pipelines.ingest.operator_task.MOST_GROUPS", 2)
    sizes: list[int] = []
    write = operator_task.TaskResults._write_rollups

    def counted(results: operator_task.TaskResults) -> None:
        sizes.append(results.minutes.size)
        write(results)

    monkeypatch.setattr(operator_task.TaskResults, "_write_rollups", counted)
    fleet, stream = Fleet(), LocalStream(tmp_path)
    stream.batch(fleet.round(pushes=6))
    assert check(stream.lake, fleet.ledger).problems == []  # rows of one key add up
    assert max(sizes) == 3
    assert len(sizes) > 10


def test_whatever_a_part_holds_its_rows_have_the_same_types() -> None:
    """Parts go to one file: a type that depends on the pushes would end the job."""
    age = "org.apache.kafka.producer.metadata.age"
    of_each = [
        Shard().run(each)
        for each in (
            push(1, gauge(1.5, 1, name=age), counter(3, 0, 1), resource={"group_id": "a"}),
            push(1, histogram((1, 0, 0), 0, 1)),
            push(1),
            push(1, payload=b"\xff\xff garbage"),
            push(1, counter(3, 0, 1, name="x" * 20_000)),
        )
    ]
    for name in ("metric_points", "quarantine", "push_outcomes", "client_events"):
        schemas = [getattr(rows, name).schema for rows in of_each]
        for column in schemas[0].names:
            kinds = {str(schema.field(column).type) for schema in schemas}
            assert len(kinds) == 1, (name, column, kinds)
