"""Where Iceberg tables may be, and how far they are behind: needs no Iceberg library."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kafka_telemetry_lake.pipelines.doctor.lake_checks import check_iceberg
from kafka_telemetry_lake.pipelines.iceberg.places import (
    FOLDER,
    Behind,
    IcebergPlaceError,
    behind,
    has_iceberg_tables,
    iceberg_root,
    location_of,
)

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)


def write_log(lake: Path, *hours_ago: float, forgotten: int = 0) -> None:
    """A table's log with a commit so many hours ago each; the first ones are no longer there."""
    log = lake / "pushes" / "_delta_log"
    log.mkdir(parents=True)
    for version, hours in enumerate(hours_ago):
        at = int((NOW - timedelta(hours=hours)).timestamp() * 1000)
        if version >= forgotten:
            (log / f"{version:020d}.json").write_text(json.dumps({"commitInfo": {"timestamp": at}}))
    (log / "_last_checkpoint").write_text(json.dumps({"version": forgotten}))


def write_metadata(lake: Path, delta_version: int, hours_ago: float) -> None:
    """An Iceberg table whose snapshot is of a version of the Delta table."""
    folder = lake / FOLDER / "pushes" / "metadata"
    folder.mkdir(parents=True)
    at = int((NOW - timedelta(hours=hours_ago)).timestamp() * 1000)
    snapshot = {"snapshot-id": 7, "timestamp-ms": at, "summary": {"delta-version": str(delta_version)}}
    (folder / "v3.metadata.json").write_text(json.dumps({"current-snapshot-id": 7, "snapshots": [snapshot]}))
    (folder / "version-hint.text").write_text("3")


@pytest.mark.parametrize("to", ["pushes", ".", "_checkpoints", "_iceberg/x"])
def test_inside_the_lake_there_is_one_place(tmp_path: Path, to: str) -> None:
    with pytest.raises(IcebergPlaceError, match="inside the lake only _iceberg can have the Iceberg tables"):
        iceberg_root(str(tmp_path), str(tmp_path / to))


def test_places(tmp_path: Path) -> None:
    lake = str(tmp_path)
    assert iceberg_root(lake) == iceberg_root(lake, f"{lake}/_iceberg/") == f"{lake}/_iceberg"
    assert iceberg_root(lake, f"{lake}-iceberg") == f"{lake}-iceberg"
    assert location_of("s3a://b/lake/x/") == "s3://b/lake/x"
    assert location_of(f"{lake}/a b/") == location_of(f"file://{lake}/a%20b") == f"file://{lake}/a b"
    with pytest.raises(IcebergPlaceError, match="a path with #"):
        location_of(f"{lake}/a#b")


def test_a_log_that_has_forgotten_that_commit_is_behind_since_the_snapshot(tmp_path: Path) -> None:
    write_log(tmp_path, 50, 40, 30, 2, forgotten=3)
    write_metadata(tmp_path, 1, 35)
    assert list(behind(str(tmp_path))) == [Behind("pushes", 1, NOW - timedelta(hours=35))]


def test_one_that_has_the_newest_version_is_not_behind(tmp_path: Path) -> None:
    write_log(tmp_path, 50, 40)
    write_metadata(tmp_path, 1, 40)
    assert list(behind(str(tmp_path))) == []


def test_a_table_is_behind_since_the_first_commit_that_it_lacks_and_doctor_says_how_far(tmp_path: Path) -> None:
    lake = str(tmp_path)
    assert list(check_iceberg(lake, NOW)) == []
    assert not has_iceberg_tables(lake)
    write_log(tmp_path, 30, 20, 10, 2)
    write_metadata(tmp_path, 1, 15)
    assert list(behind(lake)) == [Behind("pushes", 1, NOW - timedelta(hours=10))]
    (check,) = check_iceberg(lake, NOW)
    assert (check.status, check.text) == (
        "warning", "1 Iceberg tables lack commits of the lake; pushes is 10 h behind",
    )  # fmt: skip
    assert f"run `telemetry-lake iceberg --lake {lake}`" in (check.advice or "")
    (check,) = check_iceberg(lake, NOW - timedelta(hours=9.5))  # for less than an hour
    assert (check.status, check.text) == ("ok", "the lake's Iceberg tables follow it")
