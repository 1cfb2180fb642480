"""Snapshots of the operator: its state after some batch, kept with the versions that its tables had then.

A replay that needn't begin at the beginning begins at one of these (docs/operate.md). A snapshot lies beside the
checkpoint, in `points-snapshots/<time>-<batch>/`: the state files, and `snapshot.json`, written last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.fs as pafs

from pipelines.delta_log import lake_uri
from pipelines.state_manifest import Manifest

NAME = "snapshot.json"
TIME = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True)
class Snapshot:
    """The operator after a batch.

    Attributes:
        uri: its folder.
        taken_at: UTC.
        states: per shard its state files, oldest first; copies of them are in the folder.
        versions: of the operator's tables, by name; `maintain` keeps their files as long as the snapshot.
    """

    uri: str
    taken_at: datetime
    batch_id: int
    shards: int
    states: dict[int, tuple[str, ...]]
    versions: dict[str, int]

    def restore(self, state_uri: str) -> None:
        """Put its state files back into a folder of state."""
        _copy(self.uri, state_uri, [name for names in self.states.values() for name in names])


class Snapshots:
    """The snapshots beside one checkpoint of the points stream."""

    def __init__(self, checkpoints: str) -> None:
        self._uri = f"{checkpoints.rstrip('/')}/points-snapshots"
        self._filesystem, self._root = pafs.FileSystem.from_uri(lake_uri(self._uri))

    def all(self) -> list[Snapshot]:
        """Oldest first; those in the making aren't among them."""
        entries = self._filesystem.get_file_info(pafs.FileSelector(self._root, allow_not_found=True))
        names = sorted(entry.base_name for entry in entries if entry.type == pafs.FileType.Directory)
        found = [self._read(name) for name in names]
        return [snapshot for snapshot in found if snapshot is not None]

    def due(self, now: datetime, every: timedelta) -> bool:
        """Whether the newest one is older than `every`."""
        taken = [snapshot.taken_at for snapshot in self.all()]
        return not taken or now - taken[-1] >= every

    def take(self, now: datetime, manifest: Manifest, state_uri: str, versions: Mapping[str, int]) -> None:
        """Keep the state after the batch that has just been committed to tables of these versions."""
        name = f"{now.astimezone(UTC):{TIME}}-{manifest.batch_id:010d}"
        folder = f"{self._root}/{name}"
        self._filesystem.create_dir(folder, recursive=True)
        _copy(state_uri, f"{self._uri}/{name}", [file for files in manifest.states.values() for file in files])
        content = {"batch_id": manifest.batch_id, "shards": manifest.shards, "states": manifest.states,
                   "versions": dict(versions)}  # fmt: skip
        with self._filesystem.open_output_stream(f"{folder}/{NAME}.tmp") as stream:
            stream.write(json.dumps(content).encode())
        self._filesystem.move(f"{folder}/{NAME}.tmp", f"{folder}/{NAME}")

    def drop_older(self, than: datetime) -> list[Snapshot]:
        """Delete those taken before; gives what was deleted."""
        old = [snapshot for snapshot in self.all() if snapshot.taken_at < than]
        for snapshot in old:
            self.drop(snapshot)
        return old

    def drop(self, snapshot: Snapshot) -> None:
        folder = f"{self._root}/{snapshot.uri.rpartition('/')[2]}"
        self._filesystem.delete_file(f"{folder}/{NAME}")  # first: a folder without it is no snapshot
        self._filesystem.delete_dir(folder)

    def _read(self, name: str) -> Snapshot | None:
        try:
            with self._filesystem.open_input_file(f"{self._root}/{name}/{NAME}") as stream:
                content: dict[str, Any] = json.loads(stream.read())
        except FileNotFoundError:
            return None
        return Snapshot(
            f"{self._uri}/{name}",
            datetime.strptime(name.partition("-")[0], TIME).replace(tzinfo=UTC),
            content["batch_id"],
            content["shards"],
            {int(shard): tuple(files) for shard, files in content["states"].items()},
            content["versions"],
        )


def _copy(source: str, target: str, names: Sequence[str]) -> None:
    from_files, from_root = pafs.FileSystem.from_uri(lake_uri(source))
    to_files, to_root = pafs.FileSystem.from_uri(lake_uri(target))
    for name in names:
        pafs.copy_files(
            f"{from_root}/{name}", f"{to_root}/{name}", source_filesystem=from_files, destination_filesystem=to_files
        )
