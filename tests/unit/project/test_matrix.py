"""The matrix of Spark lines and Pythons (docs/versions.md) names tests that exist, and what it is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_telemetry_lake.pipelines.runtime.jars import SPARK_LINES
from tools.matrix import ALONE, PYTHONS, TESTS, Environment, asked_for

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("test", [*TESTS, *ALONE])
def test_each_test_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name or 'test_'}" in (ROOT / file).read_text(encoding="utf-8")


def test_environments_are_chosen_by_line_or_name() -> None:
    assert len(asked_for([])) == len(SPARK_LINES) * len(PYTHONS)
    assert asked_for(["4.2-py3.13", "4.0"]) == [
        Environment("4.0", "3.11"), Environment("4.0", "3.12"), Environment("4.0", "3.13"), Environment("4.2", "3.13"),
    ]  # fmt: skip
    with pytest.raises(SystemExit, match=r"no environment 4\.3: there are 4\.0, 4\.0-py3\.11, "):
        asked_for(["4.3"])
