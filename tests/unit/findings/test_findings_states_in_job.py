"""Findings evaluated beside ingest's streams: every so often, and at the end of a single run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_telemetry_lake.jobs.companions import evaluating
from kafka_telemetry_lake.jobs.support.locks import FINDINGS, UPKEEP, LakeBusyError, only
from kafka_telemetry_lake.jobs.support.supervisor import supervised
from kafka_telemetry_lake.pipelines.findings.model import Override, Overrides
from tests.support.few_rules import judged_by
from tests.support.patience import PATIENCE_S, wait_until
from tests.unit.findings.test_findings_states_lake import SmallLake

pytestmark = pytest.mark.lake

SOON = 0.001  # minutes


@pytest.fixture(autouse=True, scope="module")
def _few_rules() -> Iterator[None]:
    with judged_by("unreadable_telemetry", "failed_records"):
        yield


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    return SmallLake(tmp_path / "lake").land(0, ["bills"], ["orders"])


def in_background(lake: SmallLake, overrides: Overrides = (), *, once: bool = False) -> AbstractContextManager[None]:
    row = evaluating(lake.name, SOON, overrides, after=once)
    return supervised(lake.name, [replace(row, patience_s=PATIENCE_S)])


def test_with_other_bounds(lake: SmallLake) -> None:
    with in_background(lake, (Override("o*", "unreadable_telemetry", off=True),), once=True):
        pass
    assert lake.open() == {}


def test_at_the_end_of_a_single_run_in_spite_of_maintain_and_quality_but_not_of_another_evaluation_or_a_replay(
    lake: SmallLake, caplog: pytest.LogCaptureFixture
) -> None:
    """As the command (`test_findings_states_lake`): one lock, which a replay and an erasure hold too."""
    with only(FINDINGS, lake.name, ""), in_background(lake, once=True):
        pass
    assert caplog.messages == ["findings: another process has the role findings of this lake; left to it"]
    assert not (lake.path / "finding_changes").exists()
    with only(UPKEEP, lake.name, ""), in_background(lake, once=True):
        time.sleep(0.2)
        assert not (lake.path / "finding_changes").exists(), "a single run evaluates at its end"
    assert lake.open() == {"orders": "open"}


def test_every_so_often_and_in_between_another_process_may_evaluate(lake: SmallLake) -> None:
    with in_background(lake):
        wait_until(lake.open)
        wait_until(lambda: evaluates(lake))


def evaluates(lake: SmallLake) -> bool:
    try:
        with only(FINDINGS, lake.name, ""):
            return True
    except LakeBusyError:
        return False
