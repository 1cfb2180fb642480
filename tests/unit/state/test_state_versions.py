"""A lake whose state has an earlier layout goes on as if it hadn't; one with a later layout is refused, unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.errors import StateVersionError
from kafka_telemetry_lake.pipelines.state import chain as state_chain
from tests.support.ledger import Fleet
from tests.support.ledger_check import check
from tests.support.local_stream import LocalStream
from tests.unit.replay.test_replay import rows_of

pytestmark = pytest.mark.lake

HEADER = {2: 4, 3: 8}  # bytes


def rewrite(stream: LocalStream, layout: int, manifest: int) -> None:
    """Make the state that of a release with these versions of state files and manifests. Totals are cumulative."""
    folder = stream.checkpoints / "points-state"
    for file in folder.glob("*.state"):
        data = file.read_bytes()
        file.unlink()  # mapped files stay as they are
        head = layout.to_bytes(4, "little") + bytes(HEADER.get(layout, 8) - 4)
        file.write_bytes(head + data[8:])
    for file in folder.glob("manifest-*.json"):
        content = json.loads(file.read_text())
        (seal,) = set(content) - {"version", "shards", "states"}
        del content[seal]
        if manifest == 1:
            assert all(len(names) == 1 for names in content["states"].values())
            content["states"] = {shard: name for shard, (name,) in content["states"].items()}
        file.write_text(json.dumps(content | {"version": manifest}))
    state_chain._cached.clear()


@pytest.mark.parametrize(("layout", "manifest"), [(2, 1), (3, 2)])
def test_a_lake_with_an_earlier_state_goes_on(tmp_path: Path, layout: int, manifest: int) -> None:
    streams = [LocalStream(tmp_path / name) for name in ("earlier", "right")]
    fleets = [Fleet(), Fleet()]
    for stream, fleet in zip(streams, fleets, strict=True):
        stream.batch(fleet.round())
    rewrite(streams[0], layout, manifest)
    for stream, fleet in zip(streams, fleets, strict=True):
        for _ in range(2):
            stream.batch(fleet.round())
    assert rows_of(streams[0].lake) == rows_of(streams[1].lake)
    assert check(streams[0].lake, fleets[0].ledger).problems == []


@pytest.mark.parametrize(("layout", "manifest"), [(6, 2), (3, 4)])
def test_a_lake_with_a_later_state_is_refused_and_not_changed(tmp_path: Path, layout: int, manifest: int) -> None:
    stream, fleet = LocalStream(tmp_path), Fleet()
    stream.batch(fleet.round())
    rewrite(stream, layout, manifest)
    files = {path: path.read_bytes() for path in (stream.checkpoints / "points-state").iterdir()}
    stream.land(fleet.round())
    version = DeltaTable(str(stream.lake / "metric_points")).version()
    with pytest.raises(StateVersionError, match=r"^[^\n]*version [46][^\n]*Upgrade kafka-telemetry-lake[^\n]*$"):
        stream.judge(stream.paths())
    assert DeltaTable(str(stream.lake / "metric_points")).version() == version
    assert {path: path.read_bytes() for path in (stream.checkpoints / "points-state").iterdir()} == files
