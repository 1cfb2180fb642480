"""Fleet figures beside ingest's streams: in the job's registry while the block runs, and never in its way."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from kafka_telemetry_lake.jobs import companions as module
from kafka_telemetry_lake.jobs.companions import exporting
from kafka_telemetry_lake.jobs.support.supervisor import supervised
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
    # Points of days ago are stale.
    monkeypatch.setattr(module, "Selection", partial(Selection, stale_s=1e9))


def test_the_registry_has_the_figures_while_the_block_runs(tmp_path: Path) -> None:
    registry, lake = CollectorRegistry(), make_lake(tmp_path, point("a", SENT, delta=10))
    with supervised(lake, [replace(exporting(lake, registry), patience_s=PATIENCE_S)]):
        wait_until(lambda: registry.get_sample_value(NAME, LABELS) == 10)
        put(lake, METRIC_POINTS, [point("a", SENT, delta=5, second=9)])
        wait_until(lambda: registry.get_sample_value(NAME, LABELS) == 15)
    assert registry.get_sample_value(NAME, LABELS) is None
