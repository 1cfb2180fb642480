"""Checkpoints of another lake or of another time are rejected, not silently used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from kafka_telemetry_lake.pipelines.ingest.checkpoint import check_checkpoints
from kafka_telemetry_lake.pipelines.lake.errors import ForeignCheckpointError, OldCheckpointError, OldLakeError
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, PUSHES, QUOTA_SAMPLES, TABLES


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for table in TABLES:
        table.create(str(tmp_path / "lake"))
    return tmp_path / "lake"


def checkpoint(folder: Path, stream: str, last: int) -> None:
    """As Spark, or for `points` the operator, leaves one after `last` batches."""
    if stream == "points":
        (folder / "points-state").mkdir(parents=True)
        (folder / "points-state" / f"manifest-{last:010d}.json").write_text("{}")
    (folder / stream / "offsets").mkdir(parents=True, exist_ok=True)
    (folder / stream / "metadata").write_text(json.dumps({"id": "query-1"}))
    for batch in range(last + 1):
        (folder / stream / "offsets" / str(batch)).write_text("v1")
        (folder / stream / "offsets" / f".{batch}.crc").write_text("")


def written(lake: Path, name: str, app_id: str, batch: int) -> None:
    rows = DeltaTable(str(lake / name)).to_pyarrow_table()
    properties = CommitProperties(app_transactions=[Transaction(app_id, batch)])
    write_deltalake(str(lake / name), rows, mode="append", partition_by=["landed_date"], commit_properties=properties)


def test_checkpoints_of_another_lake_are_refused(lake: Path, tmp_path: Path) -> None:
    check_checkpoints(str(lake), str(tmp_path / "own"))
    check_checkpoints(str(lake), str(tmp_path / "own"))
    other = tmp_path / "other"
    for table in TABLES:
        table.create(str(other))
    with pytest.raises(ForeignCheckpointError, match="do not belong to lake"):
        check_checkpoints(str(other), str(tmp_path / "own"))


@pytest.mark.parametrize(
    ("stream", "table", "app_id"),
    [
        ("landing", PUSHES.name, "kafka-telemetry-lake:landing:query-1"),
        ("landing", QUOTA_SAMPLES.name, "kafka-telemetry-lake:landing:query-1"),  # a batch of samples only
        ("points", METRIC_POINTS.name, "kafka-telemetry-lake:points:query-1"),
    ],
)
def test_a_checkpoint_older_than_the_lake_is_refused(
    lake: Path, tmp_path: Path, stream: str, table: str, app_id: str
) -> None:
    QUOTA_SAMPLES.create(str(lake))
    checkpoint(tmp_path / "own", stream, last=9)
    written(lake, table, app_id, 9)  # killed before the batch was marked done: not older
    written(lake, table, "kafka-telemetry-lake:points:another", 30)
    check_checkpoints(str(lake), str(tmp_path / "own"))
    written(lake, table, app_id, 12)
    with pytest.raises(OldCheckpointError, match=f"{stream} .* ends at batch 9, but the lake already has batch 12"):
        check_checkpoints(str(lake), str(tmp_path / "own"))


def test_tables_older_than_their_checkpoints_are_refused(lake: Path, tmp_path: Path) -> None:
    """Copied while a job ran, or restored from an older backup: the records in between would be left out."""
    checkpoint(tmp_path / "own", "points", last=9)
    version = DeltaTable(str(lake / PUSHES.name)).version()
    note = tmp_path / "own" / "points" / "batch.json"
    note.write_text(json.dumps({"number": 9, "version": version, "paths": []}))
    check_checkpoints(str(lake), str(tmp_path / "own"))
    note.write_text(json.dumps({"number": 9, "version": version + 1, "paths": []}))
    with pytest.raises(OldLakeError, match=r"pushes of .* ends at version 0, but .* have read up to version 1: "):
        check_checkpoints(str(lake), str(tmp_path / "own"))
