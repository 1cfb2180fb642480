"""The example notebook runs cell by cell, and its answers are those of the captured pushes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.captured_lake import captured_lake
from tests.support.landing_records import captured_index
from tests.support.quick_session import quick_session

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "lake.ipynb"


@pytest.mark.slow
def test_each_cell_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELEMETRY_LAKE", str(captured_lake(tmp_path / "lake")))
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"spark": quick_session(spark)}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), "it is stored without results"
            exec("".join(cell["source"]), names)  # the project's own file
    points = sum(truth["points"] for truth in captured_index())
    assert int(names["raw"]["points"].sum()) == points
    counted = dict(names["counted"].itertuples(index=False))
    assert sum(counted.values()) == points
    assert dict(names["by_duckdb"].itertuples(index=False)) == counted
    assert {status: count for (status,), count in names["by_pandas"].items()} == counted
