"""Clients' quota reports follow the points' commits: each once, also after a crash, and after the log has forgotten."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake import follower as lake_follower
from kafka_telemetry_lake.pipelines.lake import stored_files
from kafka_telemetry_lake.pipelines.quotas import client_reports
from kafka_telemetry_lake.pipelines.quotas.client_reports import ReportFollower
from kafka_telemetry_lake.pipelines.quotas.configured import ConfiguredQuotas, configured_quotas
from kafka_telemetry_lake.pipelines.upkeep.maintenance import Maintenance, MaintenanceSettings
from tests.support.config_polls import record_quotas
from tests.support.expired_logs import expire_logs
from tests.support.lake_tables import table
from tests.support.local_stream import LocalStream
from tests.unit.replay.test_replay_followers import LANDED_AT, record

pytestmark = pytest.mark.lake


@pytest.fixture
def stream(tmp_path: Path) -> LocalStream:
    stream = LocalStream(tmp_path)
    limits = configured_quotas([({"user": "alice"}, {"producer_byte_rate": 100.0})])
    nowhere: Any = None  # files have no cluster
    record_quotas(str(stream.lake), LANDED_AT - timedelta(hours=1), ConfiguredQuotas(nowhere, tuple(limits)))
    return stream


def follower(stream: LocalStream) -> ReportFollower:
    return ReportFollower(str(stream.lake))


def batch(stream: LocalStream, number: int) -> None:
    """Two pushes, whose reports share a window with those of the batch before."""
    first = 10 * number
    stream.batch([record(2 * number, first + 10, 100.0 + number, "a"), record(2 * number + 1, first + 15, 7.0, "a")])


def rows(stream: LocalStream) -> tuple[list[Any], list[Any]]:
    reports, usage = (table(stream.lake, name).to_pylist() for name in ("quota_reports", "quota_usage"))
    return sorted(reports, key=repr), sorted(usage, key=repr)


def of_one_pass(stream: LocalStream) -> tuple[list[Any], list[Any]]:
    """What a follower gives that reads all points for the first time."""
    for name in ("quota_reports", "quota_usage"):
        shutil.rmtree(stream.lake / name)
    follower(stream).catch_up()
    return rows(stream)


def test_each_report_once_step_by_step_and_over_restarts(stream: LocalStream, monkeypatch: pytest.MonkeyPatch) -> None:
    one = follower(stream)
    one.catch_up()
    assert rows(stream) == ([], [])
    batch(stream, 0)
    assert one.step()
    assert not one.step()
    assert len(rows(stream)[0]) == 2
    batch(stream, 1)
    one.catch_up()
    batch(stream, 2)
    follower(stream).catch_up()
    version = DeltaTable(str(stream.lake / "quota_reports")).version()
    follower(stream).catch_up()
    assert DeltaTable(str(stream.lake / "quota_reports")).version() == version
    monkeypatch.setattr(client_reports, "STEP_BYTES", 1)  # a commit a step
    batch(stream, 3)
    batch(stream, 4)
    steps = follower(stream)
    assert [steps.step() for _ in range(3)] == [True, True, False]
    found = rows(stream)
    assert (len(found[0]), sorted(row["bytes"] for row in found[0] if row["bytes"] != 7.0)) == (
        10, [100.0, 101.0, 102.0, 103.0, 104.0],
    )  # fmt: skip
    assert found == of_one_pass(stream)


def test_only_files_that_were_written_since_are_read_when_the_log_has_forgotten(
    stream: LocalStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch(stream, 0)
    follower(stream).catch_up()
    (early,) = DeltaTable(str(stream.lake / "metric_points")).file_uris()
    monkeypatch.setattr(stored_files, "CLOCKS_DIFFER", timedelta())
    batch(stream, 1)
    expire_logs(stream.lake)
    Path(early).unlink()  # reading it would be an error
    follower(stream).catch_up()
    assert len(rows(stream)[0]) == 4


def test_days_that_retention_dropped_unread_are_a_row(stream: LocalStream, monkeypatch: pytest.MonkeyPatch) -> None:
    batch(stream, 0)
    with monkeypatch.context() as then:
        then.setattr(lake_follower, "utc_now", lambda: LANDED_AT)
        follower(stream).catch_up()
    batch(stream, 1)
    first, today = LANDED_AT.date(), LANDED_AT.date() + timedelta(days=3)
    for day, expected in ((first, 0), (today, 1), (today, 1)):
        settings = MaintenanceSettings({"metric_points": 1}, 64 << 20, 168, 7)
        Maintenance(str(stream.lake), str(stream.checkpoints), settings, day).maintain("metric_points")
        expire_logs(stream.lake)
        copy = shutil.copytree(stream.lake, stream.lake.parent / f"{day}-{len(list(stream.lake.parent.iterdir()))}")
        for _ in range(2):
            ReportFollower(str(copy)).catch_up()
        found = table(copy, "lost_records").to_pylist() if (copy / "lost_records").exists() else []
        assert len(found) == expected
    (row,) = found
    assert {name: row[name] for name in ("source", "topic", "records", "reason", "first_date", "last_date")} == {
        "source": "quota_reports", "topic": "metric_points", "records": None, "reason": "dropped",
        "first_date": first, "last_date": today - timedelta(days=1),
    }  # fmt: skip
