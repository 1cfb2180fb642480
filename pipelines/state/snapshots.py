"""Snapshots of the operator: its state after a batch, and the files that its tables had then.

A replay of recent pushes starts from a snapshot instead of the first push (docs/operate.md). A snapshot is a folder
next to the checkpoint, `points-snapshots/<time>-<batch>/`, with a list of files for each table, and `snapshot.json`,
written last, which names the state files. These stay in the folder of the state as long as a snapshot names them
(`manifest`). The lists make it independent of the tables' logs, which forget their old versions. The checks of
values (`number`, `chains`) serve manifests too.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.delta_log import file_rows
from kafka_telemetry_lake.pipelines.lake.durable import write_json
from kafka_telemetry_lake.pipelines.lake.errors import StateError
from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.notes import DamagedNoteError, read_note, sealed
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.stored_files import files_table
from kafka_telemetry_lake.pipelines.tables.operator import OPERATOR_TABLES
from kafka_telemetry_lake.pipelines.tables.table import Table, table_uri

if TYPE_CHECKING:
    from kafka_telemetry_lake.pipelines.state.manifest import Manifest  # which needs this module


MOST_SHARDS = 1 << 20


def number(value: Any, least: int = 0, most: int = 1 << 62) -> int:
    """Check that a value of a note is an integer within bounds, and return it."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise DamagedNoteError(f"{str(value)[:40]!r} isn't a number from {least} to {most}")
    return value


def chains(value: Any, shards: int) -> dict[int, tuple[str, ...]]:
    """Check the state files of each shard, oldest first, and return them."""
    if not isinstance(value, dict):
        raise DamagedNoteError("its states aren't an object")
    result = {}
    for shard, names in value.items():
        if not (shard.isdecimal() and shard.isascii() and len(shard) < 10 and int(shard) < shards):
            raise DamagedNoteError(f"{shard[:40]!r} isn't one of its {shards} shards")
        if not isinstance(names, list) or not all(map(_is_name, names)):
            raise DamagedNoteError(f"the files of shard {shard} aren't a list of names")
        result[int(shard)] = tuple(names)
    return result


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and name.endswith(".state") and "/" not in name and len(name) <= 255


FOLDER = "points-snapshots"  # below the checkpoints
NAME = "snapshot.json"
FIELDS = ("batch_id", "shards", "states")
START_EARLIER = "a replay then starts from an older snapshot or from the first push"
TIME = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True)
class Snapshot:
    """The operator after a batch.

    Attributes:
        uri: folder of the snapshot.
        taken_at: UTC.
        states: state files of each shard, oldest first, in the folder of the state.
    """

    uri: str
    taken_at: datetime
    batch_id: int
    shards: int
    states: dict[int, tuple[str, ...]]

    @property
    def name(self) -> str:
        """Name of its folder. Names sort by time."""
        return self.uri.rpartition("/")[2]

    def files_table(self, table: Table) -> pa.Table:
        """The files that an operator's table had, as `stored_files.files_table` returns them."""
        filesystem, root = filesystem_of(self.uri)
        return pq.read_table(f"{root}/{table.name}.parquet", filesystem=filesystem)

    def files(self, table: Table) -> list[dict[str, Any]]:
        """The files that an operator's table had, as `delta_log.files_of` returns them."""
        return file_rows(self.files_table(table))

    def dataset(self, lake: Lake, table: Table) -> pads.Dataset:
        """The rows that an operator's table had."""
        return lake.rows_in(table, self.files_table(table))


