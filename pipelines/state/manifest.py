"""Manifests: which state files each shard has after which batch. They complement Spark's checkpoint.

Spark repeats a batch if the driver died before the batch was done. The batch then starts from the manifest of the
previous batch, so its state and rows don't depend on the number of attempts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow.fs as pafs

from kafka_telemetry_lake.pipelines.lake.durable import write_json
from kafka_telemetry_lake.pipelines.lake.errors import ShardCountError, StateError, StateMissingError
from kafka_telemetry_lake.pipelines.lake.notes import DamagedNoteError, read_note, sealed
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.state.snapshots import MOST_SHARDS, Snapshots, chains, number

RETAINED_MANIFESTS = 3  # Spark repeats only the last batch
REBUILD = "telemetry-lake replay --rebuild-state"
OTHER_FORMAT = (
    "name a new folder with --checkpoints (the source is read from its beginning, nothing is stored twice), or use the "
    "build that wrote it"
)


@dataclass(frozen=True)
class Manifest:
    """The state files after a batch: for each shard a base and the later changes, oldest first."""

    batch_id: int
    shards: int
    states: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def after(self, batch_id: int, changed: Mapping[int, Sequence[str]]) -> Manifest:
        states = self.states | {shard: tuple(names) for shard, names in changed.items()}
        return Manifest(batch_id, self.shards, states)


class StateFolder:
    """The folder of manifests and state files of one checkpoint.

    Args:
        uri: the folder; created if it doesn't exist.
        shards: number of shards; None means that of the stored state or, without one, `default_shards`.

    Raises:
        ShardCountError: the stored state has a number of shards other than `shards`.
        OtherFormatError: a manifest has another format. Every reading of manifests may raise it.
    """

    def __init__(self, uri: str, shards: int | None, default_shards: int) -> None:
        self.uri = uri
        self.snapshots = Snapshots(uri.rpartition("/")[0])
        self._size = 0
        self._filesystem, self._root = filesystem_of(uri)
        self._filesystem.create_dir(self._root, recursive=True)
        self.shards = self._stored_shards() or default_shards
        if shards is not None:
            self.require(shards)

    def require(self, shards: int) -> None:
        """Let a new state have so many shards.

        Raises:
            ShardCountError: there is a state, with another number.
        """
        stored = self._stored_shards()
        if stored is not None and shards != stored:
            raise ShardCountError(
                f"{shards} shards requested, but the state below {self.uri} has {stored}: leave --shards out, or run "
                f"`telemetry-lake reshard --shards {shards}`"
            )
        self.shards = shards

    def last(self) -> Manifest | None:
        """The newest manifest; None before the first batch."""
        manifests = self._manifests()
        return self._read(manifests[-1]) if manifests else None

    def readable(self) -> list[Manifest]:
        """The undamaged manifests, oldest first."""
        return self._readable(self._manifests())

    def _readable(self, paths: Iterable[str]) -> list[Manifest]:
        result = []
        for path in paths:
            with contextlib.suppress(StateError):
                result.append(self._read(path))
        return result

    def batch_ids(self) -> list[int]:
        """The batches that have a manifest, readable or not."""
        return [int(path[-15:-5]) for path in self._manifests() if path[-15:-5].isdecimal()]

    def drop_after(self, batch_id: int) -> None:
        """Delete the manifests of later batches: these were cut off before their first commit, and will run again."""
        later = [path for path in self._manifests() if path > self._manifest_path(batch_id)]
        for path in later:
            self._filesystem.delete_file(path)
        if later:
            self.shards = self._stored_shards() or self.shards

    def size(self) -> int:
        """Bytes of the state files that the retained manifests named when the last one was written."""
        return self._size

    def before(self, batch_id: int) -> Manifest:
        """The manifest that a batch starts from. Raises ``StateMissingError`` if it doesn't exist."""
        if batch_id == 0:
            return Manifest(-1, self.shards)
        try:
            return self._read(self._manifest_path(batch_id - 1))
        except FileNotFoundError as error:
            raise StateMissingError(
                f"state of batch {batch_id - 1} is missing below {self.uri}: the checkpoint and its state are from "
                "different times. Restore both from one backup, or rebuild the lake from its landing topic"
            ) from error

    def write(self, manifest: Manifest) -> None:
        """Write the manifest, then delete old manifests and all state files that nothing names any more."""
        content = {"shards": manifest.shards, "states": manifest.states}
        path = self._manifest_path(manifest.batch_id)
        write_json(self._filesystem, path, sealed(content))
        self._sweep()

    def _stored_shards(self) -> int | None:
        return next((manifest.shards for manifest in reversed(self.readable())), None)

    def _read(self, path: str) -> Manifest:
        with self._filesystem.open_input_file(path) as stream:
            data = stream.read()
        try:
            return _manifest(path, data, f"manifest {path.rpartition('/')[2]} below {self.uri}")
        except DamagedNoteError as error:
            raise StateError(
                f"manifest {path.rpartition('/')[2]} below {self.uri} is damaged ({error}): no batch can start from "
                f"it. Stop the job and run `{REBUILD}`, which rebuilds the state from table pushes"
            ) from error

    def _manifest_path(self, batch_id: int) -> str:
        return f"{self._root}/manifest-{batch_id:010d}.json"

    def _manifests(self, entries: Sequence[pafs.FileInfo] | None = None) -> list[str]:
        if entries is None:
            entries = self._filesystem.get_file_info(pafs.FileSelector(self._root))
        return sorted(entry.path for entry in entries if entry.extension == "json")

    def _sweep(self) -> None:
        entries = self._filesystem.get_file_info(pafs.FileSelector(self._root))
        paths = self._manifests(entries)
        retained = self._readable(paths)[-RETAINED_MANIFESTS:]
        for path in paths:
            if path not in {self._manifest_path(manifest.batch_id) for manifest in retained}:
                self._filesystem.delete_file(path)
        named = {name for manifest in retained for names in manifest.states.values() for name in names}
        others = {name for snapshot in self.snapshots.all() for names in snapshot.states.values() for name in names}
        self._size = sum(entry.size for entry in entries if entry.base_name in named)
        used = named | others
        for entry in entries:
            if entry.extension == "state" and entry.base_name not in used:
                self._filesystem.delete_file(entry.path)


def _manifest(path: str, data: bytes, name: str) -> Manifest:
    content = read_note(data, ("shards", "states"), name, OTHER_FORMAT)
    shards = number(content["shards"], 1, MOST_SHARDS)
    stem = path[-15:-5]
    if not stem.isdecimal():
        raise DamagedNoteError("its name has no batch number")
    return Manifest(int(stem), shards, chains(content["states"], shards))
