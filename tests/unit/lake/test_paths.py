"""Paths and URIs of a lake, and the JSON files beside its tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_telemetry_lake.pipelines.lake.durable import read_json, write_json
from kafka_telemetry_lake.pipelines.lake.paths import absolute_uri, checkpoints_root, filesystem_of


@pytest.mark.parametrize(
    ("lake", "given", "found"),
    [
        ("lake", None, "lake/_checkpoints"),
        ("s3://bucket/lake/", None, "s3://bucket/lake/_checkpoints"),
        ("lake", "s3://bucket/c/", "s3://bucket/c"),
    ],
)
def test_checkpoints_are_below_the_lake_unless_a_folder_is_given(lake: str, given: str | None, found: str) -> None:
    assert checkpoints_root(lake, given) == found


def test_a_local_path_becomes_a_uri_and_a_uri_stays(tmp_path: Path) -> None:
    assert absolute_uri(str(tmp_path / "a b")) == f"file://{tmp_path}/a%20b"
    assert absolute_uri("s3a://bucket/lake") == "s3a://bucket/lake"


def test_arrow_gets_the_path_below_its_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert filesystem_of(str(tmp_path / "a b"))[1] == f"{tmp_path}/a b"
    for scheme in ("s3", "s3a"):
        filesystem, path = filesystem_of(f"{scheme}://bucket/lake?region=us-east-1")
        assert (filesystem.type_name, path) == ("s3", "bucket/lake")


def test_a_json_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    filesystem, path = filesystem_of(str(tmp_path / "note.json"))
    assert read_json(filesystem, path) is None
    write_json(filesystem, path, {"version": 1})
    with pytest.raises(TypeError):
        write_json(filesystem, path, {"version": object()})
    assert read_json(filesystem, path) == {"version": 1}
    write_json(filesystem, path, {"version": 2})
    assert read_json(filesystem, path) == {"version": 2}
    assert [each.name for each in tmp_path.iterdir()] == ["note.json"]
