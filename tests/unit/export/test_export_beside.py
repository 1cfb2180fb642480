"""Fleet figures beside ingest's streams: in the job's registry while the block runs, and never in its way."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from kafka_telemetry_lake.jobs import export_beside as module
from kafka_telemetry_lake.jobs.export_beside import exporting
from kafka_telemetry_lake.jobs.locks import export_as, only
from kafka_telemetry_lake.pipelines.export.counting import Selection
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS
from tests.support.patience import PATIENCE_S, wait_until
from tests.unit.export.made_lake import SENT, make_lake, point, put

pytestmark = pytest.mark.lake

NAME = "telemetry_lake_software_records_sent_total"
LABELS = {"cluster_id": "c", "software_name": "apache-kafka-java", "software_version": "4.3.0"}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFRESH_S", 0.05)
    monkeypatch.setattr(module, "PAUSE_S", 0.05)
    monkeypatch.setattr(module, "END_PATIENCE_S", PATIENCE_S)
    # Points of days ago are stale.
    monkeypatch.setattr(module, "Selection", partial(Selection, stale_s=1e9))


def test_the_registry_has_the_figures_while_the_block_runs(tmp_path: Path) -> None:
    registry, lake = CollectorRegistry(), str(tmp_path / "lake")
    with exporting(lake, registry, wanted=True):
        make_lake(tmp_path, point("a", SENT, delta=10))
        wait_until(lambda: registry.get_sample_value(NAME, LABELS) == 10)
        put(lake, METRIC_POINTS, [point("a", SENT, delta=5, second=9)])
        wait_until(lambda: registry.get_sample_value(NAME, LABELS) == 15)
    assert registry.get_sample_value(NAME, LABELS) is None
    with exporting(lake, registry, wanted=False):
        assert list(registry.collect()) == []


def test_an_exporter_of_the_same_name_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    registry, lake = CollectorRegistry(), make_lake(tmp_path, point("a", SENT, delta=10))
    with contextlib.ExitStack() as stack:
        with only(export_as(module.NAME), lake, ""):
            stack.enter_context(exporting(lake, registry, wanted=True))
            wait_until(lambda: "another process exports this lake under the name prometheus" in caplog.text)
            assert list(registry.collect()) == []
        wait_until(lambda: registry.get_sample_value(NAME, LABELS) == 10)
