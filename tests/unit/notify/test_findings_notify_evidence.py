"""Alerts that are sent again have the evidence of the latest evaluation, also if no change was recorded since."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kafka_telemetry_lake.pipelines.notify.delivery import deliveries
from tests.support.few_rules import judged_by
from tests.support.lake_tables import table
from tests.unit.findings.test_findings_states_lake import START, SmallLake
from tests.unit.notify.changed_findings import http_sink, notify_file

pytestmark = pytest.mark.lake

NOTE = Path("finding_changes") / "_findings-e000000000000.json"


@pytest.fixture(autouse=True, scope="module")
def _few_rules() -> Iterator[None]:
    with judged_by("unreadable_telemetry", "failed_records"):
        yield


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evaluated") / "lake"
    return SmallLake(path).land(0, ["bills"], ["orders"]).evaluate().path


@pytest.fixture
def lake(evaluated: Path, tmp_path: Path) -> SmallLake:
    return SmallLake(shutil.copytree(evaluated, tmp_path / "lake"))


def resent(lake: SmallLake) -> dict[str, Any]:
    """The only alert, as a new process sends it a day later."""
    with http_sink() as sink:
        file = notify_file(sink.url.removesuffix("/hook"), type="alertmanager")
        (one,) = deliveries(lake.name, file, lambda: START + timedelta(days=1))
        one.deliver(threading.Event())
        ((alert,),) = (request.body for request in sink.requests)
    found: dict[str, Any] = alert
    return found


def test_an_open_alert_has_the_newest_evidence_and_its_first_start(lake: SmallLake) -> None:
    before = resent(lake)
    lake.land(1, ["bills", "orders"], ["orders", "orders", "orders"]).evaluate()
    after = resent(lake)
    assert [row["change"] for row in table(lake.path, "finding_changes").to_pylist()] == ["opened"]
    assert before["annotations"]["evidence"] == "1 of 1 pushes could not be read, in the hour from 2026-11-21 12:00 UTC"
    assert after["annotations"]["evidence"] == (
        "3 of 4 client instances (75.0 %), at worst i2: 1 of 1 pushes could not be read, in the hour from "
        "2026-11-21 13:00 UTC"
    )
    assert before["annotations"]["window_start"] == "2026-11-21T12:00:00.000000Z"
    assert after["annotations"]["window_start"] == "2026-11-21T13:00:00.000000Z"
    assert (before["annotations"]["instances"], after["annotations"]["instances"]) == ("1", "4")
    assert after["annotations"].keys() == before["annotations"].keys()
    assert (after["labels"], after["startsAt"]) == (before["labels"], before["startsAt"])
    assert after["startsAt"] == "2026-11-21T12:00:00.000000Z"


@pytest.mark.parametrize(
    ("note", "said"),
    [
        (None, None),
        (b"{", "_findings-e000000000000.json is damaged (it isn't JSON)"),
        (b"\xff", "is damaged (it isn't JSON)"),
        (b"[]", "is damaged (it isn't a JSON object)"),
        (b'{"format": 1, "clusters": [{}]}', "is damaged (its checksum is missing)"),
        (b'{"format": 2}', "_findings-e000000000000.json has format 2, and this build reads format 1 only"),
    ],
)
def test_an_alert_is_sent_whatever_has_become_of_the_evaluation(
    lake: SmallLake, caplog: pytest.LogCaptureFixture, note: bytes | None, said: str | None
) -> None:
    before = resent(lake)
    (lake.path / NOTE).unlink()
    if note is not None:
        (lake.path / NOTE).write_bytes(note)
    assert resent(lake) == before
    warned = [
        line for line in caplog.messages if line.startswith("notify: one: alerts have the evidence of their last")
    ]
    assert len(warned) == (said is not None)
    assert said is None or said in warned[0]


def test_the_end_of_an_alert_says_why(lake: SmallLake) -> None:
    resent(lake)
    for hour in range(1, 4):
        lake.land(hour, ["bills", "orders"])
    lake.evaluate()
    assert json.loads((lake.path / NOTE).read_text())["clusters"][0]["states"] == {}
    ended = resent(lake)
    assert ended["annotations"]["change"] == "resolved"
    assert ended["annotations"]["evidence"].startswith("seen in 2 hours without this finding; before: 1 of 1 pushes")
