"""Markers of `sql/`: what takes their place, and that every view's text is whole, to be read or run by itself."""

from __future__ import annotations

import pytest

from kafka_telemetry_lake.pipelines.query.views import views
from kafka_telemetry_lake.pipelines.sql_text import MARKER, filled


@pytest.mark.parametrize(
    ("sql", "whole"),
    [
        ("a > :low AND b IN (:names)", "a > 1 AND b IN ('x', 'y')"),
        ("a > :lower", "a > :lower"),
        ("date_format(a, 'HH:low')", "date_format(a, 'HH:low')"),
        ("a::low", "a::low"),
        ("a RLIKE '^(?:low)$'", "a RLIKE '^(?:low)$'"),
        (":low:low", "1:low"),
    ],
)
def test_a_value_takes_the_place_of_its_marker_alone(sql: str, whole: str) -> None:
    assert filled(sql, {"low": "1", "names": "'x', 'y'"}) == whole


def test_no_marker_is_left_in_a_view() -> None:
    assert {name: left for name, view in views().items() if (left := MARKER.findall(view.select))} == {}