class Snapshots:
    """The snapshots of one checkpoint."""

    def __init__(self, checkpoints: str) -> None:
        self._uri = table_uri(checkpoints, FOLDER)
        self._filesystem, self._root = filesystem_of(self._uri)
        self._known: dict[str, Snapshot] = {}

    def all(self) -> list[Snapshot]:
        """All complete snapshots, oldest first.

        Raises:
            StateError: one is damaged.
            OtherFormatError: one has another format.
        """
        entries = self._filesystem.get_file_info(pafs.FileSelector(self._root, allow_not_found=True))
        names = sorted(entry.base_name for entry in entries if entry.type == pafs.FileType.Directory)
        for name in names:
            if name not in self._known and (snapshot := self._read(name)) is not None:
                self._known[name] = snapshot
        return [self._known[name] for name in names if name in self._known]

    def due(self, now: datetime, every: timedelta) -> bool:
        """Whether there is no snapshot younger than `every`."""
        taken = [snapshot.taken_at for snapshot in self.all()]
        return not taken or now - taken[-1] >= every

    def take(self, now: datetime, manifest: Manifest, lake: str) -> None:
        """Store the state after the batch that was just committed, and which files the tables have now."""
        # The driver takes it between two batches, when all tables have the rows of the same pushes:
        # 1. The lists of files, a Parquet file for each table. Cut off here, the folder has no `snapshot.json`, so it
        #    is no snapshot, and the next look takes one under another name.
        # 2. `snapshot.json`, written last, names the state files of the manifest. From then on they stay, although
        #    later manifests don't name them (`StateFolder` asks which snapshots there are before it deletes).
        # Nothing is copied: a snapshot costs lists of names, and the space of the files that they keep from VACUUM.
        # `maintain` drops the old ones (`--snapshot-days`), and those that precede pushes that retention has dropped: a
        # replay from them would have a gap.
        # A replay starts from the newest snapshot before all pushes that it shall read again: it restores the lists'
        # files, and runs the later pushes from the snapshot's state.
        name = f"{now.astimezone(UTC):{TIME}}-{manifest.batch_id:010d}"
        folder = f"{self._root}/{name}"
        self._filesystem.create_dir(folder, recursive=True)
        for table in OPERATOR_TABLES:
            files = files_table(DeltaTable(table.uri(lake)))
            pq.write_table(files, f"{folder}/{table.name}.parquet", filesystem=self._filesystem)
        content = {"batch_id": manifest.batch_id, "shards": manifest.shards, "states": manifest.states}
        write_json(self._filesystem, f"{folder}/{NAME}", sealed(content))

    def drop_older(self, than: datetime) -> list[Snapshot]:
        """Delete the snapshots taken before a time, and return them."""
        old = [snapshot for snapshot in self.all() if snapshot.taken_at < than]
        for snapshot in old:
            self.drop(snapshot)
        return old

    def drop(self, snapshot: Snapshot) -> None:
        folder = f"{self._root}/{snapshot.name}"
        self._known.pop(snapshot.name, None)
        self._filesystem.delete_file(f"{folder}/{NAME}")  # first: a folder without this file isn't read as a snapshot
        self._filesystem.delete_dir(folder)

    def _read(self, name: str) -> Snapshot | None:
        try:
            with self._filesystem.open_input_file(f"{self._root}/{name}/{NAME}") as stream:
                data = stream.read()
        except FileNotFoundError:
            return None
        try:
            return _snapshot(f"{self._uri}/{name}", data)
        except DamagedNoteError as error:
            raise StateError(
                f"{self._uri}/{name}/{NAME} is damaged ({error}): no replay can start from it. Delete its folder; "
                f"{START_EARLIER}"
            ) from error


def _snapshot(uri: str, data: bytes) -> Snapshot:
    advice = f"delete its folder ({START_EARLIER}), or use the build that wrote it"
    content = read_note(data, FIELDS, f"snapshot {uri}/{NAME}", advice)
    shards = number(content["shards"], 1, MOST_SHARDS)
    try:
        taken_at = datetime.strptime(uri.rpartition("/")[2].partition("-")[0], TIME).replace(tzinfo=UTC)
    except ValueError as error:
        raise DamagedNoteError("its folder's name isn't a time") from error
    return Snapshot(uri, taken_at, number(content["batch_id"]), shards, chains(content["states"], shards))
