"""Iceberg tables of a lake in an S3 store: written, committed once of two at a time, and read by Iceberg's library."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.pipelines.iceberg.folder_tables import FolderTables
from kafka_telemetry_lake.pipelines.iceberg.mirror import LiveFiles, MirroredTable, MirrorError
from kafka_telemetry_lake.pipelines.lake import fence
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, PUSHES
from tests.support.s3_server import BUCKET, GOFAKES3, VERSITYGW, S3Server
from tests.unit.iceberg.mirrored import POINTS, merge, put, rows

pytestmark = [pytest.mark.lake, pytest.mark.slow]  # Go builds the servers

LAKE = f"s3a://{BUCKET}/lake"


@pytest.fixture(params=[GOFAKES3, VERSITYGW])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[S3Server]:
    server = S3Server.start(tmp_path_factory.mktemp("s3") / "objects", request.param)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(fence, "BEAT_S", 0.02)
    monkeypatch.setattr(fence, "PATIENCE_S", 0.3)
    yield server
    server.stop()


def is_same(server: S3Server) -> bool:
    """As a stranger reads it, who knows the store's address and keys."""
    store = {
        "s3.endpoint": server.environment["AWS_ENDPOINT_URL"], "s3.region": "us-east-1",
        "s3.access-key-id": server.environment["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": server.environment["AWS_SECRET_ACCESS_KEY"],
    }  # fmt: skip
    table = StaticTable.from_metadata(f"s3://{BUCKET}/lake/_iceberg/{POINTS}", store)
    delta = rows(DeltaTable(METRIC_POINTS.uri(LAKE)).to_pyarrow_table())
    return bool(delta) and rows(table.scan().to_arrow()) == delta


def test_a_lake_in_a_store(server: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    PUSHES.create(LAKE)
    put(LAKE)
    assert cli.main(["iceberg", "--lake", LAKE]) == 0
    assert is_same(server)
    put(LAKE, 1)
    merge(LAKE)
    assert cli.main(["iceberg", "--lake", LAKE]) == 0
    assert is_same(server)
    assert cli.main(["doctor", "--lake", LAKE]) in (0, 3)
    assert "the lake's Iceberg tables follow it" in capsys.readouterr().out
    first, second = (MirroredTable(LAKE, POINTS, FolderTables(f"{LAKE}/_iceberg"), 20) for _ in range(2))
    for each in (first, second):
        each.follow()
    put(LAKE, 2)
    live = LiveFiles.of(DeltaTable(METRIC_POINTS.uri(LAKE)), METRIC_POINTS.uri(LAKE))
    first.commit(live)
    with pytest.raises(MirrorError, match="another process has changed the Iceberg table meanwhile"):
        second.commit(live)
    assert is_same(server)
