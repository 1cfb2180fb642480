"""Windows of brokers' samples follow the table's commits: each commit once, also after a crash."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake import follower
from kafka_telemetry_lake.pipelines.quotas import windows as usage_windows
from kafka_telemetry_lake.pipelines.quotas.broker_usage import sample_windows
from kafka_telemetry_lake.pipelines.tables.operator import QUOTA_SAMPLES
from kafka_telemetry_lake.pipelines.upkeep.maintenance import Maintenance, MaintenanceSettings
from kafka_telemetry_lake.udfs.quotas.usage import SAMPLES_IN, quota_usage
from tests.support.application_lake import put
from tests.support.expired_logs import expire_logs
from tests.support.lake_tables import table
from tests.support.quota_samples import NOON, at, usage_window


def append(lake: Path, *seconds: float, **fields: Any) -> None:
    """One commit with a sample at each of these seconds after noon, of 50 bytes/s or of these fields."""
    place = {"source": "s", "topic": "client-quotas", "partition": 0, "offset": 1}
    place |= {"landed_at": NOON, "landed_date": NOON.date()}
    rows = [usage_window(0) | place | {"time": at(second), **fields} for second in seconds]
    put(lake, QUOTA_SAMPLES, rows)


def windows(lake: Path, seconds: int = 10) -> dict[int, int]:
    """Samples of each window, by its start in seconds after noon."""
    rows: list[dict[str, Any]] = table(lake, "quota_usage").to_pylist()
    chosen = [row for row in rows if row["window_seconds"] == seconds]
    return {round((row["window_start"] - NOON).total_seconds()): row["samples"] for row in chosen}


def rates(lake: Path, seconds: int = 10) -> dict[tuple[int, int], tuple[float, int, float]]:
    """Rate, samples and percent of the limit by a window's start, in seconds after noon, and broker."""
    return {
        (round((row["window_start"] - NOON).total_seconds()), row["broker_id"]): (
            row["observed_rate"], row["samples"], row["used_percent"]
        )
        for row in table(lake, "quota_usage").to_pylist() if row["window_seconds"] == seconds
    }  # fmt: skip


def version(lake: Path) -> int:
    return int(DeltaTable(str(lake / "quota_usage")).version())


def test_q7_a_step_computes_the_minutes_of_new_samples_and_a_restart_goes_on(tmp_path: Path) -> None:
    usage = sample_windows(str(tmp_path))
    assert not usage.step()
    assert not (tmp_path / "quota_usage").exists()
    append(tmp_path, 5, 15)
    append(tmp_path, 16)
    usage.catch_up()
    assert windows(tmp_path) == {0: 1, 10: 2}
    assert windows(tmp_path, 60) == {0: 3}
    done = version(tmp_path)
    assert not sample_windows(str(tmp_path)).step()
    assert version(tmp_path) == done
    append(tmp_path, 17, 130)  # stored, and the job is killed before their windows are computed
    sample_windows(str(tmp_path)).catch_up()
    assert windows(tmp_path) == {0: 1, 10: 3, 130: 1}
    assert version(tmp_path) == done + 1
    DeltaTable(str(tmp_path / "quota_samples")).optimize.compact()
    sample_windows(str(tmp_path)).catch_up()
    assert version(tmp_path) == done + 1


def test_q7_late_samples_correct_their_windows_and_no_other(tmp_path: Path) -> None:
    append(tmp_path, 5, 15)
    append(tmp_path, 65, throttle_time_ms=3.0)
    append(tmp_path, 5, broker_id=2)
    sample_windows(str(tmp_path)).catch_up()
    before = rates(tmp_path)
    assert before == {(0, 1): (50, 1, 50), (0, 2): (50, 1, 50), (10, 1): (50, 1, 50), (60, 1): (50, 1, 100)}
    assert rates(tmp_path, 60) == {(0, 1): (50, 2, 50), (0, 2): (50, 1, 50), (60, 1): (50, 1, 100)}
    append(tmp_path, 16, -86_400, 86_465, observed_rate=70.0)
    sample_windows(str(tmp_path)).catch_up()
    late = {(-86_400, 1): (70, 1, 70), (10, 1): (60, 2, 60), (86_460, 1): (70, 1, 70)}
    assert rates(tmp_path) == before | late
    rate, samples, used = rates(tmp_path, 60)[0, 1]
    assert samples == 3
    assert used == rate == pytest.approx(170 / 3)
    assert all(row["landed_date"] == row["window_start"].date() for row in table(tmp_path, "quota_usage").to_pylist())


def test_windows_are_those_of_one_pass_over_all_samples(tmp_path: Path) -> None:
    for number in range(12):  # each commit touches windows of those before
        seconds = (5 * n + 3600 * (n % 3) for n in range(number, 60, 12))
        append(tmp_path, *seconds, observed_rate=7.0 * number, broker_id=number % 4 // 2, throttle_time_ms=number % 5)
        if number % 4 == 3:
            sample_windows(str(tmp_path)).catch_up()
    stored = table(tmp_path, "quota_samples").select(SAMPLES_IN.names).cast(SAMPLES_IN)
    order = [(name, "ascending") for name in ("window_seconds", "window_start", "broker_id")]
    expected = pa.concat_tables([quota_usage(stored, seconds) for seconds in (10, 60)]).sort_by(order)
    found = table(tmp_path, "quota_usage").select(expected.column_names).sort_by(order)
    assert found.to_pylist() == expected.to_pylist()
    assert 2 in found["samples"].to_pylist()


def test_a_step_reads_no_more_than_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_windows, "STEP_ROWS", 2)
    for minute in range(3):
        append(tmp_path, 60 * minute, 60 * minute + 1)
    usage = sample_windows(str(tmp_path))
    assert usage.step()
    assert windows(tmp_path) == {0: 2}
    usage.catch_up()
    assert windows(tmp_path) == {0: 2, 60: 2, 120: 2}


@pytest.mark.parametrize("is_log_short", [True, False], ids=["the log is short", "files are gone"])
def test_days_of_samples_that_retention_dropped_unread_are_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_log_short: bool
) -> None:
    append(tmp_path, 5)
    with monkeypatch.context() as then:
        then.setattr(follower, "utc_now", lambda: NOON)
        sample_windows(str(tmp_path)).catch_up()
    append(tmp_path, 15)
    found: list[dict[str, Any]] = []
    for days, expected in ((0, 0), (3, 1)):
        today = NOON.date() + timedelta(days=days)
        settings = MaintenanceSettings({"quota_samples": 1}, 64 << 20, 0, 7)
        Maintenance(str(tmp_path), str(tmp_path / "_checkpoints"), settings, today).maintain("quota_samples")
        lake = shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-{days}"))
        if is_log_short:
            expire_logs(lake)
        for _ in range(2):
            sample_windows(str(lake)).catch_up()
        found = table(lake, "lost_records").to_pylist() if (lake / "lost_records").exists() else []
        assert len(found) == expected
    assert [found[0][name] for name in ("source", "topic", "reason", "first_date", "last_date")] == [
        "quota_usage", "quota_samples", "dropped", NOON.date(), NOON.date() + timedelta(days=2),
    ]  # fmt: skip
