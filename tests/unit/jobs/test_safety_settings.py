"""Settings that become SQL, paths or secrets: what is refused, and what is never said."""

from __future__ import annotations

import pytest

from kafka_telemetry_lake.jobs.ingest import make_lake
from kafka_telemetry_lake.jobs.maintain import check_retention
from kafka_telemetry_lake.jobs.replay import condition
from kafka_telemetry_lake.jobs.settings.base import UsageError, parse
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from kafka_telemetry_lake.jobs.settings.maintain import MaintainSettings
from kafka_telemetry_lake.jobs.settings.replay import ReplaySettings
from kafka_telemetry_lake.pipelines.upkeep.maintenance import BY_DAY

SOURCE = ["--source", "files:in", "--lake", "lake"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("earliest", None),
        ("quarantine", "outcome = 'quarantined' OR quarantined_points > 0"),
        ("3:1500", '"partition" = 3 AND "offset" >= 1500'),
        ("2026-11-21", "landed_at >= TIMESTAMPTZ '2026-11-21T00:00:00+00:00'"),
        ("2026-11-21T08:00+02:00", "landed_at >= TIMESTAMPTZ '2026-11-21T06:00:00+00:00'"),
    ],
)
def test_what_a_replay_begins_with(asked: str, found: str | None) -> None:
    settings = parse(ReplaySettings, ["--lake", "lake", "--from", asked], "test")
    assert condition(settings.from_) == found


@pytest.mark.parametrize("asked", ["", "1 OR 1=1", "0:1;", "'2026-11-21'", "2026-11-21' OR 'a'='a", "-1:0"])
def test_nothing_else_becomes_sql(asked: str) -> None:
    with pytest.raises(UsageError, match=r"from: .*allowed: earliest, quarantine"):
        parse(ReplaySettings, ["--lake", "lake", f"--from={asked}"], "test")


@pytest.mark.parametrize(
    ("days", "said"),
    [
        ({"pushes": 30, "push_outcomes": 7}, "must not be shorter than that of pushes"),
        ({"push_outcomes": 7}, "must not be shorter than that of pushes"),
        ({"../pushes": 1}, "this table has no retention by day; allowed: .*pushes"),
        ({"subscriptions": 1}, "this table has no retention by day"),
    ],
)
def test_retention_that_would_be_wrong_is_refused(days: dict[str, int], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_retention(days, BY_DAY)


def test_retention_comes_from_the_settings_file() -> None:
    settings = parse(MaintainSettings, ["--conf", "conf/maintain.yml", "--lake", "lake"], "test")
    check_retention(settings.retention_days, BY_DAY)
    assert settings.retention_days["pushes"] == 30


def test_hashes_need_a_key_and_the_key_is_never_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="TELEMETRY_LAKE_PERSONAL_DATA_KEY"):
        parse(IngestSettings, [*SOURCE, "--personal-data", "hash"], "test").check_together()
    monkeypatch.setenv("TELEMETRY_LAKE_PERSONAL_DATA_KEY", "never-said")
    settings = parse(IngestSettings, [*SOURCE, "--personal-data", "hash"], "test")
    lake = make_lake(settings)
    assert lake.privacy.key == "never-said"
    assert "never-said" not in f"{settings!r} {settings} {lake!r} {lake}"
