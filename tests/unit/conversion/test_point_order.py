"""Rows of many points: pushes of the same metrics are together, point by point, and no row is another one."""

from __future__ import annotations

import numpy as np
import pytest

from kafka_telemetry_lake.udfs.conversion import point_rows
from kafka_telemetry_lake.udfs.conversion.point_rows import alike_together
from tests.support.otlp_builder import Shard, counter, gauge, push, values_of

NAMES = ("a", "b", "c")


def order_of(pushes: list[list[int]]) -> list[int] | None:
    """The order of points, by the metrics of each push."""
    of_push = np.repeat(np.arange(len(pushes)), [len(metrics) for metrics in pushes])
    metric = np.array([code for metrics in pushes for code in metrics], np.int32)
    metric.setflags(write=False)
    found = alike_together(of_push, metric)
    return None if found is None else found.tolist()


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(point_rows, "FEW_POINTS", 1)


@pytest.mark.usefixtures("many")
def test_pushes_of_the_same_metrics_are_interleaved() -> None:
    assert order_of([[5, 6], [7], [5, 6], [6, 5], [7], [5, 6]]) == [0, 3, 8, 1, 4, 9, 2, 7, 5, 6]
    assert order_of([[3, 3, 4]]) == [0, 1, 2]


def test_few_points_stay_as_they_are() -> None:
    assert order_of([[1]] * (point_rows.FEW_POINTS - 1)) is None
    assert order_of([[1]] * point_rows.FEW_POINTS) == list(range(point_rows.FEW_POINTS))


@pytest.mark.usefixtures("many")
def test_forged_hashes_leave_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(point_rows, "number", lambda keys: (np.zeros(len(keys), np.int64), 1))
    assert order_of([[1], [2, 3]]) is None
    assert order_of([[1, 2], [2, 3]]) == [0, 2, 1, 3]  # as if alike: each row is there once


def test_rows_are_the_same_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points without a row of their own, here those without a time, are left out of either order."""
    pushes = []
    for number in range(1, 6):
        times = {name: None if number == 2 and name == "b" else number for name in NAMES}
        counters = [counter(number, 0, time, name=name) for name, time in times.items()]
        pushes.append(push(number, *counters, gauge(number, number), client_id=f"client-{number}"))
    as_sent = Shard().points(*pushes)
    monkeypatch.setattr(point_rows, "FEW_POINTS", 1)
    together = Shard().points(*pushes)
    assert values_of(as_sent, "offset")[:4] == [1, 1, 1, 1]
    assert values_of(together, "metric", "offset")[:5] == [("a", number) for number in range(1, 6)]
    assert values_of(together, "metric", "offset")[5:9] == [("b", number) for number in (1, 3, 4, 5)]
    assert len(as_sent) == 19
    assert sorted(map(repr, together)) == sorted(map(repr, as_sent))
