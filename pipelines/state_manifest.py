"""Which state files of each shard hold after which batch: the operator's own small log beside Spark's checkpoint.

Spark runs a batch again when the driver died before the batch was done. The batch then starts from the manifest of the
batch before it, so that state and rows are those of one run, however often it was tried.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow.fs as pafs

from pipelines.delta_log import lake_uri

VERSION = 2  # 1 named one file per shard, the whole state, which is a chain of one
KEPT = 3  # manifests; Spark runs only the last batch again


class StateError(RuntimeError):
    """The state beside the checkpoint doesn't fit the run; the message says what to do."""


@dataclass(frozen=True)
class Manifest:
    """The state files after a batch: per shard a base and its later changes, oldest first."""

    batch_id: int
    shards: int
    states: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def after(self, batch_id: int, changed: Mapping[int, Sequence[str]]) -> Manifest:
        states = self.states | {shard: tuple(names) for shard, names in changed.items()}
        return Manifest(batch_id, self.shards, states)


class StateFolder:
    """The folder of manifests and state files of one checkpoint.

    Args:
        uri: the folder; made when it isn't there.
        shards: how many shards the state is kept in; NULL takes what is there, else `default_shards`.

    Raises:
        StateError: when another number of shards is asked for than is there.
    """

    def __init__(self, uri: str, shards: int | None, default_shards: int) -> None:
        self.uri = uri
        self._filesystem, self._root = pafs.FileSystem.from_uri(lake_uri(uri))
        self._filesystem.create_dir(self._root, recursive=True)
        manifests = self._manifests()
        kept = self._read(manifests[-1]).shards if manifests else None
        if shards is not None and kept is not None and shards != kept:
            raise StateError(f"shards: {shards} asked, but the state below {uri} is kept in {kept}")
        self.shards = kept or shards or default_shards

    def last(self) -> Manifest | None:
        """The newest manifest; None before the first batch."""
        manifests = self._manifests()
        return self._read(manifests[-1]) if manifests else None

    def size(self) -> int:
        """Bytes of all state files."""
        entries = self._filesystem.get_file_info(pafs.FileSelector(self._root))
        return sum(entry.size for entry in entries if entry.extension == "state")

    def before(self, batch_id: int) -> Manifest:
        """The manifest that a batch starts from. Raises ``StateError`` when it is gone."""
        if batch_id == 0:
            return Manifest(-1, self.shards)
        try:
            return self._read(self._manifest_path(batch_id - 1))
        except FileNotFoundError as error:
            raise StateError(
                f"state of batch {batch_id - 1} is missing below {self.uri}: the checkpoint and its state are not of "
                "one time; restore both from one backup, or rebuild the lake from its landing topic"
            ) from error

    def write(self, manifest: Manifest) -> None:
        """Make the manifest the state after its batch, and drop what no kept manifest names."""
        content = {"version": VERSION, "shards": manifest.shards, "states": manifest.states}
        path = self._manifest_path(manifest.batch_id)
        with self._filesystem.open_output_stream(f"{path}.tmp") as stream:
            stream.write(json.dumps(content).encode())
        self._filesystem.move(f"{path}.tmp", path)
        self._sweep()

    def _read(self, path: str) -> Manifest:
        with self._filesystem.open_input_file(path) as stream:
            content: dict[str, Any] = json.loads(stream.read())
        version = content["version"]
        if version not in (1, VERSION):
            raise StateError(f"state of version {version} below {self.uri}: this release reads 1 and {VERSION}")
        states = {int(shard): (names,) if version == 1 else tuple(names) for shard, names in content["states"].items()}
        return Manifest(int(path[-15:-5]), content["shards"], states)

    def _manifest_path(self, batch_id: int) -> str:
        return f"{self._root}/manifest-{batch_id:010d}.json"

    def _manifests(self) -> list[str]:
        entries = self._filesystem.get_file_info(pafs.FileSelector(self._root))
        return sorted(entry.path for entry in entries if entry.extension == "json")

    def _sweep(self) -> None:
        manifests = self._manifests()
        for path in manifests[:-KEPT]:
            self._filesystem.delete_file(path)
        kept = [self._read(path) for path in manifests[-KEPT:]]
        named = {name for manifest in kept for names in manifest.states.values() for name in names}
        for entry in self._filesystem.get_file_info(pafs.FileSelector(self._root)):
            if entry.extension == "state" and entry.base_name not in named:
                self._filesystem.delete_file(entry.path)
